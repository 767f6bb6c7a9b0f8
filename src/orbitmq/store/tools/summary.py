"""The content of a store in numbers: all of it, and by queue. Only the log is scanned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from orbitmq.store.batch_consume_queue import ENTRY as BATCH_ENTRY
from orbitmq.store.consume_queue import ENTRY
from orbitmq.store.entry_scan import FILLER_SIZE
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.log_records import LogRecords
from orbitmq.store.tools.log_walk import LogWalk
from orbitmq.store.tools.queue_entries import QueueEntries
from orbitmq.store.tools.sizes import HEADER
from orbitmq.store.types import QueueKey

Progress = Callable[[int, int], None]
_STRIDE = 4 << 20


class LogSummary(NamedTuple):
    """The commit log."""

    files: int
    file_size: int
    first_offset: int
    end_offset: int
    records: int
    bad_places: int
    first_store_time_ms: int
    last_store_time_ms: int


class QueueSummary(NamedTuple):
    """One queue; offsets are of messages."""

    topic: str
    queue_id: int
    kind: str
    min_offset: int
    max_offset: int
    entries: int  # of records still in the log
    files: int
    last_store_time_ms: int | None  # of the last entry's record, None if not in the log


def log_summary(directory: StoreDirectory, progress: Progress | None = None) -> LogSummary:
    """Scan the log and count."""
    bad = 0

    def on_bad(_found: object) -> None:
        nonlocal bad
        bad += 1

    walk, first_ms, reported = LogWalk(directory, on_bad), 0, 0
    for record in walk:
        first_ms = first_ms or record.store_time_ms
        if progress is not None and walk.end - reported > _STRIDE:
            reported = walk.end
            progress(reported - walk.begin, walk.files_end - walk.begin)
    if progress is not None:
        progress(1, 1)
    files = len(directory.log_files)
    return LogSummary(
        files,
        directory.log_file_size,
        walk.begin,
        walk.end,
        walk.records,
        bad,
        first_ms,
        walk.store_time_ms,
    )


def queue_summaries(directory: StoreDirectory, topic: str | None = None) -> Iterator[QueueSummary]:
    """Iterate over every queue, or those of one topic, sorted by name."""
    log = LogRecords(directory)
    files = OpenFiles(directory.layer)
    for key in sorted({*directory.plain, *directory.batch}):
        if topic is None or key.topic == topic:
            if key in directory.plain:
                yield _plain(directory, files, log, key)
            if key in directory.batch:
                yield _batch(directory, files, log, key)
    files.close()
    log.close()


def index_entries(directory: StoreDirectory) -> int:
    """Return how many entries the headers of the index files count."""
    total = 0
    for path in directory.index_files:
        with path.open("rb") as file:
            head = file.read(HEADER.size)
        total += max(HEADER.unpack(head)[5] - 1, 0) if len(head) == HEADER.size else 0
    return total


def _plain(
    directory: StoreDirectory, files: OpenFiles, log: LogRecords, key: QueueKey
) -> QueueSummary:
    folder = directory.plain[key]
    queue = QueueEntries(directory.layer, files, folder, directory.queue_file_size, ENTRY.size)
    if not folder.is_whole(directory.queue_file_size) or not folder.files:
        return QueueSummary(*key, "plain", 0, 0, 0, len(folder.files), None)

    def is_there(number: int) -> bool:  # the log has, or had, its record
        offset, size, _code = ENTRY.unpack(queue.read(number))
        return size > 0 and (offset < log.min or size == FILLER_SIZE or _has(log, offset, size))

    high = _last_that(is_there, queue.first, queue.end)
    low = queue.first
    above = high
    while low < above:
        middle = (low + above) // 2
        offset, size, _code = ENTRY.unpack(queue.read(middle))
        low, above = (
            (middle + 1, above)
            if offset < log.min or (size == FILLER_SIZE and offset == 0)
            else (low, middle)
        )
    last = ENTRY.unpack(queue.read(high - 1)) if high > queue.first else None
    record = log.at(last[0]) if last is not None else None
    return QueueSummary(
        *key,
        "plain",
        low,
        high,
        high - low,
        len(folder.files),
        None if record is None else record.store_time_ms,
    )


def _batch(
    directory: StoreDirectory, files: OpenFiles, log: LogRecords, key: QueueKey
) -> QueueSummary:
    folder = directory.batch[key]
    queue = QueueEntries(
        directory.layer, files, folder, directory.batch_file_size, BATCH_ENTRY.size
    )
    if not folder.is_whole(directory.batch_file_size) or not folder.files:
        return QueueSummary(*key, "batch", 0, 0, 0, len(folder.files), None)

    def is_there(number: int) -> bool:
        offset, size = BATCH_ENTRY.unpack(queue.read(number))[:2]
        return size > 0 and (offset < log.min or _has(log, offset, size))

    high = _last_that(is_there, queue.first, queue.end)
    low = queue.first
    while low < high and BATCH_ENTRY.unpack(queue.read(low))[0] < log.min:
        low += 1
    if low == high:
        return QueueSummary(*key, "batch", 0, 0, 0, len(folder.files), None)
    first, last = (BATCH_ENTRY.unpack(queue.read(number)) for number in (low, high - 1))
    return QueueSummary(
        *key, "batch", first[4], last[4] + last[5], high - low, len(folder.files), last[3]
    )


def _has(log: LogRecords, offset: int, size: int) -> bool:
    record = log.at(offset) if offset < log.end else None
    return record is not None and record.size == size


def _last_that(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the number after the last one that `holds` accepts, if it accepts all before."""
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if holds(middle) else (low, middle)
    return low
