"""Reads: messages of a queue from an offset on, one by its place in the log, some by a key, and which offset a time has.

Knows log, queues and index, and nothing of who asks or waits. What a read gives is a copy of its own, so nobody holds a file. The limits
and what is answered at the edges are those of the original, with three differences: a read goes on over the end of a queue's file; a record
that is no good is stepped over, and goes to the quarantine; so is a filler, which stands for a record that was lost.

Invariants: `next_offset` is behind everything that was looked at, so whoever follows it gets each message that passes his filter once, in
order, and comes to the end. Only the `OFFSET_FOUND_NULL` of a batch queue stays where it is. Thread rule: the loop thread; a filter may
not read itself.
"""

from __future__ import annotations

import errno
import logging
from enum import Enum
from typing import NamedTuple, Protocol

from orbitmq.common.errors import StoreError, reason_of
from orbitmq.common.mem import signed32
from orbitmq.message.layout import Flaw
from orbitmq.message.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQUE_KEY
from orbitmq.message.record import decode_all, flaw_text
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.batch_consume_queue import BatchConsumeQueue
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import ENTRY_SIZE, Boundary, ConsumeQueue
from orbitmq.store.consume_queue_ext import ExtUnit
from orbitmq.store.index import Index, tags_key
from orbitmq.store.pull_gather import PullGather
from orbitmq.store.quarantine import BadBytes, Quarantine
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs

BYTES_MAX = 128 << 20  # whatever is asked for
_SCAN_COUNT_MAX = 8_192  # entries that a read looks at because so many messages are asked for
_ENTRIES_FILTERED_MIN = 64  # how many are read at first when a filter may leave few of them
_QUERY_ROUNDS = 3
_FOREVER_MS = (1 << 63) - 1
_FILE_LOST = (errno.ENOENT, errno.EIO)  # of a queue's file: asking again does not help

log = logging.getLogger(__name__)


class GetStatus(Enum):
    """What came of asking for messages of a queue."""

    FOUND = "found"
    NO_MATCHED_MESSAGE = "no message passed the filter"
    NO_MESSAGE_IN_QUEUE = "the queue is empty"
    NO_MATCHED_LOGIC_QUEUE = "there is no such queue"
    MESSAGE_WAS_REMOVING = "the messages were deleted"
    OFFSET_FOUND_NULL = "the queue has no entries to read there"
    OFFSET_TOO_SMALL = "the offset is before the first message"
    OFFSET_OVERFLOW_ONE = "the offset is that of the next message"
    OFFSET_OVERFLOW_BADLY = "the offset is behind that of the next message"


class GetResult(NamedTuple):
    """Messages of a queue, as their records one after the other; where to go on, and what the queue holds."""

    status: GetStatus
    next_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    records: bytes | bytearray = b""
    record_count: int = 0
    message_count: int = 0  # with those inside of batches
    suggest_slave: bool = False  # what was read is so far behind that it will come from the disk: let a replica do it
    behind_bytes: int = 0  # from the last entry that was looked at to the end of the log
    last_store_time_ms: int = 0  # when the last of the records was stored


class QueryResult(NamedTuple):
    """Records that have a key, one after the other, and up to which record the index knows."""

    records: bytes
    record_count: int
    last_time_ms: StoreTimeMs
    last_offset: LogOffset


class MessageFilter(Protocol):
    """Which messages a reader wants: asked in this order, and no more once one says no."""

    @property
    def tags_codes(self) -> frozenset[int] | None:
        """The codes of the tags that are wanted, of which 32 bits count; None: all. A code that is lost passes."""

    @property
    def passes_bare_entries(self) -> bool:
        """Whether every entry without a unit may be wanted: then it is not asked about those."""

    @property
    def record_cost(self) -> int:
        """How many steps `matches_record` takes at most; each may look at all properties of the record."""

    def matches_entry(self, tags_code: int | None, unit: ExtUnit | None) -> bool:
        """Whether the message of a queue entry may be wanted; None for a code that is lost, `unit` when the entry has one."""

    def matches_record(self, record: RecordCursor) -> bool:
        """Whether the message that the cursor stands on is wanted; the cursor is not to be moved, or kept."""


