"""Reads: messages of a queue by offset, one by its log offset, some by key, and the offset at a
time.

Knows log, queues and index, and nothing of callers or pending pulls. Results are copies, so no file
is pinned. Limits and results at the edges are Apache's, with three differences: a read continues
over the end of a queue's file; a corrupt record is skipped and quarantined; so is a filler, which
stands for a lost record.

Invariants: `next_offset` is after everything examined, so a reader that follows it gets each
matching message once, in order, and reaches the end. Only the `OFFSET_FOUND_NULL` of a batch queue
stays where it is. Thread rule: the loop thread; a filter must not read from the store.
"""

from __future__ import annotations

import errno
import logging
from enum import Enum
from typing import NamedTuple, Protocol

from orbitmq.common.errors import StoreError, reason_of
from orbitmq.common.mem import signed32
from orbitmq.common.slices import Slices, finish
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
from orbitmq.store.quarantine import BadBytes, Quarantine
from orbitmq.store.queues import Queues
from orbitmq.store.record_collector import RecordCollector
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs

BYTES_MAX = 128 << 20  # regardless of the request
_SCAN_COUNT_MAX = 8_192  # entries examined at most for a request's count
_ENTRIES_FILTERED_MIN = 64  # entries read at first with a filter
_QUERY_ROUNDS = 3
_FOREVER_MS = (1 << 63) - 1
_FILE_LOST = (errno.ENOENT, errno.EIO)  # of a queue's file: a retry does not help

log = logging.getLogger(__name__)


class GetStatus(Enum):
    """The result of reading messages of a queue."""

    FOUND = "found"
    NO_MATCHED_MESSAGE = "no message passed the filter"
    NO_MESSAGE_IN_QUEUE = "the queue is empty"
    NO_MATCHED_LOGIC_QUEUE = "there is no such queue"
    MESSAGE_WAS_REMOVING = "the messages were deleted"
    OFFSET_FOUND_NULL = "the queue has no entries to read there"
    OFFSET_TOO_SMALL = "the offset is before the first message"
    OFFSET_OVERFLOW_ONE = "the offset is that of the next message"
    OFFSET_OVERFLOW_BADLY = "the offset is beyond that of the next message"


class GetResult(NamedTuple):
    """Contiguous records of a queue, where to continue, and the queue's range."""

    status: GetStatus
    next_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    records: bytes | bytearray = b""
    record_count: int = 0
    message_count: int = 0  # including those inside batches
    # The records are so far from the log's end that a read hits the disk: use a replica.
    suggest_slave: bool = False
    behind_bytes: int = 0  # from the last entry examined to the end of the log
    last_store_time_ms: int = 0  # when the last of the records was stored


class QueryResult(NamedTuple):
    """Contiguous records that have a key, and how far the index reaches."""

    records: bytes
    record_count: int
    last_time_ms: StoreTimeMs
    last_offset: LogOffset


class MessageFilter(Protocol):
    """Which messages a reader wants; called in this order, until one says no."""

    @property
    def tags_codes(self) -> frozenset[int] | None:
        """The wanted tags codes, of which 32 bits count; None: all. A lost code passes."""

    @property
    def passes_bare_entries(self) -> bool:
        """Whether every entry without an ext unit may match: then `matches_entry` is not called for
        those.
        """

    @property
    def record_cost(self) -> int:
        """Steps that `matches_record` takes at most; each may examine all the record's
        properties.
        """

    def matches_entry(self, tags_code: int | None, unit: ExtUnit | None) -> bool:
        """Whether the message of a queue entry may match; `tags_code` is None if lost, `unit` the
        ext unit if the entry has one.
        """

    def matches_record(self, record: RecordCursor) -> bool:
        """Whether the message at the cursor matches; the cursor must be neither moved nor kept."""


class TagsFilter(NamedTuple):
    """Filters by tags codes alone: different tags may share a code, so the receiver compares the
    tags.
    """

    tags_codes: frozenset[int] | None
    passes_bare_entries: bool = True
    record_cost: int = 1

    def matches_entry(self, tags_code: int | None, unit: ExtUnit | None) -> bool:
        return True

    def matches_record(self, record: RecordCursor) -> bool:
        return True


