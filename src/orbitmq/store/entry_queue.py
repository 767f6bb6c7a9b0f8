"""What both kinds of queue share: entries of one size that point into the commit log, in the order of the log; built, cut, cleaned.

The byte at which entry i stands is i times the entry's size, counted over all files. Readers see committed entries only.

Built by `put` into a buffer and `commit`, one write per file. An entry whose record lies below `max_physical_offset` was put before, and
is skipped: dispatching the log again from anywhere below gives the same queue. A commit that fails forgets what was put since the last
one, so that the records can be put again.

`begin_offset` is where the present life of the queue's topic begins in the log: records before it belong to a topic that was deleted.

Crash rule: at start a queue is proven to have the bytes that were written (`adopt`), up to an entry, or it is rebuilt from the log.
`recover` is for files of which nothing is known: it reads the last three as far as entries are complete, in the order of the log and below
its end. Any bytes at all in a file read as fewer entries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from orbitmq.common.errors import WriteFailed
from orbitmq.common.mem import signed32, signed64
from orbitmq.store.entry_scan import FILLER_SIZE, scan
from orbitmq.store.queue_files import FilesState, QueueFiles
from orbitmq.store.types import LogOffset, QueueOffset

StoreTimeOf = Callable[[LogOffset, int], int]  # of the record of that log offset and size; -1 when it is not in the log

_FILES_CHECKED = 3
_SCAN_SIZE_MIN = 4096
_SCAN_SIZE_MAX = 1 << 20


class QueueState(NamedTuple):
    """What the files of a queue have: entries, units of the ext file if there is one, and the log offset behind the last entry's record."""

    entries: FilesState
    units: FilesState | None
    physical_end: int


class EntryQueue(ABC):
    """The entries of one queue. Positions are bytes; `min_position` is where the first entry of a record that is still there stands."""

    __slots__ = ("_begin", "_next", "_pending", "_written_physical_end", "begin_offset", "files", "max_physical_offset", "min_position")
    ENTRY_SIZE: ClassVar[int]

    def __init__(self, files: QueueFiles, begin_offset: int = 0) -> None:
        assert files.file_size % self.ENTRY_SIZE == 0, "a file holds whole entries"
        self.files = files
        self.min_position = 0
        self.begin_offset = begin_offset
        self.max_physical_offset = begin_offset  # the log offset behind the last record that has an entry
        self._written_physical_end = begin_offset  # the same of the last entry that is written
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
        """Write what was put; after WriteFailed all of it is forgotten, and can be put again."""
        if not self._pending:
            return
        try:
            self.files.append(self._pending, self._next - len(self._pending))
        except OSError as error:
            size = len(self._pending)
            self.forget_pending()
            raise self._write_failed(size, error) from error
        self._pending = bytearray()
        self._written_physical_end = self.max_physical_offset
        if self._begin:
            self.min_position, self._begin = self._begin, 0

    def forget_pending(self) -> None:
        """Forget what was put and is not written."""
        self._pending = bytearray()  # another one: whoever holds the error of a failed write holds a view of the old one
        self._next, self._begin = self.files.end, 0
        self.max_physical_offset = self._written_physical_end

    def _write_failed(self, size: int, error: OSError) -> WriteFailed:
        return WriteFailed(
            f"queue {self.files.folder}: {size} bytes at {self.files.end} could not be written: {error}; they are written with the next try"
        )

    @property
    def state(self) -> QueueState | None:
        """What proves the content at the next start; None when nobody knows what was written."""
        entries = self.files.state
        return None if entries is None else QueueState(entries, None, self._written_physical_end)

    def has_units(self, units: FilesState) -> bool:
        """Whether the ext files have that state; no queue but a consume queue has any."""
        return not units.checksums

    def adopt(self, state: QueueState) -> None:
        """Go on behind the entries of files that were proven to have that state."""
        self.files.adopt(state.entries)
        self.min_position = self.files.first
        self._cut(self.files.end)

    def recover(self, log_end: int) -> None:
        """Load files of which nothing is known, and find the end of the entries."""
        files, size = self.files, self.ENTRY_SIZE
        files.load()
        starts = files.starts
        position = starts[-_FILES_CHECKED:][0] if starts else 0
        physical_end = 0
        count = _SCAN_SIZE_MIN // size  # little at first: reading the hole behind the end takes memory for it
        while position < files.end:
            chunk = files.read(position, count * size)
            count = min(2 * count, _SCAN_SIZE_MAX // size)
            whole, physical_end = scan(chunk, size, physical_end, log_end)
            position += whole
            if whole < len(chunk):
                break
        self.min_position = files.first
        self._cut(position)

    def truncate_physical(self, log_end: int) -> None:
        """Forget the entries of records at `log_end` and behind."""
        self._cut(self._first_at_or_behind(log_end, self.files.first))

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
        self._cut(0)

    def reuse_files(self) -> None:
        """Write over the files that lie where the queue has its own; the queue is a new one, and knows of none."""
        self.files.reuse()

    def remove_other_files(self) -> None:
        """Remove the files that lie where the queue has its own and are none of them."""
        self.files.remove_others()

    def last_physical_offset(self) -> LogOffset:
        """The log offset of the last entry's record, -1 without any."""
        return LogOffset(self._log_offset(self.files.end - self.ENTRY_SIZE)) if self.files.end > self.files.first else LogOffset(-1)

    @abstractmethod
    def offset_of(self, position: int, entry: bytes) -> QueueOffset:
        """The queue offset of the first message of an entry."""

    def _cut(self, position: int) -> None:
        """Let the entries end at `position`; everything else follows from that."""
        self.files.cut(position)
        self._written_physical_end = max(self._physical_end(self.files.end), self.begin_offset)
        self.forget_pending()
        self.min_position = min(self.min_position, self.files.end)

    def _physical_end(self, position: int) -> int:
        """The log offset behind the record of the entry that ends at `position`, 0 when there is none."""
        entry = self.files.read(position - self.ENTRY_SIZE, 12)
        if not entry:
            return 0
        offset, length = signed64(entry, 0), signed32(entry, 8)
        return offset if length == FILLER_SIZE else offset + length  # a filler's offset is where the record before it ends

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


def whole_entries(file_size: int, entry_size: int) -> int:
    """The size of a file, rounded up to hold whole entries."""
    return -(-file_size // entry_size) * entry_size
