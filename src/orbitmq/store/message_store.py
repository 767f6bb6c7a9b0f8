"""The message store: builds log, queues, index and checkpoint, opens and closes them in order, and answers what brokers ask.

Thread rule: one thread. Crash rule: `abort` is there while the store is open; a store that was not closed is recovered by the next `open`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from orbitmq.common.clock import Clock
from orbitmq.common.mem import signed32, signed64
from orbitmq.message.properties import KEYS, UNIQUE_KEY
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import Message
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import ENTRY_SIZE, Boundary
from orbitmq.store.dispatch import Dispatcher, Listener
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.index import Index
from orbitmq.store.log_batch import Appended
from orbitmq.store.queue_offsets import QueueOffsets
from orbitmq.store.queues import Queues
from orbitmq.store.recovery import Progress, Recovered, Recovery
from orbitmq.store.store_lock import AbortMark, StoreLock
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs

TagsFilter = Callable[[int], bool]


class GetStatus(Enum):
    """What came of asking for messages of a queue."""

    FOUND = "found"
    NO_MATCHED_MESSAGE = "no message passed the filter"
    NO_MESSAGE_IN_QUEUE = "the queue is empty"
    NO_MATCHED_LOGIC_QUEUE = "there is no such queue"
    MESSAGE_WAS_REMOVING = "the messages were deleted"
    OFFSET_TOO_SMALL = "the offset is before the first message"
    OFFSET_OVERFLOW_ONE = "the offset is that of the next message"
    OFFSET_OVERFLOW_BADLY = "the offset is behind that of the next message"


class GetResult(NamedTuple):
    """Messages of a queue, as their records one after the other; where to go on, and what the queue holds."""

    status: GetStatus
    next_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    records: bytes = b""
    record_count: int = 0


class MessageStore:
    """One store folder."""

    def __init__(self, layer: FileLayer, clock: Clock, config: StoreConfig, store_host: bytes, listeners: Sequence[Listener] = ()) -> None:
        self.config = config
        self._clock = clock
        self._lock = StoreLock(layer, config.root)
        self._abort = AbortMark(layer, config.root)
        self.checkpoint = Checkpoint(layer, config.root / "checkpoint")
        self.log = CommitLog(layer, config, store_host, QueueOffsets())
        self.queues = Queues(
            layer,
            config.root,
            file_size=config.queue_file_size,
            ext_file_size=config.queue_ext_file_size,
            batch_file_size=config.batch_queue_file_size,
        )
        self.index = Index(layer, config.root / "index", clock, config.index_shape) if config.index_enabled else None
        self.dispatcher = Dispatcher(self.log, self.queues, self.index, delay_levels_ms=config.delay_levels_ms, listeners=listeners)

    # -- life

    def open(self, progress: Progress | None = None) -> Recovered:
        """Lock the folder, load and recover; nothing is left locked when that fails."""
        self._lock.acquire()
        try:
            clean = not self._abort.is_set()
            self.log.load()
            self.queues.load()
            self.checkpoint.load()
            if self.index is not None:
                self.index.load(None if clean else StoreTimeMs(self.checkpoint.index_time_ms))
            recovery = Recovery(
                self.log, self.queues, self.index, self.checkpoint, self.dispatcher, truncate_damage=self.config.truncate_damage
            )
            recovered = recovery.run(clean=clean, progress=progress)
            self._abort.set()
        except BaseException:
            self._lock.release()
            raise
        return recovered

    def close(self) -> None:
        """Bring everything to disk, say that it is there, and give the folder free."""
        self.log.discard()
        self.dispatcher.advance()
        self.log.flush()
        self.queues.files.flush()
        if self.index is not None:
            self.index.stop()
        checkpoint = self.checkpoint
        checkpoint.log_time_ms = checkpoint.queues_time_ms = self.log.last_store_time_ms
        checkpoint.index_time_ms = max(checkpoint.index_time_ms, self.log.last_store_time_ms)
        checkpoint.queues_offset = checkpoint.confirmed_offset = self.log.end_offset
        checkpoint.flush()
        checkpoint.close()
        self.queues.close()
        self.log.close()
        self._abort.clear()
        self._lock.release()

    # -- messages in

    def put(self, message: Message) -> Appended:
        """Store one message: it can be read when this returns, and is as safe as the next flush."""
        appended = self.log.append(message, self._clock.now_ms())
        self.commit()
        return appended

    def commit(self) -> None:
        """Write what was appended to the log, then to queues and index."""
        self.log.commit()
        self.dispatcher.advance()

    # -- messages out

    def get(
        self, queue: QueueKey, offset: QueueOffset, *, count_max: int, bytes_max: int = 262_144, matches: TagsFilter | None = None
    ) -> GetResult:
        """Messages from `offset` on: at least one if there is any, then as long as there is room."""
        found = self.queues.plain.find(*queue)
        if found is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, QueueOffset(0), QueueOffset(0), QueueOffset(0))
        low, high = found.min_offset, found.max_offset
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, QueueOffset(0), low, high)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset >= high:
            status = GetStatus.OFFSET_OVERFLOW_ONE if offset == high else GetStatus.OFFSET_OVERFLOW_BADLY
            return GetResult(status, offset if offset == high else high, low, high)
        entries = found.entries(offset, max(self.config.filter_entries_max, count_max))
        records: list[memoryview] = []
        size, next_offset, removed = 0, offset, False
        for at in range(0, len(entries), ENTRY_SIZE):
            length = signed32(entries, at + 8)
            if records and (len(records) >= count_max or size + length > bytes_max):
                break
            next_offset = QueueOffset(offset + at // ENTRY_SIZE + 1)
            if matches is not None and not matches(signed64(entries, at + 12)):
                continue
            record = self.log.read(LogOffset(signed64(entries, at)), length)
            if record is None:
                removed = True
                continue
            records.append(record)
            size += length
        if records:
            return GetResult(GetStatus.FOUND, next_offset, low, high, b"".join(records), len(records))
        return GetResult(GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE, next_offset, low, high)

    def message_at(self, offset: LogOffset) -> StoredMessage | None:
        """The message whose record begins at a log offset; None when none does, or it is damaged."""
        head = self.log.read(offset, 4)
        size = signed32(head, 0) if head is not None else 0
        content = self.log.read(offset, size) if size > 0 else None
        cursor = RecordCursor()
        if content is None or cursor.read(content, 0, size) != size or cursor.log_offset != offset:
            return None
        return cursor.message()

    def query(self, topic: str, key: str, *, count_max: int = 64, begin_ms: int = 0, end_ms: int = (1 << 63) - 1) -> list[StoredMessage]:
        """The messages of a topic that have a key, or the unique key, the oldest first."""
        if self.index is None:
            return []
        hits = self.index.query(topic, key, count_max, begin_ms, end_ms)
        found = [self.message_at(offset) for offset in sorted(hits.offsets)]
        return [message for message in found if message is not None and message.topic == topic and _has_key(message, key)]

    def offset_by_time(self, queue: QueueKey, time_ms: StoreTimeMs, boundary: Boundary = Boundary.LOWER) -> QueueOffset:
        """The queue offset at a store time, 0 for a queue that is not there."""
        found = self.queues.plain.find(*queue)
        return QueueOffset(0) if found is None else found.offset_by_time(time_ms, boundary, self._store_time, self.log.min_offset)

    def _store_time(self, offset: LogOffset, size: int) -> int:
        content = self.log.read(offset, size)
        cursor = RecordCursor()
        return cursor.store_time_ms if content is not None and cursor.read(content, 0, size, False) == size else -1


def _has_key(message: StoredMessage, key: str) -> bool:
    """Whether a message that the index found by a hash really has the key."""
    properties = message.properties()
    return key == properties.get(UNIQUE_KEY) or key in (properties.get(KEYS) or "").split(" ")
