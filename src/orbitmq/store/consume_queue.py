"""A consume queue: where in the commit log the messages of one queue lie, one entry of 20 bytes for each, in the order of their offsets.

Entry, big-endian, at byte 20·i of the queue for queue offset i:

| at | size | |
|---|---|---|
| 0 | 8 | log offset of the record |
| 8 | 4 | size of the record |
| 12 | 8 | tags code; in SCHEDULE_TOPIC_XXXX the time of delivery; with ext files the address of a unit there |

A queue that does not begin at 0 has fillers, `0, 2^31-1, 0`, from the beginning of its first file to its first entry. Queue offsets of
which no record was dispatched (only damage makes such a gap) get fillers too, their log offset that of the end of the record before, so
that entry i keeps its place. Building, crash rule and cleaning: see `entry_queue`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import NamedTuple

from orbitmq.common.errors import WriteFailed
from orbitmq.store.consume_queue_ext import ConsumeQueueExt, ExtUnit, is_ext_address
from orbitmq.store.entry_queue import EntryQueue, QueueState, StoreTimeOf
from orbitmq.store.entry_scan import FILLER_SIZE
from orbitmq.store.queue_files import FilesState, QueueFiles
from orbitmq.store.types import LogOffset, QueueOffset, StoreTimeMs

ENTRY = Struct(">qiq")
ENTRY_SIZE = ENTRY.size

log = logging.getLogger(__name__)


class Boundary(Enum):
    """Which offset is meant when several messages, or none, have the time that was asked for."""

    LOWER = "lower"
    UPPER = "upper"


class Entry(NamedTuple):
    """Where a message lies."""

    log_offset: LogOffset
    size: int
    tags_code: int


class ConsumeQueue(EntryQueue):
    """The entries of one queue, with the ext file if it has one."""

    __slots__ = ("ext",)
    ENTRY_SIZE = ENTRY_SIZE

    def __init__(self, files: QueueFiles, ext: ConsumeQueueExt | None = None, begin_offset: int = 0) -> None:
        super().__init__(files, begin_offset)
        self.ext = ext

    @property
    def min_offset(self) -> QueueOffset:
        """The first queue offset whose record is in the log."""
        return QueueOffset(self.min_position // ENTRY_SIZE)

    @property
    def max_offset(self) -> QueueOffset:
        """The queue offset behind the last entry that is written."""
        return QueueOffset(self.files.end // ENTRY_SIZE)

    @property
    def next_offset(self) -> QueueOffset:
        """The queue offset behind the last entry that was put."""
        return QueueOffset(self._next // ENTRY_SIZE)

    def put(self, log_offset: int, size: int, tags_code: int, queue_offset: int, store_time_ms: int = 0, bits: bytes = b"") -> None:
        """Add the entry of a record, written by the next `commit`; nothing for one that is there already."""
        physical_end = log_offset + size
        if physical_end <= self.max_physical_offset:
            return
        expected = queue_offset * ENTRY_SIZE
        if expected != self._next:
            if expected < self._next:
                return
            self._fill(expected)
        if self.ext is not None:
            tags_code = self.ext.put(ExtUnit(tags_code, store_time_ms, bits))
        self._pending += ENTRY.pack(log_offset, size, tags_code)
        self._next += ENTRY_SIZE
        self.max_physical_offset = physical_end

    def write_run(self, entries: bytearray, queue_offset: int, physical_end: int) -> None:
        """Write entries of records without units, the first that of `queue_offset`, the last of a record that ends at `physical_end`.

        After WriteFailed none of them is kept: the records can be put again.
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
        """Write what was put, units before the entries that point at them; after WriteFailed it can be put again."""
        if self.ext is not None:
            try:
                self.ext.commit()
            except WriteFailed:
                self.forget_pending()
                raise
        super().commit()

    def forget_pending(self) -> None:
        """Forget what was put and is not written."""
        super().forget_pending()
        if self.ext is not None:
            self.ext.forget_pending()

    def begin_at(self, offset: QueueOffset) -> None:
        """Let an empty queue begin at `offset`: the messages before it are in the log no more."""
        assert self.files.end == self._next == 0, "it is empty"
        end, file_size = offset * ENTRY_SIZE, self.files.file_size
        size = end % file_size or file_size  # a file, or the offset would be forgotten
        self._pending += ENTRY.pack(0, FILLER_SIZE, 0) * (size // ENTRY_SIZE)
        self._next = self._begin = end
        self.commit()

    def entries(self, offset: QueueOffset, count: int) -> bytes:
        """The entries of `count` messages from `offset` on, fewer at the end of the queue; none for an offset that is not there."""
        position = offset * ENTRY_SIZE
        return b"" if position < self.min_position else self.files.read(position, count * ENTRY_SIZE)

    def get(self, offset: QueueOffset) -> Entry | None:
        """The entry of one message, None when it is not there."""
        found = self.entries(offset, 1)
        return Entry._make(ENTRY.unpack(found)) if found else None

    def ext_unit(self, tags_code: int) -> ExtUnit | None:
        """The unit that an entry's tags code is the address of; None when it is a tags code, or the unit is damaged."""
        return self.ext.get(tags_code) if self.ext is not None else None

    def offset_by_time(self, time_ms: StoreTimeMs, boundary: Boundary, store_time_of: StoreTimeOf, log_min: LogOffset) -> QueueOffset:
        """The queue offset at a store time.

        LOWER: of the first message stored then or later, UPPER: of the last one stored then or earlier. Where that says nothing the answers
        are those of the original; always within the queue's minimum and maximum.
        """
        return min(max(QueueOffset(self._search(time_ms, boundary, store_time_of, log_min)), self.min_offset), self.max_offset)

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
        """Go on behind the entries and units of files that were proven to have that state."""
        if self.ext is not None:
            self.ext.files.adopt(state.units or FilesState())
        super().adopt(state)

    def reuse_files(self) -> None:
        """Write over the files that lie where the queue has its own, those of units included."""
        super().reuse_files()
        if self.ext is not None:
            self.ext.files.reuse()

    def remove_other_files(self) -> None:
        """Remove the files that lie where the queue has its own and are none of them, those of units included."""
        super().remove_other_files()
        if self.ext is not None:
            self.ext.files.remove_others()

    def recover(self, log_end: int) -> None:
        """Load files of which nothing is known, and find the end of the entries, and of their units."""
        if self.ext is not None:
            self.ext.files.load()
            self.ext.end_where_units_end()
        super().recover(log_end)

    def correct_min(self, log_min: int) -> None:
        """Move the minimum up to the first entry of a record that is still in the log; units of entries before it may go."""
        super().correct_min(log_min)
        first = self.get(self.min_offset)
        if self.ext is not None and first is not None and is_ext_address(first.tags_code):
            self.ext.delete_before(first.tags_code)

    def destroy(self) -> None:
        """Remove the queue's files; it is empty, and begins anew wherever the next entry says."""
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
            self.ext.end_behind(tags_code)

    def offset_of(self, position: int, entry: bytes) -> QueueOffset:
        return QueueOffset(position // ENTRY_SIZE)

    def _fill(self, until: int) -> None:
        """Put fillers until the entry that comes next has its place."""
        position, file_size = self._next, self.files.file_size
        if position == 0:  # the queue begins here
            position, self._begin = until - until % file_size, until
            filler = ENTRY.pack(0, FILLER_SIZE, 0)
        else:
            log.error("queue_gap folder=%s from=%d to=%d", self.files.folder, position // ENTRY_SIZE, until // ENTRY_SIZE)
            filler = ENTRY.pack(self.max_physical_offset, FILLER_SIZE, 0)
        self._pending += filler * ((until - position) // ENTRY_SIZE)
        self._next = until

    def _search(self, time_ms: int, boundary: Boundary, store_time_of: StoreTimeOf, log_min: int) -> int:
        """The original's search: it picks a file, then an entry there, from the first that the minimum leaves."""
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
                step = -1 if lower else 1
                while floor <= (middle + step) * ENTRY_SIZE <= ceiling and time_at((middle + step) * ENTRY_SIZE) == time_ms:
                    middle += step
                return middle
            if found > time_ms:
                high, right = middle - 1, middle
            else:
                low, left = middle + 1, middle
        return right if lower else left

    def _file_by_time(self, time_ms: int, lower: bool, time_at: Callable[[int], int]) -> int:
        """Where the file begins that a search goes to: the first that ends then or later, by UPPER the last that begins then or earlier."""
        starts = self.files.starts
        if lower:
            last_entry = self.files.file_size - ENTRY_SIZE
            return next((start for start in starts[:-1] if time_at(start + last_entry) >= time_ms), starts[-1] if starts else -1)
        return next((start for start in reversed(starts) if time_at(start) <= time_ms), -1)