class TagsFilter(NamedTuple):
    """Messages by the codes of their tags alone: two tags may have one code, so who gets them compares the tags."""

    tags_codes: frozenset[int] | None
    passes_bare_entries: bool = True
    record_cost: int = 1

    def matches_entry(self, tags_code: int | None, unit: ExtUnit | None) -> bool:
        return True

    def matches_record(self, record: RecordCursor) -> bool:
        return True


class Reads:
    """The ways to read a store."""

    def __init__(
        self, log: CommitLog, queues: Queues, index: Index | None, config: StoreConfig, quarantine: Quarantine, *, memory_size: int
    ) -> None:
        self.is_behind = False  # queues are not rebuilt up to the end of the log: an offset behind theirs may be right
        self.corrects_offsets = True  # a slave with offsetCheckInSlave off leaves an offset that is not there as it was asked for
        self._log = log
        self._queues = queues
        self._index = index
        self._quarantine = quarantine
        self._check_record = config.record_crc_required
        self._memory_size = memory_size
        self.follow(config)

    def follow(self, config: StoreConfig) -> None:
        """Take over the limits of reads, which may change while the store is open."""
        self._filter_size_max = config.filter_entries_max * ENTRY_SIZE
        self._count_max = max(config.hot_count_max, config.cold_count_max, 1)
        self._hot_distance = self._memory_size * config.memory_percent_max // 100
        self._gather = PullGather(
            self._log.files.find,
            file_size=self._log.files.file_size,
            hot_distance=self._hot_distance,
            hot_bytes_max=config.hot_bytes_max,
            hot_count_max=config.hot_count_max,
            cold_bytes_max=config.cold_bytes_max,
            cold_count_max=config.cold_count_max,
            check_body=config.check_body_on_read,
            check_record=config.record_crc_required,
        )

    # -- by queue offset

    def get(
        self, queue: QueueKey, offset: QueueOffset, *, count_max: int, bytes_max: int = BYTES_MAX, wanted: MessageFilter | None = None
    ) -> GetResult:
        """Messages from `offset` on: at least one if there is any that is wanted and in reach, then as long as there is room.

        StoreError when the queue's files cannot be read now, OSError when those of the log or of the units cannot.
        """
        found = self._find(queue)
        if self.is_behind and (found is None or offset > found.max_offset):
            end = QueueOffset(0) if found is None else found.max_offset
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, QueueOffset(0), end)
        if found is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, self._corrected(offset, 0), QueueOffset(0), QueueOffset(0))
        try:
            low, high = found.min_offset, found.max_offset
        except OSError as error:  # of a batch queue, which looks for them in its files
            _tell_lost(error, found, offset)
            return GetResult(GetStatus.OFFSET_FOUND_NULL, offset, QueueOffset(0), QueueOffset(0))
        if low <= offset < high:
            return self._gathered(found, offset, low, high, max(count_max, 1), bytes_max, wanted)
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, self._corrected(offset, 0), low, high)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, self._corrected(offset, low), low, high)
        status = GetStatus.OFFSET_OVERFLOW_ONE if offset == high else GetStatus.OFFSET_OVERFLOW_BADLY
        return GetResult(status, self._corrected(offset, high), low, high)

    def _gathered(
        self,
        queue: ConsumeQueue | BatchConsumeQueue,
        offset: QueueOffset,
        low: QueueOffset,
        high: QueueOffset,
        count_max: int,
        bytes_max: int,
        wanted: MessageFilter | None,
    ) -> GetResult:
        gather, log_end = self._gather, self._log.end_offset
        count_max = min(count_max, _SCAN_COUNT_MAX)
        scan_size_max = max(self._filter_size_max, count_max * queue.ENTRY_SIZE)
        gather.begin(
            queue.ENTRY_SIZE,
            offset,
            count_max,
            min(bytes_max, BYTES_MAX),
            scan_size_max,
            log_end,
            None if wanted is None else wanted.tags_codes,
            None if isinstance(wanted, TagsFilter) else wanted,
            queue.ext_unit if isinstance(queue, ConsumeQueue) else None,
        )
        count = min(count_max, self._count_max) if wanted is None else _ENTRIES_FILTERED_MIN
        first = QueueOffset(-1)
        try:  # a part without any entry, as of a file that is gone, moves nothing, and ends it
            while first < gather.next_offset < high:
                first = QueueOffset(gather.next_offset)
                if not gather.more(_entries(queue, first, count), first):
                    break
                count = min(4 * count, scan_size_max // ENTRY_SIZE)
        finally:
            records = gather.end()
            for at, size in gather.bad:
                self._suspect(LogOffset(at), size)
        if gather.next_offset == offset:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, self._behind_file(queue, offset, high), low, high)
        if gather.record_count:
            status = GetStatus.FOUND
        else:
            status = GetStatus.MESSAGE_WAS_REMOVING if gather.is_gone else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(
            status,
            QueueOffset(gather.next_offset),
            low,
            high,
            records,
            gather.record_count,
            gather.message_count,
            log_end - gather.last_log_offset > self._hot_distance,
            log_end - gather.last_log_offset,
            gather.last_store_time_ms,
        )

    # -- by place in the log

    def record_at(self, offset: LogOffset) -> bytes | None:
        """The record that begins at a log offset; None when none does, or it is damaged."""
        record = self._good_at(offset)
        return None if record is None else bytes(record.buffer)

    def message_at(self, offset: LogOffset) -> StoredMessage | None:
        """The message whose record begins at a log offset; None when none does, or it is damaged."""
        record = self._good_at(offset)
        return None if record is None else record.message()

    def record_of(self, queue: QueueKey, offset: QueueOffset) -> bytes | None:
        """The record of one message of a queue; None when it is not there, or damaged."""
        found = self._find(queue)
        entry = None if found is None else found.get(offset)
        return None if entry is None else self.record_at(entry.log_offset)

    def _good_at(self, offset: LogOffset) -> RecordCursor | None:
        """A cursor on the record, which is all of its buffer. It holds the file as long as it is there: let it go soon."""
        head = self._log.read(offset, 4)
        size = signed32(head, 0) if head is not None else 0
        content = self._log.read(offset, size) if size > 0 else None
        if content is None:
            return None
        record = RecordCursor()
        result = record.read(content, 0, size, True, self._check_record)
        if result in (Flaw.BODY_CRC, Flaw.RECORD_CRC) and record.read(content, 0, size, False) == size and record.log_offset == offset:
            self._suspect(offset, size)  # of an offset that anybody may make up, nothing less is to be believed
            return None
        return record if result == size and record.log_offset == offset else None

    # -- by key

    def query(
        self, topic: str, key: str, *, count_max: int = 64, begin_ms: int = 0, end_ms: int = _FOREVER_MS, by_tags: bool = False
    ) -> list[StoredMessage]:
        """The messages of a topic that have a key, the unique key or, if asked so, these tags; the oldest first."""
        return list(
            decode_all(self.query_records(topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms, by_tags=by_tags).records)
        )

    def query_records(
        self, topic: str, key: str, *, count_max: int = 64, begin_ms: int = 0, end_ms: int = _FOREVER_MS, by_tags: bool = False
    ) -> QueryResult:
        """The same as their records, of the `count_max` newest that the index has for the key's hash and the time.

        When none of those has the key, older ones are looked at, twice.
        """
        found: list[bytes] = []
        last_time_ms, last_offset = StoreTimeMs(0), LogOffset(0)
        for _ in range(_QUERY_ROUNDS):
            if self._index is None:
                break
            hits = self._index.query(topic, tags_key(key) if by_tags else key, count_max, begin_ms, end_ms)
            if not hits.offsets:
                break
            last_time_ms, last_offset = hits.last_time_ms, hits.last_offset
            times = []
            for record in map(self._good_at, sorted(hits.offsets)):
                if record is not None:
                    times.append(record.store_time_ms)
                    if _has_key(record.message(), topic, key, by_tags):
                        found.append(bytes(record.buffer))
            if found or not times or times[0] >= end_ms:
                break
            end_ms = times[0]
        return QueryResult(b"".join(found), len(found), last_time_ms, last_offset)

    # -- by time

    def offset_by_time(self, queue: QueueKey, time_ms: StoreTimeMs, boundary: Boundary = Boundary.LOWER) -> QueueOffset:
        """The queue offset at a store time, 0 for a queue that is not there."""
        found = self._find(queue)
        if found is None:
            return QueueOffset(0)
        if isinstance(found, BatchConsumeQueue):
            return found.offset_by_time(time_ms, boundary)
        return found.offset_by_time(time_ms, boundary, self._store_time, self._log.min_offset)

    def earliest_time(self, queue: QueueKey) -> int:
        """The store time of the first message of a queue, -1 when there is none."""
        found = self._find(queue)
        return -1 if found is None else self.store_time_of(queue, found.min_offset)

    def store_time_of(self, queue: QueueKey, offset: QueueOffset) -> int:
        """The store time of a message, that of its batch if it is in one; -1 when it is not there."""
        found = self._find(queue)
        entry = None if found is None else found.get(offset)
        return -1 if entry is None else self._store_time(entry.log_offset, entry.size)

    def first_time(self) -> int:
        """The store time of the first record of the log, -1 when there is none."""
        head = self._log.read(self._log.min_offset, 4)
        return -1 if head is None else self._store_time(self._log.min_offset, signed32(head, 0))

    def _store_time(self, offset: LogOffset, size: int) -> int:
        content = self._log.read(offset, size)
        record = RecordCursor()
        return record.store_time_ms if content is not None and record.read(content, 0, size, False) == size else -1

    # -- shared

    def _find(self, queue: QueueKey) -> ConsumeQueue | BatchConsumeQueue | None:
        return self._queues.plain.find(*queue) or self._queues.batch.find(*queue)

    def _corrected(self, offset: QueueOffset, right: int) -> QueueOffset:
        return QueueOffset(right) if self.corrects_offsets else offset

    def _behind_file(self, queue: ConsumeQueue | BatchConsumeQueue, offset: QueueOffset, high: QueueOffset) -> QueueOffset:
        """The first offset of the next file of a queue; which that is in a batch queue nobody knows without this one."""
        if isinstance(queue, BatchConsumeQueue):
            return offset
        in_file = queue.files.file_size // ENTRY_SIZE
        return self._corrected(offset, min(offset - offset % in_file + in_file, high))

    def _suspect(self, offset: LogOffset, size: int) -> None:
        """Put what should be a record of that size into the quarantine, and say what is wrong with it."""
        if size <= 0:  # the entry is damaged, which says nothing of the log
            log.error("queue_entry_damaged log_offset=%d size=%d", offset, size)
            return
        content = self._log.read(offset, size)
        record = RecordCursor()
        if content is None:
            reason = f"a queue has an entry for a record of {size} bytes here, and the file ends before"
        elif (result := record.read(content, 0, size, True, self._check_record)) <= 0:
            reason = flaw_text(result)
        elif result != size:
            reason = f"a queue has an entry for a record of {size} bytes here, and it says that it has {result}"
        else:
            reason = f"the record says that it is at {record.log_offset}"
        self._quarantine.add(BadBytes(offset, LogOffset(offset + size), reason))


