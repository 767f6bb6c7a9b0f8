"""Finds the next valid record after a corrupt one, or reports that the log ends here, or that it
cannot tell.

A record is valid if it states its own offset, its parts add up, its body matches its checksum, and
its store time is not before those of all recent valid ones: leftovers of an earlier use of the same
bytes are older. From the corrupt record on, in this order:

1. If the frame adds up and states its own offset, its size is right even if its body is corrupt:
   continue after it.
2. Otherwise continue at the next valid record in the file.
3. If there is none, continue at the start of the next file.

If no valid record follows, the log ends at the corrupt one: the tail of a log whose writer died.
One case stays in doubt: the corrupt record claims a size that includes the valid one, and nothing
that belongs to a log follows that one: it may be part of the corrupt record's body, as its sender
wrote it.

Decides nothing and changes nothing.
"""

from __future__ import annotations

import mmap
from typing import NamedTuple

from orbitmq.common.mem import get32, signed32
from orbitmq.message.layout import MAGIC_V1, MAGIC_V2, SIZE_MIN
from orbitmq.message.record import flaw_text
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.file_queue import FileQueue
from orbitmq.store.mapped_file import MappedFile
from orbitmq.store.quarantine import BadBytes
from orbitmq.store.types import LogOffset

_MAGIC_FIRST_BYTES = MAGIC_V1.to_bytes(4)[:3]
_MAGIC_AT = 4
_CHUNK = 1 << 20  # bytes searched between two looks for holes


class Gap(NamedTuple):
    """The corrupt bytes before `next_offset`, where a valid record begins; if that is None, the log
    ends where the gap begins.
    """

    bad: tuple[BadBytes, ...]
    next_offset: LogOffset | None
    doubt: str | None = None  # why `next_offset` may be wrong


class LogResync:
    """Finds valid records after corrupt ones in one log."""

    def __init__(self, files: FileQueue, *, check_record: bool = False) -> None:
        self._files = files
        self._check_record = check_record
        self._cursor = RecordCursor()

    def find_next(self, offset: LogOffset, store_time_ms: int) -> Gap:
        """Return the gap at the corrupt record at `offset`; valid records before it were stored at
        that time or later.
        """
        bad: list[BadBytes] = []
        doubt: str | None = None
        position: int = offset
        while (
            file := self._files.find(position)
        ) is not None and position < self._files.end_offset:
            at = position - file.start
            reason = self._flaw(file, at, store_time_ms)
            if reason is None:
                return Gap(tuple(bad), LogOffset(position), doubt)
            size, doubt = self._frame_size(file, at), None
            if size is None:
                following = self._search(file, at + 1, store_time_ms)
                doubt = self._doubt(file, at, following)
                size = following - at
            bad.append(BadBytes(LogOffset(position), LogOffset(position + size), reason))
            position += size
        return Gap((), None)

    def _flaw(self, file: MappedFile, at: int, store_time_ms: int) -> str | None:
        """Return why there is no valid record of that store time or later; None if there is one."""
        record = self._cursor
        result = record.read(file.view(), at, self._end(file), True, self._check_record)
        if result <= 0:
            return flaw_text(result)
        if record.log_offset != file.start + at:
            return f"it states the offset {record.log_offset}"
        return (
            None
            if record.store_time_ms >= store_time_ms
            else "it is older than the records before it"
        )

    def _frame_size(self, file: MappedFile, at: int) -> int | None:
        """Return the size of the record or blank there if its frame is right, else None."""
        result = self._cursor.read(file.view(), at, self._end(file), False)
        if result == 0:
            return file.size - at
        return result if result > 0 and self._cursor.log_offset == file.start + at else None

    def _search(self, file: MappedFile, at: int, store_time_ms: int) -> int:
        """Return the position of the first valid record from `at` on, or the size of the file."""
        content, end = file.view().obj, self._end(file)
        at += _MAGIC_AT
        assert isinstance(content, mmap.mmap), "files are read through mappings"
        while (at := file.next_data(at)) < end:
            stop = min(at + _CHUNK, end)
            found = content.find(_MAGIC_FIRST_BYTES, at, min(stop + _MAGIC_AT + 2, end))
            if found < 0:
                at = stop
            elif found >= _MAGIC_AT and self._flaw(file, found - _MAGIC_AT, store_time_ms) is None:
                return found - _MAGIC_AT
            else:
                at = found + 1
        return file.size

    def _doubt(self, file: MappedFile, at: int, following: int) -> str | None:
        """Return why the valid record at `following` may be part of the corrupt one at `at`, or
        None.
        """
        end = self._end(file)
        if following == file.size or following >= at + self._claimed_size(file, at):
            return None
        after = following + (self._frame_size(file, following) or 0)
        is_followed = (
            after + 8 > end
            or not any(file.view()[after : after + 8])
            or self._frame_size(file, after) is not None
        )
        return (
            None
            if is_followed
            else (
                f"the record at {file.start + following} may be part of the corrupt one before it"
            )
        )

    def _claimed_size(self, file: MappedFile, at: int) -> int:
        """Return the size that the record there claims; 0 if it does not begin as a record."""
        content, end = file.view(), self._end(file)
        if at + 8 > end or get32(content, at + _MAGIC_AT) not in (MAGIC_V1, MAGIC_V2):
            return 0
        size = signed32(content, at)
        return size if SIZE_MIN <= size <= end - at else 0

    def _end(self, file: MappedFile) -> int:
        return min(file.end, self._files.end_offset) - file.start
