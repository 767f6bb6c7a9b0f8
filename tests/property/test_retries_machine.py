"""Messages that are sent back against lists: in any order they fail, wait, come again, are given up, and the broker dies in between."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.protocol.codes import ResponseCode
from retries_room import BACK, RetriesRoom, back_fields

LEVELS_S = (1, 2, 4, 8, 16)
TIMES_MAX = 16  # of a group, when the consumer does not say
RETRY, DEAD = "%RETRY%g", "%DLQ%g"


class Copy(NamedTuple):
    """A message at one of its attempts."""

    number: int
    times: int


class RetriesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="orbitmq-retries-")
        self.room = RetriesRoom(Path(self.folder.name), levels=" ".join(f"{seconds}s" for seconds in LEVELS_S))
        self.offsets: list[tuple[Copy, int]] = []  # what can be consumed, and where in the log it is
        self.sent = 0
        self.waiting: list[tuple[int, Copy]] = []  # by when it is due
        self.came: list[Copy] = []
        self.dead: list[Copy] = []

    def teardown(self) -> None:
        self.room.close()
        self.folder.cleanup()

    @rule()
    def send(self) -> None:
        appended = self.room.put(b"%d" % self.sent, UNIQ_KEY=f"U{self.sent}")
        self.offsets.append((Copy(self.sent, 0), appended.offset))
        self.sent += 1

    @precondition(lambda self: self.offsets)
    @rule(data=st.data(), level=st.sampled_from([0, 0, 1, 5, 9, -1]), times_max=st.sampled_from([None, None, 0, 1, 2]))
    def send_back(self, data: st.DataObject, level: int, times_max: int | None) -> None:
        copy, offset = data.draw(st.sampled_from(self.offsets))
        answer = self.room.begin(self.room.back, BACK, back_fields(offset, delayLevel=level, maxReconsumeTimes=times_max), version=513)
        if answer is not None:  # else it comes when a topic that is new is saved
            assert answer.code == ResponseCode.SUCCESS
        self.room.loop.run()
        self.room.channel = self.room.peers.connect()
        next_one = Copy(copy.number, copy.times + 1)
        if level < 0 or copy.times >= (TIMES_MAX if times_max is None else times_max):
            self.dead.append(next_one)
        else:
            wait_s = LEVELS_S[min(level or 3 + copy.times, len(LEVELS_S)) - 1]
            self.waiting.append((self.room.clock.now_ms() + wait_s * 1000, next_one))

    @rule(passed_ms=st.sampled_from([1, 999, 1000, 5000, 20_000]))
    def time_passes(self, passed_ms: int) -> None:
        self.room.clock.advance_ms(passed_ms)
        self.room.deliver()
        now_ms = self.room.clock.now_ms()
        self.came += [copy for due_ms, copy in self.waiting if due_ms <= now_ms]
        self.waiting = [each for each in self.waiting if each[0] > now_ms]
        known = {offset for _, offset in self.offsets}
        for message in self.room.stored(RETRY):
            if message.log_offset not in known:
                self.offsets.append((Copy(int(message.body), message.reconsume_times), message.log_offset))

    @rule()
    def the_broker_dies(self) -> None:
        self.room.die()

    @invariant()
    def all_are_where_they_belong(self) -> None:
        for topic, wanted in ((RETRY, self.came), (DEAD, self.dead)):
            found = self.room.stored(topic)
            assert sorted(Copy(int(message.body), message.reconsume_times) for message in found) == sorted(wanted)
            for message in found:
                names = message.properties()
                assert (names["RETRY_TOPIC"], names["UNIQ_KEY"]) == ("T", f"U{int(message.body)}")
                origin = next(offset for copy, offset in self.offsets if copy == Copy(int(message.body), 0))
                assert int(names["ORIGIN_MESSAGE_ID"][16:], 16) == origin


RetriesMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestRetriesMachine = RetriesMachine.TestCase
