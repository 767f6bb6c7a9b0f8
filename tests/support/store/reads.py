"""What the tests of reads share: a small store of log, queues and index without its start and stop,
and a way to damage it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orbitmq.message import batch, hosts, properties
from orbitmq.message.batch import BatchItem
from orbitmq.message.record import RecordLimits, decode_all
from orbitmq.message.record_write import MessageRecord
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.index import Index
from orbitmq.store.index_file import IndexShape
from orbitmq.store.log_batch import Appended
from orbitmq.store.quarantine import Quarantine
from orbitmq.store.queue_offsets import QueueOffsets
from orbitmq.store.queues import Queues
from orbitmq.store.reads import GetResult, Reads
from orbitmq.store.types import LogOffset, QueueKey, StoreTimeMs
from orbitmq.testing.manual_clock import ManualClock
from support.store.indexes import UnsyncedLayer

HOST = hosts.pack("192.0.2.1", 10911)
QUEUE = QueueKey("orders", 1)
BATCHES = QueueKey("batches", 0)
MEMORY_SIZE = 1 << 40
BODY_AT = 88  # in a record whose hosts are IPv4


class ReadsRoom:
    """The parts of a store that reads work on."""

    def __init__(self, root: Path, *, memory_size: int = MEMORY_SIZE, **settings: Any) -> None:
        limits = RecordLimits(body_size_max=1 << 20)
        self.config = replace(
            StoreConfig(
                root=root,
                commit_log_file_size=1 << 20,
                queue_file_size=2000,
                limits=limits,
                index_shape=IndexShape(50, 2000),
            ),
            **settings,
        )
        config, layer = self.config, UnsyncedLayer()
        self.clock = ManualClock()
        self.quarantine = Quarantine()
        self.log = CommitLog(layer, config, HOST, QueueOffsets())
        self.log.load()
        self.log.resume(LogOffset(0), StoreTimeMs(0))
        self.queues = Queues(
            layer,
            root,
            file_size=config.queue_file_size,
            ext_file_size=config.queue_ext_file_size,
            batch_file_size=config.batch_queue_file_size,
        )
        self.index = Index(layer, root / "index", self.clock, config.index_shape)
        self.dispatcher = Dispatcher(
            self.log,
            self.queues,
            self.index,
            self.quarantine,
            delay_levels_ms=config.delay_levels_ms,
        )
        self.reads = Reads(
            self.log, self.queues, self.index, config, self.quarantine, memory_size=memory_size
        )

    def put(self, body: bytes = b"hello", queue: QueueKey = QUEUE, **names: str) -> Appended:
        """One message with these properties, dispatched."""
        return self._store(self._message(body, queue, names))

    def put_batch(self, bodies: list[bytes], queue: QueueKey = BATCHES, **names: str) -> Appended:
        """One record that holds a message for each body, dispatched."""
        message = self._message(
            batch.encode(BatchItem(0, body, b"") for body in bodies), queue, names
        )
        batch.make_inner(message)
        return self._store(message)

    def damage(self, offset: int, content: bytes) -> None:
        """Write into the log behind everybody's back."""
        self.log.files.write(offset, content)

    def close(self) -> None:
        self.queues.close()
        self.index.close()
        self.log.close()

    def _message(self, body: bytes, queue: QueueKey, names: dict[str, str]) -> MessageRecord:
        return MessageRecord(
            queue.topic.encode(),
            body,
            born_host=HOST,
            born_time_ms=self.clock.now_ms(),
            queue_id=queue.queue_id,
            properties=properties.encode(names),
        )

    def _store(self, message: MessageRecord) -> Appended:
        appended = self.log.append(message, self.clock.now_ms())
        self.log.commit()
        self.dispatcher.advance()
        return appended


def bodies(result: GetResult) -> list[bytes]:
    """The bodies of the records that were read, after a look at the counts."""
    found = [message.body for message in decode_all(bytes(result.records))]
    assert len(found) == result.record_count
    return found


def numbered(count: int, size: int = 10) -> list[bytes]:
    """As many different bodies of that size."""
    return [b"%0*d" % (size, number) for number in range(count)]
