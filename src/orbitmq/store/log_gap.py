"""Where the commit log goes on behind a record that is not good; or that it does not, or that this cannot be told.

A record is good when it says its own offset, its parts add up, its body has its checksum, and its store time is not before those of all
recent good ones: what an earlier use of the same bytes left behind is older. From the bad place on, in this order:

1. A frame that adds up and says its own offset has its size, though its body be damaged: what follows stands behind it.
2. Otherwise what follows is the next place in the file where a good record stands.
3. If there is none, it is looked for in the next file, whose beginning is one.

If nothing good follows, the bad place is the end: the tail of a log whose writer died. Doubt is left in one case: the bad record says that
it is so long that the good one lies within it, and nothing that belongs to a log stands behind that one: it may be a part of the bad
record's body, written by whoever sent it.

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
_CHUNK = 1 << 20  # how much is searched before holes are looked for again


class Gap(NamedTuple):
    """The bad bytes before `next_offset`, where a good record stands; when that is None, the log ends where the gap begins."""

    bad: tuple[BadBytes, ...]
    next_offset: LogOffset | None
    doubt: str | None = None  # why `next_offset` may be wrong


class LogGap:
    """Looks behind bad records of one log."""

    def __init__(self, files: FileQueue, *, check_record: bool = False) -> None:
        self._files = files
        self._check_record = check_record
        self._cursor = RecordCursor()

    def behind(self, offset: LogOffset, store_time_ms: int) -> Gap:
        """What follows the bad record at `offset`, behind good ones of which the last was stored then."""
        bad: list[BadBytes] = []
        doubt: str | None = None
        position: int = offset
        while (file := self._files.find(position)) is not None and position < self._files.end_offset:
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
        """Why no good record stands there, stored at that time or later; None when one does."""
        record = self._cursor
        result = record.read(file.view(), at, self._end(file), True, self._check_record)
        if result <= 0:
            return flaw_text(result)
        if record.log_offset != file.start + at:
            return f"it says that it is at {record.log_offset}"
        return None if record.store_time_ms >= store_time_ms else "it is older than what stands before it"

    def _frame_size(self, file: MappedFile, at: int) -> int | None:
        """The size of what stands there if its frame is right, to the end of the file for a blank; None when it is not."""
        result = self._cursor.read(file.view(), at, self._end(file), False)
        if result == 0:
            return file.size - at
        return result if result > 0 and self._cursor.log_offset == file.start + at else None

    def _search(self, file: MappedFile, at: int, store_time_ms: int) -> int:
        """The first place from `at` on where a good record stands, the end of the file when there is none."""
        content, end = file.view().obj, self._end(file)
        at += _MAGIC_AT
        assert isinstance(content, mmap.mmap), "files are read through maps"
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
        """Why the good record at `following` may be a part of the bad one at `at`."""
        end = self._end(file)
        if following == file.size or following >= at + self._claimed_size(file, at):
            return None
        behind = following + (self._frame_size(file, following) or 0)
        is_followed = behind + 8 > end or not any(file.view()[behind : behind + 8]) or self._frame_size(file, behind) is not None
        return None if is_followed else f"the record at {file.start + following} may be a part of the damaged one before it"

    def _claimed_size(self, file: MappedFile, at: int) -> int:
        """How long the record there says it is; 0 when it does not even begin as one."""
        content, end = file.view(), self._end(file)
        if at + 8 > end or get32(content, at + _MAGIC_AT) not in (MAGIC_V1, MAGIC_V2):
            return 0
        size = signed32(content, at)
        return size if SIZE_MIN <= size <= end - at else 0

    def _end(self, file: MappedFile) -> int:
        return min(file.end, self._files.end_offset) - file.start