def _entries(queue: ConsumeQueue | BatchConsumeQueue, offset: QueueOffset, count: int) -> bytes:
    """Entries from `offset` on, of one file as far as it is known which; none when its file is gone."""
    if isinstance(queue, ConsumeQueue):
        in_file = queue.files.file_size // ENTRY_SIZE
        count = min(count, in_file - offset % in_file)
    else:
        count += 1  # the first may be of messages before, if those of the offset were lost
    try:
        return queue.entries(offset, count)
    except OSError as error:
        _tell_lost(error, queue, offset)
        return b""


def _tell_lost(error: OSError, queue: ConsumeQueue | BatchConsumeQueue, offset: QueueOffset) -> None:
    """Log that a file of a queue is gone; StoreError for any other reason why it could not be read."""
    if error.errno not in _FILE_LOST:
        raise StoreError(f"queue {queue.files.folder} could not be read at {offset}: {reason_of(error)}; ask again later") from error
    log.error("queue_unreadable folder=%s offset=%d error=%s", queue.files.folder, offset, error)


def _has_key(message: StoredMessage, topic: str, key: str, by_tags: bool) -> bool:
    """Whether a message that the index found by a hash is of the topic and really has the key."""
    properties = message.properties()
    if message.topic != topic:
        return False
    if by_tags:
        return key == properties.get(TAGS)
    return key == properties.get(UNIQUE_KEY) or key in (properties.get(KEYS) or "").split(KEY_SEPARATOR)
