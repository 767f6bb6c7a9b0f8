"""A whole store against a model of plain lists: messages put, read, queried; stopped, killed and
opened again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.message import properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import Boundary
from orbitmq.store.index_file import IndexShape
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reads import GetStatus
from orbitmq.store.types import QueueKey, QueueOffset, StoreTimeMs
from orbitmq.testing.manual_clock import ManualClock
from support.common.process_files import ProcessFiles

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
QUEUES = [QueueKey(topic, number) for topic in ("a", "orders") for number in (0, 1)]


class MessageStoreMachine(RuleBasedStateMachine):
    """Files of a few records, so that everything rolls all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="orbitmq-store-")
        self.clock = ManualClock()
        self.model: dict[QueueKey, list[tuple[bytes, str, int]]] = {queue: [] for queue in QUEUES}

    @initialize()
    def open(self) -> None:
        config = StoreConfig(
            root=Path(self.folder.name),
            commit_log_file_size=2048,
            queue_file_size=100,
            index_shape=IndexShape(slots=5, entries=12),
        )
        self.store = MessageStore(ProcessFiles(), self.clock, config, HOST)
        self.store.open()

    @rule(
        queue=st.sampled_from(QUEUES),
        body=st.binary(max_size=300),
        key=st.sampled_from(["k1", "k2", "k3"]),
    )
    def put(self, queue: QueueKey, body: bytes, key: str) -> None:
        message = MessageRecord(
            queue.topic.encode(),
            body,
            born_host=HOST,
            born_time_ms=self.clock.now_ms(),
            queue_id=queue.queue_id,
            properties=properties.write({properties.KEYS: key, properties.TAGS: key}).encode(),
        )
        appended = self.store.put(message)
        assert appended.queue_offset == len(self.model[queue])
        self.model[queue].append((body, key, self.clock.now_ms()))

    @rule(milliseconds=st.integers(0, 5000))
    def wait(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)

    @rule()
    def stop_and_open(self) -> None:
        self.store.close()
        self.open()

    @rule()
    def kill_and_open(self) -> None:
        self.store._lock.release()  # as the system does for a process that is no more
        self.open()

    @rule(queue=st.sampled_from(QUEUES), key=st.sampled_from(["k1", "k2", "none"]))
    def query(self, queue: QueueKey, key: str) -> None:
        expected = sorted(
            (message.queue_id, offset)
            for message in QUEUES
            if message.topic == queue.topic
            for offset, (_, with_key, _) in enumerate(self.model[message])
            if with_key == key
        )
        found = self.store.reads.query(queue.topic, key, count_max=1000)
        assert sorted((message.queue_id, message.queue_offset) for message in found) == expected

    @rule(queue=st.sampled_from(QUEUES), data=st.data())
    def find_by_time(self, queue: QueueKey, data: st.DataObject) -> None:
        times = [time for _, _, time in self.model[queue]]
        if times:
            asked = data.draw(st.sampled_from(times))
            assert self.store.reads.offset_by_time(
                queue, StoreTimeMs(asked), Boundary.LOWER
            ) == times.index(asked)

    @invariant()
    def everything_can_be_read(self) -> None:
        if not hasattr(self, "store"):
            return
        cursor = RecordCursor()
        for queue, expected in self.model.items():
            offset = QueueOffset(0)
            while offset < len(expected):
                result = self.store.reads.get(queue, offset, count_max=4)
                assert (result.status, result.min_offset, result.max_offset) == (
                    GetStatus.FOUND,
                    0,
                    len(expected),
                )
                at = 0
                while at < len(result.records):
                    at += cursor.read(result.records, at, len(result.records))
                    assert (cursor.body(), cursor.queue_offset) == (expected[offset][0], offset)
                    offset = QueueOffset(offset + 1)
                assert offset == result.next_offset
            if expected:
                assert (
                    self.store.reads.get(queue, offset, count_max=1).status
                    is GetStatus.OFFSET_OVERFLOW_ONE
                )

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        self.folder.cleanup()


TestMessageStoreMachine = MessageStoreMachine.TestCase
TestMessageStoreMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
