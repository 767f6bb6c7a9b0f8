"""Goes over the records of a commit log from one offset to another, file after file, and says where and why it had to stop.

The one reader of log structure: dispatch, recovery and tools use it. It decides nothing: whether a bad record is the end of the log,
or damage, is for its caller to judge. A record that is not where it says it is counts as bad, which the original does not check:
it is what an earlier use of the same bytes left behind.
"""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.message.layout import Flaw
from orbitmq.message.record import flaw_text
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.file_queue import FileQueue
from orbitmq.store.types import LogOffset


class LogScan:
    """Iterate over it: it moves one cursor from record to record, and blanks are passed over.

    `offset` is behind the last good record, at the next file's start after a blank. When the iteration ends, `problem` is None if
    `stop` was reached or no file holds `offset`, else what is wrong there; then `problem_size` is the size of the bad record, 0 when its
    size cannot be believed.
    """

    __slots__ = ("_check_body", "_check_record", "_cursor", "_files", "_stop", "offset", "problem", "problem_size")

    def __init__(
        self, files: FileQueue, begin: LogOffset, stop: LogOffset | None = None, *, check_body: bool = True, check_record: bool = False
    ) -> None:
        self.offset = begin
        self.problem: str | None = None
        self.problem_size = 0
        self._files = files
        self._stop = stop
        self._check_body = check_body
        self._check_record = check_record
        self._cursor = RecordCursor()

    def __iter__(self) -> Iterator[RecordCursor]:
        cursor, files = self._cursor, self._files
        while (file := files.find(self.offset)) is not None:
            buffer, start = file.view(), file.start
            end = min(file.end, files.end_offset if self._stop is None else self._stop) - start
            at = self.offset - start
            while at < end:
                result = cursor.read(buffer, at, end, self._check_body, self._check_record)
                if result > 0 and cursor.log_offset == start + at:
                    at += result
                    self.offset = LogOffset(start + at)
                    yield cursor
                elif result == 0:
                    self.offset = LogOffset(file.end)
                    break
                else:
                    self._stop_at(result, start + at)
                    return
            else:
                if end < file.size:
                    return

    def _stop_at(self, result: int, offset: int) -> None:
        if result > 0:
            self.problem = f"the record at {offset} says that it is at {self._cursor.log_offset}"
        else:
            self.problem = f"no record at {offset}: {flaw_text(result)}"
        self.problem_size = self._cursor.size if result > 0 or result == Flaw.LENGTHS else 0
