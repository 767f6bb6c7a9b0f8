"""Where records of a log begin, found without reading the log: a file of it can be entered only there.

Known are the first byte of each file and what the entries of consume queues point at. Both are believed only if a record stands there that
says so itself and, where the store was stopped, is older than the last that it knows of: what was given up when it was recovered may still
lie behind its end.
Entries of a queue are in the order of the log, so a place is found by halving; a few of the fullest queues are asked.
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
_PLACE: Final = Struct(">qi")  # how an entry of either kind of queue begins


class Boundary(NamedTuple):
    """A record begins at `offset`, stored then."""

    offset: int
    store_time_ms: int


class LogBoundaries:
    """The boundaries of one store. Files stay open until `close`."""

    def __init__(self, directory: StoreDirectory) -> None:
        self._records = LogRecords(directory)
        self._files = OpenFiles(directory.layer)
        self._queues = sorted(_queues(directory, self._files), key=_fullness, reverse=True)[:_QUEUES_MAX]
        checkpoint = directory.checkpoint if directory.is_clean else None
        self._known_ms = max(checkpoint.log_time_ms, checkpoint.queues_time_ms) if checkpoint is not None else 0

    def at(self, offset: int) -> Boundary | None:
        """The boundary at that very offset, if there is one."""
        record = self._records.at(offset)
        if record is None or 0 < self._known_ms <= record.store_time_ms:
            return None
        return Boundary(offset, record.store_time_ms)

    def from_(self, offset: int, end: int) -> Boundary | None:
        """The first that is known in [offset, end)."""
        found = {place for queue in self._queues if (place := _place_from(queue, offset)) is not None and place < end}
        return next((boundary for place in sorted(found) if (boundary := self.at(place)) is not None), None)

    def newest(self, begin: int, end: int) -> Boundary | None:
        """One near the end of the log, in [begin, end): entries of records that were given up may point behind it, at older ones."""
        known = [found for queue in self._queues if (found := self._newest_of(queue)) is not None and begin <= found.offset < end]
        return max(known, key=lambda boundary: (boundary.store_time_ms, -boundary.offset), default=None)

    def _newest_of(self, queue: QueueEntries) -> Boundary | None:
        """That of the last entry, or of one before it, ever further before."""
        count, back = _count(queue), 1
        while back <= count:
            place = _place(queue, queue.first + count - back)
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


def _place_from(queue: QueueEntries, offset: int) -> int | None:
    """What the first entry points at that points at `offset` or behind it."""
    low, high = queue.first, queue.end
    while low < high:
        middle = (low + high) // 2
        place = _place(queue, middle)
        low, high = (middle + 1, high) if place is not None and place < offset else (low, middle)
    return _place(queue, low)


def _count(queue: QueueEntries) -> int:
    """How many entries there are."""
    low, high = queue.first, queue.end
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _place(queue, middle) is not None else (low, middle)
    return low - queue.first


def _place(queue: QueueEntries, number: int) -> int | None:
    """The log offset of an entry; None behind the last."""
    raw = queue.read(number)
    if len(raw) < _PLACE.size:
        return None
    place, size = _PLACE.unpack_from(raw)
    return int(place) if size > 0 else None
