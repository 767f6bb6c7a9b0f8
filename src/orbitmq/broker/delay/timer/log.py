"""The timer log: an entry for each timed message that entered the wheel, chained by slot, newest
first.

Entry, 52 bytes, big-endian:

| at | size | |
|---|---|---|
| 0 | 4 | 52 |
| 4 | 8 | position of the previous entry of its slot, -1 for the first |
| 12 | 4 | magic: 1, plus 2 if it is to be rolled, plus 4 if it recalls another message |
| 16 | 8 | when it entered the wheel, ms, rounded down to a slot's begin |
| 24 | 4 | begin of its slot, ms after that |
| 28 | 8 | log offset of the message |
| 36 | 4 | size of its record |
| 40 | 4 | Java's hash of its destination topic |
| 44 | 8 | exact due time, ms; Apache RocketMQ writes 0 and does not read it |

A file without room for 68 more bytes ends with `remaining (4), 0 (8), 0xCBD43194 (4)`. Crash rule:
the valid part ends where the timer's check point says; `cut` removes the rest, which is appended
again. Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.message.layout import MAGIC_BLANK
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.file_queue import FileQueue, FlushJob

_ENTRY: Final = Struct(">iqiqiqiiq")
_BLANK: Final = Struct(">iqI")
ENTRY_SIZE: Final = _ENTRY.size
NO_POSITION: Final = -1

DEFAULT: Final = 1
ROLL: Final = 2
DELETE: Final = 4
_KNOWN: Final = 0xF

log = logging.getLogger(__name__)


class TimerEntry(NamedTuple):
    """One entry; `slot_ms` is the begin of its slot."""

    previous: int
    magic: int
    enqueued_ms: int
    delay_ms: int
    log_offset: int
    size: int
    topic_hash: int
    deliver_ms: int  # 0: the message's properties hold the time

    @property
    def slot_ms(self) -> int:
        return self.enqueued_ms + self.delay_ms

    @property
    def is_recall(self) -> bool:
        """Whether it recalls another message of its slot."""
        return self.magic & (ROLL | DELETE) == DELETE


class TimerLog:
    """The files of the log; `end` is the position after the last entry."""

    def __init__(self, layer: FileLayer, folder: Path, file_size: int) -> None:
        self._layer = layer
        self._folder = folder
        self._files = FileQueue(layer, [folder], file_size)
        self._pending = bytearray()  # entries that are not written yet, all of one file

    @property
    def end(self) -> int:
        return self._files.end_offset + len(self._pending)

    @property
    def first(self) -> int:
        return self._files.first_offset

    def load(self) -> None:
        """Find the files. Raises StoreError if one has another size than configured."""
        self._files.load()

    def has(self, position: int) -> bool:
        """Return whether there may be entries before that position."""
        return self._files.first_offset <= position <= self._files.end_offset

    def cut(self, end: int) -> None:
        """Truncate the log to that position, durably."""
        self._files.truncate_to(end)
        self._files.flush()

    def clear(self) -> None:
        """Delete everything; the next entry is at position 0."""
        self._files.close()
        for file in reversed(self._files.files):
            file.delete()
        self._files = FileQueue(self._layer, [self._folder], self._files.file_size)

    def append(self, entry: TimerEntry) -> int:
        """Append an entry, written by the next `write`; return its position. Raises OSError if the
        entries of a full file cannot be written.
        """
        room = self._files.file_size - self.end % self._files.file_size
        if room < ENTRY_SIZE + _BLANK.size:
            self.write()
            self._files.write(self._files.end_offset, _BLANK.pack(room, 0, MAGIC_BLANK))
            self._files.end_offset += room
        position = self.end
        self._pending += _ENTRY.pack(ENTRY_SIZE, *entry)
        return position

    def write(self) -> None:
        """Write the appended entries; after an OSError they are kept for the next attempt."""
        if self._pending:
            self._files.write(self._files.end_offset, self._pending)
            self._files.end_offset += len(self._pending)
            self._pending = bytearray()

    def read(self, position: int) -> TimerEntry | None:
        """Return the entry at a position, written or not; None if there is none."""
        waiting = position - self._files.end_offset
        if waiting >= 0:
            data: bytes | memoryview | None = bytes(self._pending[waiting : waiting + ENTRY_SIZE])
        else:
            data = self._files.view(position, ENTRY_SIZE)
        return None if data is None or len(data) < ENTRY_SIZE else _decoded(data)

    def scan(self, begin: int, end: int) -> Iterator[tuple[int, TimerEntry]]:
        """Yield the entries of [begin, end) with their positions; stop at the first invalid one."""
        position = begin
        while position < end:
            file_end = position - position % self._files.file_size + self._files.file_size
            entry = self.read(position) if file_end - position >= ENTRY_SIZE + _BLANK.size else None
            if entry is not None:
                yield position, entry
                position += ENTRY_SIZE
            elif self._is_blank(position):
                position = file_end
            else:
                log.error("timer_log_damaged position=%d end=%d", position, end)
                return

    def behind(self, position: int) -> int:
        """Return the position of the next entry after that of a position."""
        end = position + ENTRY_SIZE
        room = self._files.file_size - end % self._files.file_size
        return (
            end + room
            if room < ENTRY_SIZE + _BLANK.size and end + room <= self._files.end_offset
            else end
        )

    def begin_sync(self) -> FlushJob | None:
        """Return the sync job that makes all written entries durable; None if they are. Every job
        must be passed to `end_sync`.
        """
        return self._files.begin_flush()

    def end_sync(self, job: FlushJob, error: BaseException | None) -> None:
        """Finish a job, with or without an error."""
        self._files.end_flush(job, None if error is None else OSError(str(error)))

    def delete_unused(self, is_used: Callable[[TimerEntry], bool]) -> int:
        """Delete the oldest files whose last entry is not needed; return how many."""
        count = 0
        while len(self._files.files) > 1 and self._files.files[0].end <= self._files.end_offset:
            last = (self._files.file_size - _BLANK.size) // ENTRY_SIZE * ENTRY_SIZE - ENTRY_SIZE
            entry = self.read(self._files.files[0].start + last)
            if entry is None or is_used(entry):
                break
            if not self._files.delete_oldest():
                break
            count += 1
        return count

    def close(self) -> None:
        self._files.close()

    def _is_blank(self, position: int) -> bool:
        data = self._files.view(position, _BLANK.size)
        return data is not None and _BLANK.unpack(data)[2] == MAGIC_BLANK


def _decoded(data: bytes | memoryview) -> TimerEntry | None:
    size, *fields = _ENTRY.unpack(data)
    entry = TimerEntry._make(fields)
    return entry if size == ENTRY_SIZE and entry.magic | _KNOWN == _KNOWN else None
