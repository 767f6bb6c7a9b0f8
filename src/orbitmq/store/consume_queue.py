"""A consume queue: where the messages of one queue are in the commit log, one entry of 20 bytes per
message, in the order of their offsets.

Entry, big-endian, at byte 20·i of the queue for queue offset i:

| at | size | |
|---|---|---|
| 0 | 8 | log offset of the record |
| 8 | 4 | size of the record |
| 12 | 8 | tags code; in SCHEDULE_TOPIC_XXXX the time of delivery; with ext files the address of a unit there |

A queue that does not begin at 0 has fillers, `0, 2^31-1, 0`, from the beginning of its first file
to its first entry. Queue offsets without a dispatched record (only damage makes such a gap) get
fillers too, with the log offset of the end of the record before, so that entry i keeps its
position. Building, crash rule and cleaning: see `entry_queue`.
"""  # noqa: E501

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import NamedTuple

from orbitmq.common.errors import WriteFailedError
from orbitmq.store.consume_queue_ext import ConsumeQueueExt, ExtUnit, is_ext_address
from orbitmq.store.entry_queue import EntryQueue, QueueState, StoreTimeOf
from orbitmq.store.entry_scan import FILLER_SIZE
from orbitmq.store.queue_files import FilesState, QueueFiles
from orbitmq.store.types import LogOffset, QueueOffset, StoreTimeMs

ENTRY = Struct(">qiq")
ENTRY_SIZE = ENTRY.size

log = logging.getLogger(__name__)


class Boundary(Enum):
    """Which offset to return if several messages, or none, have the requested time."""

    LOWER = "lower"
    UPPER = "upper"


class Entry(NamedTuple):
    """The place of a message in the log."""

    log_offset: LogOffset
    size: int
    tags_code: int


