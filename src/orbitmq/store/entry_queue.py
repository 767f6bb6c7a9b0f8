"""What both kinds of queue share: entries of one size that point into the commit log, in the order of the log; built, cut, cleaned.

The byte at which entry i stands is i times the entry's size, counted over all files. Readers see committed entries only.

Built by `put` into a buffer and `commit`, one write per file. An entry whose record lies below `max_physical_offset` was put before, and
is passed over: so dispatching the log again from anywhere below gives the same queue.

Crash rule: `recover` reads from the third-last file, or from an earlier one behind which a power cut may have left holes, as long as
entries are whole, in the order of the log and below its end; then takes off entries from the end that the log does not confirm (a log that
lost its end and grew again leaves such). What is behind is wiped.
Any bytes at all in a file read as fewer entries. If what ended the entries was neither nothing nor an entry of a lost record, the queue is
`damaged`: it serves what is left, and should be built again from the log.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from orbitmq.common.errors import WriteFailed
from orbitmq.common.mem import signed32, signed64
from orbitmq.store.entry_scan import FILLER_SIZE, scan
from orbitmq.store.queue_files import QueueFiles
from orbitmq.store.types import LogOffset, QueueOffset

Confirms = Callable[[LogOffset, int, QueueOffset], bool]  # whether the log has that record, of that size and of that offset in the queue
StoreTimeOf = Callable[[LogOffset, int], int]  # of the record of that log offset and size; -1 when it is not in the log

log = logging.getLogger(__name__)
_FILES_CHECKED = 3
_SCAN_SIZE_MIN = 4096
_SCAN_SIZE_MAX = 1 << 20


class EntryQueue(ABC):
    """The entries of one queue. Positions are bytes; `min_position` is where the first entry of a record that is still there stands."""

    __slots__ = ("_begin", "_next", "_pending", "damaged", "files", "max_physical_offset", "min_position")
    ENTRY_SIZE: ClassVar[int]

    def __init__(self, files: QueueFiles) -> None:
        assert files.file_size % self.ENTRY_SIZE == 0, "a file holds whole entries"
        self.files = files
        self.min_position = 0
        self.max_physical_offset = 0  # the log offset behind the last record that has an entry
        self.damaged = False
        self._pending = bytearray()  # entries that were put, not written yet
        self._next = 0  # the position behind them
        self._begin = 0  # of the first of them, when the queue begins with it and not at 0

    @property
    @abstractmethod
    def min_offset(self) -> QueueOffset:
        """The first queue offset whose record is in the log; the maximum when none is."""

    @property
    @abstractmethod
    def max_offset(self) -> QueueOffset:
        """The queue offset behind the last one that is written."""

    def commit(self) -> None:
        """Write what was put; WriteFailed keeps it, to be tried again."""
        if not self._pending:
            return
        try:
            self.files.append(self._pending, self._next - len(self._pending))
        except OSError as error:
            self._pending = bytearray(self._pending)  # whoever holds the error holds a view of the old one, which cannot grow then
            raise self._write_failed(len(self._pending), error) from error
        self._pending = bytearray()
        if self._begin:
            self.min_position, self._begin = self._begin, 0

    def _write_failed(self, size: int, error: OSError) -> WriteFailed:
        return WriteFailed(
            f"queue {self.files.folder}: {size} bytes at {self.files.end} could not be written: {error}; they are written with the next try"
        )

    def recover(self, log_end: int, confirms: Confirms | None = None, safe_offset: int | None = None) -> None:
        """Load the files and find the end of the entries.

        Those of records from `safe_offset` on may not be on disk, whatever they read as: they are written again. None: all are.
        """
        files, size = self.files, self.ENTRY_SIZE
        files.load()
        self.damaged = False
        starts = files.starts
        position = starts[-_FILES_CHECKED:][0] if starts else 0
        while safe_offset is not None and position > files.first and not 0 < self._log_offset(position) <= safe_offset:
            position -= files.file_size
        physical_end = 0
        count = _SCAN_SIZE_MIN // size  # little at first: reading the hole behind the end takes memory for it
        while position < files.end:
            chunk = files.read(position, count * size)
            count = min(2 * count, _SCAN_SIZE_MAX // size)
            whole, physical_end = scan(chunk, size, physical_end, log_end)
            position += whole
            if whole < len(chunk):
                self.damaged = _is_damage(chunk[whole : whole + size], log_end)
                break
        self.min_position = files.first
        self._cut(position, confirms)
        self.damaged |= files.end < position  # the log reaches behind what was taken off
        if safe_offset is not None:
            files.renew(self._first_at_or_behind(safe_offset, files.first))
        if self.damaged:
            log.error("queue_damaged folder=%s position=%d", files.folder, position)

    def truncate_physical(self, log_end: int) -> None:
        """Forget the entries of records at `log_end` and behind."""
        self._cut(self._first_at_or_behind(log_end, self.files.first), None)

    def correct_min(self, log_min: int) -> None:
        """Move the minimum up to the first entry of a record that is still in the log; to the end if there is none."""
        if self.files.first <= self.min_position < self.files.end and self._log_offset(self.min_position) >= log_min:
            return
        self.min_position = self._first_at_or_behind(log_min, max(self.min_position, self.files.first))

    def delete_before(self, log_min: int) -> int:
        """Remove files, never the last, whose records are all gone, and correct the minimum; how many."""
        files, count = self.files, 0
        while files.end - files.first > files.file_size:
            if self._log_offset(files.first + files.file_size - self.ENTRY_SIZE) >= log_min:
                break
            files.drop_first()
            count += 1
        self.correct_min(log_min)
        return count

    def first_stored_at(self, time_ms: int, store_time_of: StoreTimeOf) -> LogOffset:
        """The log offset of the first record from the minimum on that was stored then or later; behind the last when there is none.

        A record of which nobody knows when it was stored counts as later.
        """
        size, files = self.ENTRY_SIZE, self.files
        low, high, step = self.min_position // size, files.end // size, 1

        def is_before(number: int) -> bool:
            entry = files.read(number * size, 12)
            return 0 <= store_time_of(LogOffset(signed64(entry, 0)), signed32(entry, 8)) < time_ms

        while low < high:  # near the minimum first: elsewhere a look at the log may have to wait for the disk
            number = min(low + step, high) - 1
            if not is_before(number):
                high = number
                break
            low, step = number + 1, 2 * step
        while low < high:
            number = (low + high) // 2
            low, high = (number + 1, high) if is_before(number) else (low, number)
        return LogOffset(self._log_offset(low * size) if low * size < files.end else self.max_physical_offset)

    def destroy(self) -> None:
        """Remove the queue's files; it is empty, and begins anew wherever the next entry says."""
        self.files.destroy()
        self._cut(0, None)
        self.damaged = False

    def last_physical_offset(self) -> LogOffset:
        """The log offset of the last entry's record, -1 without any."""
        return LogOffset(self._log_offset(self.files.end - self.ENTRY_SIZE)) if self.files.end > self.files.first else LogOffset(-1)

    @abstractmethod
    def _offset_of(self, position: int, entry: bytes) -> QueueOffset:
        """The queue offset of the first message of an entry."""

    def _cut(self, position: int, confirms: Confirms | None) -> None:
        """Let the entries end at `position`, or before it where the log does not confirm the last; everything else follows from that."""
        files, size = self.files, self.ENTRY_SIZE
        physical_end = 0
        while position > files.first:
            entry = files.read(position - size, size)
            offset, length = signed64(entry, 0), signed32(entry, 8)
            if length == FILLER_SIZE:  # its offset is where the record before it ends
                physical_end = offset
                break
            if confirms is None or confirms(LogOffset(offset), length, self._offset_of(position - size, entry)):
                physical_end = offset + length
                break
            position -= size
        files.cut(position)
        self._pending.clear()
        self._next, self._begin = files.end, 0
        self.max_physical_offset = physical_end
        self.min_position = min(self.min_position, files.end)

    def _first_at_or_behind(self, log_offset: int, low: int) -> int:
        """Where the first entry, from `low` on, of a record at `log_offset` or behind stands; the end when there is none."""
        size = self.ENTRY_SIZE
        low, high = low // size, self.files.end // size
        while low < high:
            middle = (low + high) // 2
            if self._log_offset(middle * size) >= log_offset:
                high = middle
            else:
                low = middle + 1
        return low * size

    def _log_offset(self, position: int) -> int:
        """The log offset that the entry at `position` has; -1 for one that was filled in before the first."""
        entry = self.files.read(position, 12)
        offset = signed64(entry, 0)
        return -1 if offset == 0 and signed32(entry, 8) == FILLER_SIZE else offset


def _is_damage(entry: bytes, log_end: int) -> bool:
    """Whether what stands where the entries end is neither nothing nor an entry whose record the log has not, or not any more."""
    offset, size = signed64(entry, 0), signed32(entry, 8)
    return any(entry) and not (offset >= 0 and size > 0 and offset + size > log_end)


def whole_entries(file_size: int, entry_size: int) -> int:
    """The size of a file, rounded up to hold whole entries."""
    return -(-file_size // entry_size) * entry_size
