"""Messages that are sent back against lists: in any order they fail, wait, come again, are given
up; the broker dies, or the power goes.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import ResponseCode
from orbitmq.store.config import FlushMode
from orbitmq.testing.forgetful_disk import ForgetfulDisk
from orbitmq.testing.manual_clock import ManualClock
from support.broker.retries import BACK, RetriesRoom, back_fields
from support.store.stores import InlineFlusher

LEVELS_S = (1, 2, 4, 8, 16)
TIMES_MAX = 16  # of a group, when the consumer does not say
RETRY, DEAD = "%RETRY%g", "%DLQ%g"


class Copy(NamedTuple):
    """A message at one of its attempts."""

    number: int
    times: int

    @classmethod
    def of(cls, message: StoredMessage) -> Copy:
        return cls(int(message.body), message.reconsume_times)


class Back(NamedTuple):
    """A copy that was stored when a message was sent back: when it is due, None for a dead letter;
    and where the log ended before.
    """

    copy: Copy
    due_ms: int | None
    log_offset: int


class RetriesMachine(RuleBasedStateMachine):
    """With SYNC_FLUSH every step ends when the disk has it, as those who are answered hear; then a
    power cut takes nothing away.
    """

    @initialize(flush_mode=st.sampled_from(FlushMode))
    def begin(self, flush_mode: FlushMode) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="orbitmq-retries-")
        root = Path(self.folder.name)
        self.is_sync = flush_mode is FlushMode.SYNC
        self.disk = ForgetfulDisk(ManualClock(), root / "limbo")
        self.room = RetriesRoom(
            root,
            levels=" ".join(f"{seconds}s" for seconds in LEVELS_S),
            layer=self.disk,
            flush_mode=flush_mode,
            make_flusher=InlineFlusher,
        )
        self.sent: dict[int, int] = {}  # where in the log each message is
        self.backs: list[Back] = []
        self.numbers = 0
        self.is_cut = False
        self.delivered_ms = 0  # up to when all that was due has come

    def teardown(self) -> None:
        if hasattr(self, "room"):
            self.room.close()
            self.folder.cleanup()

    def done(self) -> None:
        if self.is_sync:
            self.room.store.flush()

    def consumable(self) -> list[tuple[Copy, int]]:
        """What can be consumed, and where in the log it is."""
        first = [(Copy(number, 0), offset) for number, offset in self.sent.items()]
        return first + [
            (Copy.of(message), message.log_offset) for message in self.room.stored(RETRY)
        ]

    # -- what happens

    @rule()
    def send(self) -> None:
        self.sent[self.numbers] = self.room.put(
            b"%d" % self.numbers, UNIQ_KEY=f"U{self.numbers}"
        ).offset
        self.numbers += 1
        self.done()

    @precondition(lambda self: self.sent)
    @rule(
        data=st.data(),
        level=st.sampled_from([0, 0, 1, 5, 9, -1]),
        times_max=st.sampled_from([None, None, 0, 1, 2]),
    )
    def send_back(self, data: st.DataObject, level: int, times_max: int | None) -> None:
        copy, offset = data.draw(st.sampled_from(self.consumable()))
        end = int(self.room.store.log.end_offset)
        answer = self.room.begin(
            self.room.back,
            BACK,
            back_fields(offset, delayLevel=level, maxReconsumeTimes=times_max),
            version=513,
        )
        if (
            answer is not None
        ):  # else it comes when a topic that is new is saved, or when the disk has it
            assert answer.code == ResponseCode.SUCCESS
        self.room.loop.run()
        self.room.channel = self.room.peers.connect()
        due_ms = None
        if level >= 0 and copy.times < (TIMES_MAX if times_max is None else times_max):
            wait_s = LEVELS_S[min(level or 3 + copy.times, len(LEVELS_S)) - 1]
            due_ms = self.room.clock.now_ms() + wait_s * 1000
        self.backs.append(Back(Copy(copy.number, copy.times + 1), due_ms, end))
        self.done()

    @rule(passed_ms=st.sampled_from([1, 999, 1000, 5000, 20_000]))
    def time_passes(self, passed_ms: int) -> None:
        self.room.clock.advance_ms(passed_ms)
        self.deliver()

    def deliver(self) -> None:
        self.room.deliver()
        self.delivered_ms = self.room.clock.now_ms()
        self.done()

    @rule()
    def flush(self) -> None:
        self.room.store.flush()

    @rule()
    def the_broker_dies(self) -> None:
        self.room.die()

    @rule()
    def the_power_goes(self) -> None:
        """What was not flushed is lost, and what had come of it comes again."""
        self.room.die(self.disk)
        end = int(self.room.store.log.end_offset)
        lost = [back for back in self.backs if back.log_offset >= end]
        assert not (self.is_sync and lost), "who was answered lost nothing"
        self.backs = [back for back in self.backs if back.log_offset < end]
        self.sent = {number: offset for number, offset in self.sent.items() if offset < end}
        self.is_cut = True
        self.deliver()

    # -- what must be so

    @invariant()
    @precondition(lambda self: hasattr(self, "room"))
    def all_are_where_they_belong(self) -> None:
        came = [
            back.copy
            for back in self.backs
            if back.due_ms is not None and back.due_ms <= self.delivered_ms
        ]
        dead = [back.copy for back in self.backs if back.due_ms is None]
        for topic, wanted in ((RETRY, Counter(came)), (DEAD, Counter(dead))):
            found = self.room.stored(topic)
            counts = Counter(map(Copy.of, found))
            assert counts == wanted or (
                self.is_cut
                and topic == RETRY
                and counts.keys() == wanted.keys()
                and counts >= wanted
            )
            for message in found:
                names = message.properties()
                assert (names["RETRY_TOPIC"], names["UNIQ_KEY"]) == ("T", f"U{int(message.body)}")
                assert int(names["ORIGIN_MESSAGE_ID"][16:], 16) == self.sent[int(message.body)]


RetriesMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestRetriesMachine = RetriesMachine.TestCase
