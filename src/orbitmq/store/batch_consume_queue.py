"""A batch consume queue: one entry of 46 bytes for each record that holds a batch, so an entry
stands for several queue offsets.

Entry, big-endian:

| at | size | |
|---|---|---|
| 0 | 8 | log offset of the record |
| 8 | 4 | size of the record |
| 12 | 8 | tags code |
| 20 | 8 | store time |
| 28 | 8 | queue offset of the first message in the batch |
| 36 | 2 | number of messages |
| 38 | 4 | position in the compacted log, -1 |
| 42 | 4 | 0 |

The entry of a queue offset is found by binary search. Building, crash rule and cleaning: see
`entry_queue`.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from orbitmq.store.consume_queue import Boundary
from orbitmq.store.entry_queue import EntryQueue
from orbitmq.store.entry_scan import FILLER_SIZE
from orbitmq.store.types import LogOffset, QueueOffset, StoreTimeMs

ENTRY = Struct(">qiqqqhii")
ENTRY_SIZE = ENTRY.size
_NOT_COMPACTED = -1


class BatchEntry(NamedTuple):
    """The place of a batch in the log, and the messages in it."""

    log_offset: LogOffset
    size: int
    tags_code: int
    store_time_ms: StoreTimeMs
    base_offset: QueueOffset
    batch_size: int
    compacted_at: int = _NOT_COMPACTED
    reserved: int = 0

    @property
    def next_offset(self) -> QueueOffset:
        """The queue offset after the batch."""
        return QueueOffset(self.base_offset + self.batch_size)


class BatchConsumeQueue(EntryQueue):
    """The batches of one queue."""

    __slots__ = ()
    ENTRY_SIZE = ENTRY_SIZE

    @property
    def min_offset(self) -> QueueOffset:
        """The first queue offset whose record is in the log; the maximum if there is none."""
        first = self._at(self.min_position)
        return self.max_offset if first is None else first.base_offset

    @property
    def max_offset(self) -> QueueOffset:
        """The queue offset after the last written batch."""
        last = self._at(self.files.end - ENTRY_SIZE)
        return QueueOffset(0) if last is None else last.next_offset

    def put(self, entry: BatchEntry) -> None:
        """Add the entry of a record, written by the next `commit`; does nothing if it is
        present.
        """
        physical_end = entry.log_offset + entry.size
        if physical_end <= self.max_physical_offset:
            return
        if entry.base_offset < (next_offset := self._next_offset):
            self._leave_out(entry.base_offset, next_offset, entry.log_offset)
            return
        self._pending += ENTRY.pack(*entry)
        self._next += ENTRY_SIZE
        self.max_physical_offset = physical_end

    @property
    def _next_offset(self) -> QueueOffset:
        """The queue offset after the last put batch."""
        if not self._pending:
            return self.max_offset
        return BatchEntry._make(ENTRY.unpack_from(self._pending, -ENTRY_SIZE)).next_offset

    def begin_at(self, offset: QueueOffset) -> None:
        """Make an empty queue begin at `offset`: its one entry is a filler for the message
        before.
        """
        filler = BatchEntry(
            LogOffset(0), FILLER_SIZE, 0, StoreTimeMs(0), QueueOffset(offset - 1), 1
        )
        self._begin_with(ENTRY.pack(*filler), ENTRY_SIZE)

    def get(self, offset: QueueOffset) -> BatchEntry | None:
        """Return the batch that contains `offset`, or the next one if that is lost; None if out of
        range.
        """
        position = self._position(offset)
        return None if position < 0 else self._at(position)

    def entries(self, offset: QueueOffset, count: int) -> bytes:
        """Return up to `count` entries, from the batch that contains `offset` or the next one on;
        none if out of range.
        """
        position = self._position(offset)
        return b"" if position < 0 else self.files.read(position, count * ENTRY_SIZE)

    def offset_by_time(self, time_ms: StoreTimeMs, boundary: Boundary) -> QueueOffset:
        """Return the base offset of a batch at a store time, within the queue's minimum and
        maximum.

        As in Apache: in the last file that begins at that time or earlier, or else the first file,
        the last batch if it is not later than the time; otherwise with LOWER the first one of that
        time or later, with UPPER the last one of that time (if none is, the next one or, as its
        search happens to go, the queue's minimum).
        """
        found = self._search(time_ms, boundary)
        return min(max(found, self.min_offset), self.max_offset)

    def _search(self, time_ms: int, boundary: Boundary) -> QueueOffset:
        starts = self.files.starts
        if not starts:
            return QueueOffset(-1)
        start = next(
            (start for start in reversed(starts) if self._time(start) <= time_ms), starts[0]
        )
        last = min(self.files.end, start + self.files.file_size) - ENTRY_SIZE
        if time_ms >= self._time(last):
            return self._base(last)
        left, right = start // ENTRY_SIZE, last // ENTRY_SIZE
        while left <= right:
            middle = (left + right) // 2
            found = self._time(middle * ENTRY_SIZE)
            if middle in (left, right):  # one or two entries left: take the first not earlier
                if found >= time_ms:
                    return self._base(middle * ENTRY_SIZE)
                left = middle + 1
            elif boundary is Boundary.LOWER:
                left, right = (middle + 1, right) if found < time_ms else (left, middle)
            else:
                left, right = (middle, right) if found <= time_ms else (left, middle - 1)
        return QueueOffset(-1)

    def offset_of(self, position: int, entry: bytes) -> QueueOffset:
        return QueueOffset(ENTRY.unpack(entry)[4])

    def _position(self, offset: QueueOffset) -> int:
        """Return the position of the entry of the batch that contains `offset`, or of the next; -1
        if out of range.
        """
        low, high = self.min_position // ENTRY_SIZE, self.files.end // ENTRY_SIZE
        if low == high or not self.min_offset <= offset < self.max_offset:
            return -1
        while high - low > 1:
            middle = (low + high) // 2
            if self._base(middle * ENTRY_SIZE) <= offset:
                low = middle
            else:
                high = middle
        found = self._at(low * ENTRY_SIZE)
        return (low if found is not None and offset < found.next_offset else low + 1) * ENTRY_SIZE

    def _at(self, position: int) -> BatchEntry | None:
        found = self.files.read(position, ENTRY_SIZE)
        return BatchEntry._make(ENTRY.unpack(found)) if found else None

    def _base(self, position: int) -> QueueOffset:
        return QueueOffset(int.from_bytes(self.files.read(position + 28, 8), "big", signed=True))

    def _time(self, position: int) -> int:
        return int.from_bytes(self.files.read(position + 20, 8), "big", signed=True)