class Reads:
    """Reads a store."""

    def __init__(
        self,
        log: CommitLog,
        queues: Queues,
        index: Index | None,
        config: StoreConfig,
        quarantine: Quarantine,
        *,
        memory_size: int,
    ) -> None:
        # queues are not rebuilt up to the end of the log: an offset beyond theirs may be valid
        self.is_behind = False
        # a slave with offsetCheckInSlave off returns a requested offset out of range as it is
        self.corrects_offsets = True
        self._log = log
        self._queues = queues
        self._index = index
        self._quarantine = quarantine
        self._check_record = config.record_crc_required
        self._memory_size = memory_size
        self.follow(config)

    def follow(self, config: StoreConfig) -> None:
        """Apply the limits of reads, which may change while the store is open."""
        self._filter_size_max = config.filter_entries_max * ENTRY_SIZE
        self._count_max = max(config.hot_count_max, config.cold_count_max, 1)
        self._hot_distance = self._memory_size * config.memory_percent_max // 100
        self._collector = RecordCollector(
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
        self,
        queue: QueueKey,
        offset: QueueOffset,
        *,
        count_max: int,
        bytes_max: int = BYTES_MAX,
        wanted: MessageFilter | None = None,
    ) -> GetResult:
        """Return messages from `offset` on: at least one if any matches and is in reach, then as
        long as there is room.

        StoreError if the queue's files cannot be read now, OSError if those of the log or of the
        ext units cannot.
        """
        found = self._find(queue)
        if self.is_behind and (found is None or offset > found.max_offset):
            end = QueueOffset(0) if found is None else found.max_offset
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, QueueOffset(0), end)
        if found is None:
            return GetResult(
                GetStatus.NO_MATCHED_LOGIC_QUEUE,
                self._corrected(offset, 0),
                QueueOffset(0),
                QueueOffset(0),
            )
        try:
            low, high = found.min_offset, found.max_offset
        except OSError as error:  # of a batch queue, which reads them from its files
            _log_lost(error, found, offset)
            return GetResult(GetStatus.OFFSET_FOUND_NULL, offset, QueueOffset(0), QueueOffset(0))
        if low <= offset < high:
            return self._collect(found, offset, low, high, max(count_max, 1), bytes_max, wanted)
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, self._corrected(offset, 0), low, high)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, self._corrected(offset, low), low, high)
        status = (
            GetStatus.OFFSET_OVERFLOW_ONE if offset == high else GetStatus.OFFSET_OVERFLOW_BADLY
        )
        return GetResult(status, self._corrected(offset, high), low, high)

    def _collect(
        self,
        queue: ConsumeQueue | BatchConsumeQueue,
        offset: QueueOffset,
        low: QueueOffset,
        high: QueueOffset,
        count_max: int,
        bytes_max: int,
        wanted: MessageFilter | None,
    ) -> GetResult:
        collector, log_end = self._collector, self._log.end_offset
        count_max = min(count_max, _SCAN_COUNT_MAX)
        scan_size_max = max(self._filter_size_max, count_max * queue.ENTRY_SIZE)
        collector.begin(
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
        try:  # no entries, as of a missing file: no progress, so the loop ends
            while first < collector.next_offset < high:
                first = QueueOffset(collector.next_offset)
                if not collector.more(_entries(queue, first, count), first):
                    break
                count = min(4 * count, scan_size_max // ENTRY_SIZE)
        finally:
            records = collector.end()
            for at, size in collector.bad:
                self._suspect(LogOffset(at), size)
        if collector.next_offset == offset:
            return GetResult(
                GetStatus.OFFSET_FOUND_NULL, self._next_file_offset(queue, offset, high), low, high
            )
        if collector.record_count:
            status = GetStatus.FOUND
        else:
            status = (
                GetStatus.MESSAGE_WAS_REMOVING
                if collector.is_gone
                else GetStatus.NO_MATCHED_MESSAGE
            )
        return GetResult(
            status,
            QueueOffset(collector.next_offset),
            low,
            high,
            records,
            collector.record_count,
            collector.message_count,
            log_end - collector.last_log_offset > self._hot_distance,
            log_end - collector.last_log_offset,
            collector.last_store_time_ms,
        )

    # -- by log offset

    def record_at(self, offset: LogOffset) -> bytes | None:
        """Return the record that begins at a log offset; None if none does, or it is corrupt."""
        record = self._good_at(offset)
        return None if record is None else bytes(record.buffer)

    def message_at(self, offset: LogOffset) -> StoredMessage | None:
        """Return the message whose record begins at a log offset; None if none does, or it is
        corrupt.
        """
        record = self._good_at(offset)
        return None if record is None else record.message()

    def record_of(self, queue: QueueKey, offset: QueueOffset) -> bytes | None:
        """Return the record of one message of a queue; None if it is missing or corrupt."""
        found = self._find(queue)
        entry = None if found is None else found.get(offset)
        return None if entry is None else self.record_at(entry.log_offset)

    def _good_at(self, offset: LogOffset) -> RecordCursor | None:
        """Return a cursor on the record, which is all of its buffer. It pins the file: drop it
        soon.
        """
        head = self._log.read(offset, 4)
        size = signed32(head, 0) if head is not None else 0
        content = self._log.read(offset, size) if size > 0 else None
        if content is None:
            return None
        record = RecordCursor()
        result = record.read(content, 0, size, True, self._check_record)
        if (
            result in (Flaw.BODY_CRC, Flaw.RECORD_CRC)
            and record.read(content, 0, size, False) == size
            and record.log_offset == offset
        ):
            # The offset may be made up: only a record with a matching frame is quarantined.
            self._suspect(offset, size)
            return None
        return record if result == size and record.log_offset == offset else None

    # -- by key

    def query(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 64,
        begin_ms: int = 0,
        end_ms: int = _FOREVER_MS,
        by_tags: bool = False,
    ) -> list[StoredMessage]:
        """Return the messages of a topic with that key or unique key, or with `by_tags` these tags;
        the oldest first.
        """
        return list(
            decode_all(
                self.query_records(
                    topic,
                    key,
                    count_max=count_max,
                    begin_ms=begin_ms,
                    end_ms=end_ms,
                    by_tags=by_tags,
                ).records
            )
        )

    def query_records(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 64,
        begin_ms: int = 0,
        end_ms: int = _FOREVER_MS,
        by_tags: bool = False,
    ) -> QueryResult:
        """Do what `query_records_in_slices` does, in one go."""
        return finish(
            self.query_records_in_slices(
                topic,
                key,
                count_max=count_max,
                begin_ms=begin_ms,
                end_ms=end_ms,
                by_tags=by_tags,
            )
        )

    def query_records_in_slices(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 64,
        begin_ms: int = 0,
        end_ms: int = _FOREVER_MS,
        by_tags: bool = False,
    ) -> Slices[QueryResult]:
        """Return the records of the `count_max` newest messages that the index has for the key's
        hash and the time.

        If none of those has the key, older ones are examined, twice.
        """
        found: list[bytes] = []
        last_time_ms, last_offset = StoreTimeMs(0), LogOffset(0)
        for _ in range(_QUERY_ROUNDS):
            if self._index is None:
                break
            hits = yield from self._index.query_in_slices(
                topic, tags_key(key) if by_tags else key, count_max, begin_ms, end_ms
            )
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

    def offset_by_time(
        self, queue: QueueKey, time_ms: StoreTimeMs, boundary: Boundary = Boundary.LOWER
    ) -> QueueOffset:
        """Return the queue offset at a store time, 0 for a queue that does not exist."""
        found = self._find(queue)
        if found is None:
            return QueueOffset(0)
        if isinstance(found, BatchConsumeQueue):
            return found.offset_by_time(time_ms, boundary)
        return found.offset_by_time(time_ms, boundary, self._store_time, self._log.min_offset)

    def earliest_time(self, queue: QueueKey) -> int:
        """Return the store time of the first message of a queue, -1 if there is none."""
        found = self._find(queue)
        return -1 if found is None else self.store_time_of(queue, found.min_offset)

    def store_time_of(self, queue: QueueKey, offset: QueueOffset) -> int:
        """Return the store time of a message, or of the batch that contains it; -1 if it does not
        exist.
        """
        found = self._find(queue)
        entry = None if found is None else found.get(offset)
        return -1 if entry is None else self._store_time(entry.log_offset, entry.size)

    def first_time(self) -> int:
        """Return the store time of the first record of the log, -1 if there is none."""
        head = self._log.read(self._log.min_offset, 4)
        return -1 if head is None else self._store_time(self._log.min_offset, signed32(head, 0))

    def _store_time(self, offset: LogOffset, size: int) -> int:
        content = self._log.read(offset, size)
        record = RecordCursor()
        return (
            record.store_time_ms
            if content is not None and record.read(content, 0, size, False) == size
            else -1
        )

    # -- shared

    def _find(self, queue: QueueKey) -> ConsumeQueue | BatchConsumeQueue | None:
        return self._queues.plain.find(*queue) or self._queues.batch.find(*queue)

    def _corrected(self, offset: QueueOffset, right: int) -> QueueOffset:
        return QueueOffset(right) if self.corrects_offsets else offset

    def _next_file_offset(
        self, queue: ConsumeQueue | BatchConsumeQueue, offset: QueueOffset, high: QueueOffset
    ) -> QueueOffset:
        """Return the first offset of the queue's next file; in a batch queue that is unknown
        without this file.
        """
        if isinstance(queue, BatchConsumeQueue):
            return offset
        in_file = queue.files.file_size // ENTRY_SIZE
        return self._corrected(offset, min(offset - offset % in_file + in_file, high))

    def _suspect(self, offset: LogOffset, size: int) -> None:
        """Quarantine what should be a record of that size, with what is wrong with it."""
        if size <= 0:  # the entry is corrupt, not the log
            log.error("queue_entry_damaged log_offset=%d size=%d", offset, size)
            return
        content = self._log.read(offset, size)
        record = RecordCursor()
        if content is None:
            reason = (
                f"a queue has an entry for a record of {size} bytes here, but the file ends before"
            )
        elif (result := record.read(content, 0, size, True, self._check_record)) <= 0:
            reason = flaw_text(result)
        elif result != size:
            reason = (
                f"a queue has an entry for a record of {size} bytes here, but the record claims"
                f" {result}"
            )
        else:
            reason = f"the record states the offset {record.log_offset}"
        self._quarantine.add(BadBytes(offset, LogOffset(offset + size), reason))


def _entries(queue: ConsumeQueue | BatchConsumeQueue, offset: QueueOffset, count: int) -> bytes:
    """Return entries from `offset` on, of one file as far as that is known; none if its file is
    missing.
    """
    if isinstance(queue, ConsumeQueue):
        in_file = queue.files.file_size // ENTRY_SIZE
        count = min(count, in_file - offset % in_file)
    else:
        count += 1  # the first may precede the offset, if its own batch was lost
    try:
        return queue.entries(offset, count)
    except OSError as error:
        _log_lost(error, queue, offset)
        return b""


def _log_lost(error: OSError, queue: ConsumeQueue | BatchConsumeQueue, offset: QueueOffset) -> None:
    """Log that a file of a queue is lost; raise StoreError for any other read failure."""
    if error.errno not in _FILE_LOST:
        raise StoreError(
            f"queue {queue.files.folder} could not be read at {offset}: {reason_of(error)};"
            " try again later"
        ) from error
    log.error("queue_unreadable folder=%s offset=%d error=%s", queue.files.folder, offset, error)


def _has_key(message: StoredMessage, topic: str, key: str, by_tags: bool) -> bool:
    """Whether a message found by its key's hash is of the topic and has the key."""
    properties = message.properties()
    if message.topic != topic:
        return False
    if by_tags:
        return key == properties.get(TAGS)
    return key == properties.get(UNIQUE_KEY) or key in (properties.get(KEYS) or "").split(
        KEY_SEPARATOR
    )
