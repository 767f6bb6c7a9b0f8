"""Finds offsets of a commit log at which a record starts, without reading the log.

A file can only be entered at such an offset. Candidates are the first byte of each file and the
offsets in consume queues. A candidate counts only if a valid record is there and, if the store was
shut down cleanly, the record is older than the checkpoint: records discarded by a recovery may
still be stored after the end of the log. Entries of a queue are in log order, so an offset is found
by binary search; only a few of the fullest queues are searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.store import batch_consume_queue, consume_queue
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.tools.directory import Folder, StoreDirectory
from orbitmq.store.tools.log_records import LogRecords
from orbitmq.store.tools.queue_entries import QueueEntries

_QUEUES_MAX: Final = 8
_PLACE: Final = Struct(">qi")  # log offset and size, the start of an entry of either queue type


class RecordBoundary(NamedTuple):
    """The offset at which a record starts, and its store time."""

    offset: int
    store_time_ms: int


class LogBoundaries:
    """The record boundaries of one store. Keeps files open until `close`."""

    def __init__(self, directory: StoreDirectory) -> None:
        self._records = LogRecords(directory)
        self._files = OpenFiles(directory.layer)
        self._queues = sorted(_queues(directory, self._files), key=_fullness, reverse=True)[
            :_QUEUES_MAX
        ]
        checkpoint = directory.checkpoint if directory.is_clean else None
        self._known_ms = (
            max(checkpoint.log_time_ms, checkpoint.queues_time_ms) if checkpoint is not None else 0
        )

    def at(self, offset: int) -> RecordBoundary | None:
        """Return the boundary at exactly that offset, or None."""
        record = self._records.at(offset)
        if record is None or 0 < self._known_ms <= record.store_time_ms:
            return None
        return RecordBoundary(offset, record.store_time_ms)

    def first_in(self, offset: int, end: int) -> RecordBoundary | None:
        """Return the first known boundary in [offset, end), or None."""
        found = {
            place
            for queue in self._queues
            if (place := _first_log_offset(queue, offset)) is not None and place < end
        }
        return next(
            (boundary for place in sorted(found) if (boundary := self.at(place)) is not None), None
        )

    def newest(self, begin: int, end: int) -> RecordBoundary | None:
        """Return a boundary near the end of the log in [begin, end), or None. The store time
        decides, since entries of discarded records may point past the end, at older records.
        """
        known = [
            found
            for queue in self._queues
            if (found := self._newest_of(queue)) is not None and begin <= found.offset < end
        ]
        return max(
            known, key=lambda boundary: (boundary.store_time_ms, -boundary.offset), default=None
        )

    def _newest_of(self, queue: QueueEntries) -> RecordBoundary | None:
        """Return the boundary of the last entry, or of an earlier one at doubling distance."""
        count, back = _entry_count(queue), 1
        while back <= count:
            place = _log_offset(queue, queue.first + count - back)
            if place is not None and (found := self.at(place)) is not None:
                return found
            back *= 2
        return None

    def close(self) -> None:
        self._records.close()
        self._files.close()


def _queues(directory: StoreDirectory, files: OpenFiles) -> Iterator[QueueEntries]:
    kinds = (
        (directory.plain, directory.queue_file_size, consume_queue.ENTRY_SIZE),
        (directory.batch, directory.batch_file_size, batch_consume_queue.ENTRY_SIZE),
    )
    for folders, file_size, entry_size in kinds:
        for folder in folders.values():
            if folder.files and folder.is_whole(file_size):
                yield QueueEntries(directory.layer, files, folder, file_size, entry_size)


def _fullness(queue: QueueEntries) -> tuple[int, int]:
    folder: Folder = queue.folder
    return len(folder.files), folder.files[-1].path.stat().st_blocks


def _first_log_offset(queue: QueueEntries, offset: int) -> int | None:
    """Return the log offset of the first entry that points at or after `offset`, or None."""
    low, high = queue.first, queue.end
    while low < high:
        middle = (low + high) // 2
        place = _log_offset(queue, middle)
        low, high = (middle + 1, high) if place is not None and place < offset else (low, middle)
    return _log_offset(queue, low)


def _entry_count(queue: QueueEntries) -> int:
    """Return the number of entries."""
    low, high = queue.first, queue.end
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _log_offset(queue, middle) is not None else (low, middle)
    return low - queue.first


def _log_offset(queue: QueueEntries, number: int) -> int | None:
    """Return the log offset of an entry; None after the last one."""
    raw = queue.read(number)
    if len(raw) < _PLACE.size:
        return None
    place, size = _PLACE.unpack_from(raw)
    return int(place) if size > 0 else None
