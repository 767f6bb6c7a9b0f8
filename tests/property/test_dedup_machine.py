"""Sends that come twice against a list of those that are stored: alone and in batches, at once and
later, also when the power goes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from orbitmq.message import batch, properties
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.testing.forgetful_disk import ForgetfulDisk
from orbitmq.testing.manual_clock import ManualClock
from support.broker.retries import RetriesRoom, retry_fields

WINDOW_MS = 10_000
KEYS_MAX = 6
KEYS = st.sampled_from([f"K{number}" for number in range(10)])
QUEUES = st.integers(0, 3)


class First(NamedTuple):
    """A message that is stored: when, and what its producer was told."""

    key: str
    stored_ms: int
    msg_id: str
    queue_id: int
    queue_offset: int

    @property
    def log_offset(self) -> int:
        return int(self.msg_id[16:], 16)


class DedupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="orbitmq-dedup-")
        root = Path(self.folder.name)
        self.disk = ForgetfulDisk(ManualClock(), root / "limbo")
        self.room = RetriesRoom(root, dedup=(WINDOW_MS, KEYS_MAX), layer=self.disk)
        self.firsts: list[First] = []  # in the order of the log

    def teardown(self) -> None:
        self.room.close()
        self.folder.cleanup()

    def known(self, key: str) -> First | None:
        """The message of a key that counts: one of the last few that are young enough, the older
        ones of its key apart.
        """
        now_ms = self.room.clock.now_ms()
        found = next((first for first in reversed(self.firsts) if first.key == key), None)
        if found is None or now_ms - found.stored_ms > WINDOW_MS:
            return None
        newer = {first.key for first in self.firsts[self.firsts.index(found) + 1 :]}
        return found if len(newer) < KEYS_MAX else None

    def ask(
        self, queue_id: int, body: bytes, names: dict[str, str], **changes: Any
    ) -> dict[str, str]:
        fields = retry_fields(names, topic="T", queueId=queue_id, reconsumeTimes=0, **changes)
        answer = self.room.begin(
            self.room.sends, RequestCode.SEND_MESSAGE, fields, body, version=513
        )
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert answer.ext_fields is not None
        return answer.ext_fields

    @rule(key=KEYS, queue_id=QUEUES, level=st.sampled_from([None, None, "1", "18"]))
    def send(self, key: str, queue_id: int, level: str | None) -> None:
        end = self.room.store.log.end_offset
        known = self.known(key)
        told = self.ask(
            queue_id, key.encode(), {"UNIQ_KEY": key, **({"DELAY": level} if level else {})}
        )
        answered = First(
            key,
            self.room.clock.now_ms(),
            told["msgId"],
            int(told["queueId"]),
            int(told["queueOffset"]),
        )
        assert told["transactionId"] == key
        if known is not None:
            assert answered._replace(stored_ms=known.stored_ms) == known
            assert self.room.store.log.end_offset == end, "it is not stored again"
        else:
            assert answered.log_offset >= end, (
                "it is new"
            )  # at the end, or where the next file begins
            assert answered.queue_id == queue_id
            self.firsts.append(answered)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=3, unique=True), queue_id=QUEUES)
    def send_batch(self, keys: list[str], queue_id: int) -> None:
        known = [self.known(key) for key in keys]
        items = [
            batch.BatchItem(0, key.encode(), properties.write({"UNIQ_KEY": key}).encode())
            for key in keys
        ]
        told = self.ask(queue_id, batch.encode(items), {}, batch="true")
        for key, first, msg_id in zip(keys, known, told["msgId"].split(","), strict=True):
            if first is not None:
                assert msg_id == first.msg_id
                continue
            stored = self.room.store.reads.message_at(int(msg_id[16:], 16))  # type: ignore[arg-type]
            assert stored is not None
            assert (stored.body, stored.queue_id) == (key.encode(), queue_id)
            self.firsts.append(
                First(key, stored.store_time_ms, msg_id, queue_id, stored.queue_offset)
            )

    @rule(key=KEYS)
    def what_is_sent_to_a_retry_topic_is_stored_each_time(self, key: str) -> None:
        end = self.room.store.log.end_offset
        fields = retry_fields({"UNIQ_KEY": key, "DELAY": "18"})
        self.room.begin(self.room.sends, RequestCode.SEND_MESSAGE, fields, b"again", version=513)
        self.room.loop.run()
        self.room.channel = self.room.peers.connect()
        assert self.room.store.log.end_offset > end

    @rule(passed_ms=st.sampled_from([1, 2000, WINDOW_MS // 2, WINDOW_MS + 1]))
    def time_passes(self, passed_ms: int) -> None:
        self.room.clock.advance_ms(passed_ms)
        self.room.deliver()

    @rule()
    def flush(self) -> None:
        self.room.store.flush()

    @rule()
    def the_broker_dies(self) -> None:
        self.room.die()

    @rule()
    def the_power_goes(self) -> None:
        """What was not flushed is lost, and may be sent again."""
        self.room.die(self.disk)
        end = self.room.store.log.end_offset
        self.firsts = [first for first in self.firsts if first.log_offset < end]


DedupMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestDedupMachine = DedupMachine.TestCase