class ConsumeQueue(EntryQueue):
    """The entries of one queue, and its ext file if it has one."""

    __slots__ = ("ext",)
    ENTRY_SIZE = ENTRY_SIZE

    def __init__(
        self, files: QueueFiles, ext: ConsumeQueueExt | None = None, begin_offset: int = 0
    ) -> None:
        super().__init__(files, begin_offset)
        self.ext = ext

    @property
    def min_offset(self) -> QueueOffset:
        """The first queue offset whose record is in the log."""
        return QueueOffset(self.min_position // ENTRY_SIZE)

    @property
    def max_offset(self) -> QueueOffset:
        """The queue offset after the last written entry."""
        return QueueOffset(self.files.end // ENTRY_SIZE)

    @property
    def next_offset(self) -> QueueOffset:
        """The queue offset after the last put entry."""
        return QueueOffset(self._next // ENTRY_SIZE)

    def put(
        self,
        log_offset: int,
        size: int,
        tags_code: int,
        queue_offset: int,
        store_time_ms: int = 0,
        bits: bytes = b"",
    ) -> None:
        """Add the entry of a record, written by the next `commit`; does nothing if it is
        present.
        """
        physical_end = log_offset + size
        if physical_end <= self.max_physical_offset:
            return
        expected = queue_offset * ENTRY_SIZE
        if expected != self._next:
            if expected < self._next:
                self._leave_out(queue_offset, self.next_offset, log_offset)
                return
            self._fill(expected)
        if self.ext is not None:
            tags_code = self.ext.put(ExtUnit(tags_code, store_time_ms, bits))
        self._pending += ENTRY.pack(log_offset, size, tags_code)
        self._next += ENTRY_SIZE
        self.max_physical_offset = physical_end

    def write_run(self, entries: bytearray, queue_offset: int, physical_end: int) -> None:
        """Write entries of records without ext units, from `queue_offset` on; the last record ends
        at `physical_end`.

        After WriteFailedError none of them is kept: the records can be put again.
        """
        position = queue_offset * ENTRY_SIZE
        if self._pending or not position or position != self._next:
            for number, (log_offset, size, tags_code) in enumerate(ENTRY.iter_unpack(entries)):
                self.put(log_offset, size, tags_code, queue_offset + number)
            self.commit()
            return
        try:
            self.files.append(entries, position)
        except OSError as error:
            raise self._write_failed(len(entries), error) from error
        self._next = position + len(entries)
        self.max_physical_offset = self._written_physical_end = physical_end

    def commit(self) -> None:
        """Write what was put, ext units before the entries that point to them; after
        WriteFailedError it can be put again.
        """
        if self.ext is not None:
            try:
                self.ext.commit()
            except WriteFailedError:
                self.forget_pending()
                raise
        super().commit()

    def forget_pending(self) -> None:
        """Drop the entries and units that were put and are not written."""
        super().forget_pending()
        if self.ext is not None:
            self.ext.forget_pending()

    def begin_at(self, offset: QueueOffset) -> None:
        """Make an empty queue begin at `offset`: the messages before it are no longer in
        the log.
        """
        end, file_size = offset * ENTRY_SIZE, self.files.file_size
        size = end % file_size or file_size
        self._begin_with(ENTRY.pack(0, FILLER_SIZE, 0) * (size // ENTRY_SIZE), end)

    def entries(self, offset: QueueOffset, count: int) -> bytes:
        """Return up to `count` entries from `offset` on, none for an offset out of range."""
        position = offset * ENTRY_SIZE
        return (
            b"" if position < self.min_position else self.files.read(position, count * ENTRY_SIZE)
        )

    def get(self, offset: QueueOffset) -> Entry | None:
        """Return the entry of one message, or None."""
        found = self.entries(offset, 1)
        return Entry._make(ENTRY.unpack(found)) if found else None

    def ext_unit(self, tags_code: int) -> ExtUnit | None:
        """Return the unit whose address is an entry's tags code; None if it is no address, or the
        unit is corrupt.
        """
        return self.ext.get(tags_code) if self.ext is not None else None

    def offset_by_time(
        self,
        time_ms: StoreTimeMs,
        boundary: Boundary,
        store_time_of: StoreTimeOf,
        log_min: LogOffset,
    ) -> QueueOffset:
        """Return the queue offset at a store time.

        LOWER: of the first message stored at that time or later, UPPER: of the last one stored at
        that time or earlier. Other cases follow Apache; always within the queue's minimum and
        maximum.
        """
        return min(
            max(
                QueueOffset(self._search(time_ms, boundary, store_time_of, log_min)),
                self.min_offset,
            ),
            self.max_offset,
        )

    @property
    def state(self) -> QueueState | None:
        """What proves the content at the next start, units included."""
        state = super().state
        if state is None or self.ext is None:
            return state
        units = self.ext.files.state
        return None if units is None else state._replace(units=units)

    def has_units(self, units: FilesState) -> bool:
        """Whether the ext files have that state."""
        return self.ext is not None and self.ext.files.proven(units) == len(units.checksums)

    def adopt(self, state: QueueState) -> None:
        """Continue after the entries and units of files that were proven to have that state."""
        if self.ext is not None:
            self.ext.files.adopt(state.units or FilesState())
        super().adopt(state)

    def reuse_files(self) -> None:
        """Overwrite the existing files in the queue's folder, those of units included."""
        super().reuse_files()
        if self.ext is not None:
            self.ext.files.reuse()

    def remove_other_files(self) -> None:
        """Remove the files in the queue's folders that it does not own, those of units included."""
        super().remove_other_files()
        if self.ext is not None:
            self.ext.files.remove_others()

    def recover(self, log_end: int) -> None:
        """Load unknown files, and find the end of the entries and of their units."""
        if self.ext is not None:
            self.ext.files.load()
            self.ext.end_where_units_end()
        super().recover(log_end)

    def correct_min(self, log_min: int) -> None:
        """Move the minimum up to the first entry whose record is still in the log; units of earlier
        entries may be deleted.
        """
        super().correct_min(log_min)
        first = self.get(self.min_offset)
        if self.ext is not None and first is not None and is_ext_address(first.tags_code):
            self.ext.delete_before(first.tags_code)

    def destroy(self) -> None:
        """Remove the queue's files; it is empty, and begins again at the next entry's offset."""
        super().destroy()
        if self.ext is not None:
            self.ext.destroy()

    def _cut(self, position: int) -> None:
        super()._cut(position)
        if self.ext is None:
            return
        last = self.files.read(self.files.end - ENTRY_SIZE, ENTRY_SIZE)
        if not last:
            self.ext.files.cut(0)
        elif is_ext_address(tags_code := ENTRY.unpack(last)[2]):
            self.ext.end_after(tags_code)

    def offset_of(self, position: int, entry: bytes) -> QueueOffset:
        return QueueOffset(position // ENTRY_SIZE)

    def _fill(self, until: int) -> None:
        """Put fillers up to the position of the next entry."""
        position, file_size = self._next, self.files.file_size
        if position == 0:  # the queue begins here
            position, self._begin = until - until % file_size, until
            filler = ENTRY.pack(0, FILLER_SIZE, 0)
        else:
            log.error(
                "queue_gap folder=%s from=%d to=%d",
                self.files.folder,
                position // ENTRY_SIZE,
                until // ENTRY_SIZE,
            )
            filler = ENTRY.pack(self.max_physical_offset, FILLER_SIZE, 0)
        self._pending += filler * ((until - position) // ENTRY_SIZE)
        self._next = until

    def _search(
        self, time_ms: int, boundary: Boundary, store_time_of: StoreTimeOf, log_min: int
    ) -> int:
        """Search as Apache does: pick a file, then an entry in it, from the minimum on."""
        lower = boundary is Boundary.LOWER

        def time_at(position: int) -> int:
            offset, size, _ = ENTRY.unpack(self.files.read(position, ENTRY_SIZE))
            return store_time_of(offset, size)

        start = self._file_by_time(time_ms, lower, time_at)
        if start < 0:
            return 0
        floor = max(self.min_position, start)
        ceiling = min(self.files.end, start + self.files.file_size) - ENTRY_SIZE
        if time_at(ceiling) < time_ms:
            return ceiling // ENTRY_SIZE + (1 if lower else 0)
        if floor <= ceiling and time_at(floor) > time_ms:
            return start // ENTRY_SIZE if lower else 0
        low, high = floor // ENTRY_SIZE, ceiling // ENTRY_SIZE
        left = right = start // ENTRY_SIZE
        while low <= high:
            middle = (low + high) // 2
            offset, size, _ = ENTRY.unpack(self.files.read(middle * ENTRY_SIZE, ENTRY_SIZE))
            if offset < log_min:
                low, left = middle + 1, middle
                continue
            found = store_time_of(offset, size)
            if found < 0:
                return 0
            if found == time_ms:
                return edge(
                    middle,
                    (floor if lower else ceiling) // ENTRY_SIZE,
                    lambda number: time_at(number * ENTRY_SIZE) == time_ms,
                )
            if found > time_ms:
                high, right = middle - 1, middle
            else:
                low, left = middle + 1, middle
        return right if lower else left

    def _file_by_time(self, time_ms: int, lower: bool, time_at: Callable[[int], int]) -> int:
        """Return where the file to search begins: the first that ends at that time or later, or for
        UPPER the last that begins at that time or earlier.
        """
        starts = self.files.starts
        if lower:
            last_entry = self.files.file_size - ENTRY_SIZE
            return next(
                (start for start in starts[:-1] if time_at(start + last_entry) >= time_ms),
                starts[-1] if starts else -1,
            )
        return next((start for start in reversed(starts) if time_at(start) <= time_ms), -1)


def edge(inside: int, limit: int, is_inside: Callable[[int], bool]) -> int:
    """Return the last number from `inside` towards `limit` that is inside, by bisection: numbers
    inside are contiguous.
    """
    while inside != limit:
        middle = (inside + limit + (1 if limit > inside else 0)) // 2
        if is_inside(middle):
            inside = middle
        else:
            limit = middle - 1 if limit > inside else middle + 1
    return inside
