"""The base of both kinds of queue: fixed-size entries that point into the commit log, in the order
of the log; building, truncation, cleaning.

Entry i begins at byte i times the entry size, counted over all files. Readers see committed entries
only.

`put` fills a buffer and `commit` writes it, one write per file. An entry whose record is below
`max_physical_offset` is present already, and is skipped: dispatching the log again from any lower
offset gives the same queue. A failed commit drops what was put since the last one, so that the
records can be put again.

`begin_offset` is where the present life of the queue's topic begins in the log: records before it
belong to a deleted topic.

Crash rule: at start a queue is proven to have the written bytes (`adopt`), up to an entry, or it is
rebuilt from the log. `recover` is for unknown files: it reads the last three as far as entries are
complete, in the order of the log and below its end. Arbitrary bytes in a file read as fewer
entries.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from orbitmq.common.errors import WriteFailedError
from orbitmq.common.mem import signed32, signed64
from orbitmq.store.entry_scan import FILLER_SIZE, scan
from orbitmq.store.queue_files import FilesState, QueueFiles
from orbitmq.store.types import LogOffset, QueueOffset

StoreTimeOf = Callable[[LogOffset, int], int]  # of a record's log offset and size; -1 if missing

log = logging.getLogger(__name__)

_FILES_CHECKED = 3
_SCAN_SIZE_MIN = 4096
_SCAN_SIZE_MAX = 1 << 20


class QueueState(NamedTuple):
    """The content of a queue's files: entries, units of the ext file if there is one, the log
    offset after the last entry's record, and the queue offset after its last message.
    """

    entries: FilesState
    units: FilesState | None
    physical_end: int
    next_offset: QueueOffset = QueueOffset(0)


class EntryQueue(ABC):
    """The entries of one queue. Positions are bytes; `min_position` is that of the first entry
    whose record still exists.
    """

    __slots__ = (
        "_begin",
        "_has_left_out",
        "_next",
        "_pending",
        "_written_physical_end",
        "begin_offset",
        "files",
        "max_physical_offset",
        "min_position",
    )
    ENTRY_SIZE: ClassVar[int]

    def __init__(self, files: QueueFiles, begin_offset: int = 0) -> None:
        assert files.file_size % self.ENTRY_SIZE == 0, "a file holds whole entries"
        self.files = files
        self.min_position = 0
        self.begin_offset = begin_offset
        self.max_physical_offset = begin_offset  # the log offset after the last put entry's record
        self._written_physical_end = begin_offset  # the same for the last written entry
        self._pending = bytearray()  # entries that were put, not written yet
        self._next = 0  # the position after them
        self._has_left_out = False
        self._begin = 0  # of the first of them, if the queue begins with it and not at 0

    @property
    @abstractmethod
    def min_offset(self) -> QueueOffset:
        """The first queue offset whose record is in the log; the maximum if there is none."""

    @property
    @abstractmethod
    def max_offset(self) -> QueueOffset:
        """The queue offset after the last written one."""

    def commit(self) -> None:
        """Write the put entries; after WriteFailedError all of them are dropped, and can be put
        again.
        """
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

    @abstractmethod
    def begin_at(self, offset: QueueOffset) -> None:
        """Make an empty queue begin at `offset`: the messages before it are no longer in
        the log.
        """

    def _leave_out(self, offset: int, next_offset: int, log_offset: int) -> None:
        """Log, once per queue, that a record is in the log but not in the queue."""
        if not self._has_left_out:
            self._has_left_out = True
            log.warning(
                "record_left_out folder=%s offset=%d next_offset=%d log_offset=%d reason=an earlier"
                " record has its offset: the topic was deleted and created again, and its begin in"
                " the log is unknown, or the record is corrupt; more may follow",
                self.files.folder,
                offset,
                next_offset,
                log_offset,
            )

    def _begin_with(self, fillers: bytes, end: int) -> None:
        """Make the queue empty, with fillers up to byte `end`: without a file, its next offset
        would be lost.
        """
        assert self.files.end == self._next == 0, "it is empty"
        self._pending += fillers
        self._next = self._begin = end
        self.commit()

    def forget_pending(self) -> None:
        """Drop the entries that were put and are not written."""
        # A new buffer: the traceback of a failed write holds a view of the old one.
        self._pending = bytearray()
        self._next, self._begin = self.files.end, 0
        self.max_physical_offset = self._written_physical_end

    def _write_failed(self, size: int, error: OSError) -> WriteFailedError:
        return WriteFailedError(
            f"queue {self.files.folder}: {size} bytes at {self.files.end} could not be written:"
            f" {error}; the next attempt writes them"
        )

    @property
    def state(self) -> QueueState | None:
        """What proves the content at the next start; None if that is unknown."""
        entries = self.files.state
        return (
            None
            if entries is None
            else QueueState(entries, None, self._written_physical_end, self.max_offset)
        )

    def has_units(self, units: FilesState) -> bool:
        """Whether the ext files have that state; only a consume queue has any."""
        return not units.checksums

    def adopt(self, state: QueueState) -> None:
        """Continue after the entries of files that were proven to have that state."""
        self.files.adopt(state.entries)
        self.min_position = self.files.first
        self._cut(self.files.end)

    def recover(self, log_end: int) -> None:
        """Load unknown files, and find the end of the entries."""
        files, size = self.files, self.ENTRY_SIZE
        files.load()
        starts = files.starts
        position = starts[-_FILES_CHECKED:][0] if starts else 0
        physical_end = 0
        # Little at first: reading the hole after the end takes memory.
        count = _SCAN_SIZE_MIN // size
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
        """Drop the entries of records at or after `log_end`."""
        self._cut(self._first_at_or_after(log_end, self.files.first))

    def correct_min(self, log_min: int) -> None:
        """Move the minimum up to the first entry whose record is still in the log, or to
        the end.
        """
        if (
            self.files.first <= self.min_position < self.files.end
            and self._log_offset(self.min_position) >= log_min
        ):
            return
        self.min_position = self._first_at_or_after(
            log_min, max(self.min_position, self.files.first)
        )

    def delete_before(self, log_min: int) -> int:
        """Remove files, never the last, whose records are all deleted, and correct the minimum;
        return how many.
        """
        files, count = self.files, 0
        while files.end - files.first > files.file_size:
            if self._log_offset(files.first + files.file_size - self.ENTRY_SIZE) >= log_min:
                break
            files.drop_first()
            count += 1
        self.correct_min(log_min)
        return count

    def first_stored_at(self, time_ms: int, store_time_of: StoreTimeOf) -> LogOffset:
        """Return the log offset of the first record from the minimum on that was stored at that
        time or later, or the offset after the last.

        A record of unknown store time counts as later.
        """
        size, files = self.ENTRY_SIZE, self.files
        low, high, step = self.min_position // size, files.end // size, 1

        def is_before(number: int) -> bool:
            entry = files.read(number * size, 12)
            return 0 <= store_time_of(LogOffset(signed64(entry, 0)), signed32(entry, 8)) < time_ms

        # Near the minimum first: a read elsewhere in the log may have to wait for the disk.
        while low < high:
            number = min(low + step, high) - 1
            if not is_before(number):
                high = number
                break
            low, step = number + 1, 2 * step
        while low < high:
            number = (low + high) // 2
            low, high = (number + 1, high) if is_before(number) else (low, number)
        return LogOffset(
            self._log_offset(low * size) if low * size < files.end else self.max_physical_offset
        )

    def destroy(self) -> None:
        """Remove the queue's files; it is empty, and begins again at the next entry's offset."""
        self.files.destroy()
        self._cut(0)

    def reuse_files(self) -> None:
        """Overwrite the existing files in the queue's folder; the queue is new, and owns none of
        them.
        """
        self.files.reuse()

    def remove_other_files(self) -> None:
        """Remove the files in the queue's folder that it does not own."""
        self.files.remove_others()

    def last_physical_offset(self) -> LogOffset:
        """Return the log offset of the last entry's record, -1 if there is none."""
        return (
            LogOffset(self._log_offset(self.files.end - self.ENTRY_SIZE))
            if self.files.end > self.files.first
            else LogOffset(-1)
        )

    @abstractmethod
    def offset_of(self, position: int, entry: bytes) -> QueueOffset:
        """Return the queue offset of the first message of an entry."""

    def _cut(self, position: int) -> None:
        """Truncate the entries to `position` and derive everything else from that."""
        self.files.cut(position)
        self._written_physical_end = max(self._physical_end(self.files.end), self.begin_offset)
        self.forget_pending()
        self.min_position = min(self.min_position, self.files.end)

    def _physical_end(self, position: int) -> int:
        """Return the log offset after the record of the entry that ends at `position`, 0 if there
        is none.
        """
        entry = self.files.read(position - self.ENTRY_SIZE, 12)
        if not entry:
            return 0
        offset, length = signed64(entry, 0), signed32(entry, 8)
        # A filler's offset is where the record before it ends.
        return offset if length == FILLER_SIZE else offset + length

    def _first_at_or_after(self, log_offset: int, low: int) -> int:
        """Return the position of the first entry, from `low` on, whose record is at or after
        `log_offset`, or the end.
        """
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
        """Return the log offset of the entry at `position`; -1 for a filler before the
        first entry.
        """
        entry = self.files.read(position, 12)
        offset = signed64(entry, 0)
        return -1 if offset == 0 and signed32(entry, 8) == FILLER_SIZE else offset


def whole_entries(file_size: int, entry_size: int) -> int:
    """Return the size of a file, rounded up to whole entries."""
    return -(-file_size // entry_size) * entry_size
