"""Scans the records of a commit log from one offset to another, file after file, and reports where
and why it stopped.

The one reader of log structure: dispatch, recovery and tools use it. It decides nothing: whether a
corrupt record is the end of the log or damage is up to its caller. A record whose own offset
differs from its place counts as corrupt, which Apache does not check: it is a leftover of an
earlier use of the same bytes. With a quarantine, corrupt bytes are put there and the scan continues
after them, where `log_resync` is certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from orbitmq.message.record import flaw_text
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.file_queue import FileQueue
from orbitmq.store.log_resync import LogResync
from orbitmq.store.mapped_file import MappedFile
from orbitmq.store.quarantine import Quarantine
from orbitmq.store.record_scanner import RecordScanner
from orbitmq.store.types import LogOffset, StoreTimeMs

_STRIDE = 4 << 20  # bytes between two progress reports


class LogScan:
    """An iterator over one cursor that moves from record to record; blanks are skipped. `to_end`
    scans without yielding.

    `offset` is after the last valid record, or at the next file's start after a blank;
    `store_time_ms` is that record's. Records that begin at or after `stop` are not read. At the
    end, `problem` is None if there are no more records, else what is wrong at `offset`; `doubt` is
    why the scan did not continue at the next valid record, if there is one.
    """

    __slots__ = (
        "_check_body",
        "_check_record",
        "_cursor",
        "_files",
        "_quarantine",
        "_stop",
        "doubt",
        "offset",
        "problem",
        "scanner",
    )

    def __init__(
        self,
        files: FileQueue,
        begin: LogOffset,
        stop: LogOffset | None = None,
        *,
        check_body: bool = True,
        check_record: bool = False,
        quarantine: Quarantine | None = None,
        scanner: RecordScanner | None = None,
    ) -> None:
        self.offset = begin
        self.problem: str | None = None
        self.doubt: str | None = None
        self.scanner = scanner or RecordScanner()
        self._files = files
        self._stop = stop
        self._check_body = check_body
        self._check_record = check_record
        self._quarantine = quarantine
        self._cursor = RecordCursor()

    @property
    def records(self) -> int:
        """How many valid records were read."""
        return self.scanner.count

    @property
    def store_time_ms(self) -> StoreTimeMs:
        """The store time of the last valid record, 0 before the first."""
        return StoreTimeMs(self.scanner.store_time_ms)

    def __iter__(self) -> Iterator[RecordCursor]:
        cursor, scanner, check_body, check_record = (
            self._cursor,
            self.scanner,
            self._check_body,
            self._check_record,
        )
        while (file := self._next_file()) is not None:
            buffer, start, end, until = file.view(), file.start, *self._bounds(file)
            at = self.offset - start
            while at < until and scanner.scan(
                cursor, buffer, at, at + 1, end, start, check_body, check_record
            ):
                at = scanner.at
                self.offset = LogOffset(start + at)
                yield cursor
            if at < until and not self._skip(file):
                return

    def to_end(self, progress: Callable[[LogOffset], None] | None = None) -> None:
        """Scan all records; `progress` is called now and then with the offset."""
        while (file := self._next_file()) is not None:
            buffer, start, end, until = file.view(), file.start, *self._bounds(file)
            at = self.offset - start
            valid = True
            while at < until and valid:
                stride = min(at + _STRIDE, until)
                valid = self.scanner.scan(
                    self._cursor,
                    buffer,
                    at,
                    stride,
                    end,
                    start,
                    self._check_body,
                    self._check_record,
                )
                at = self.scanner.at
                self.offset = LogOffset(start + at)
                if progress is not None:
                    progress(self.offset)
            if not valid and not self._skip(file):
                return

    def resume(
        self, quarantine: Quarantine | None, progress: Callable[[LogOffset], None] | None = None
    ) -> None:
        """Scan from where it stopped to the end of the log, with bodies checked."""
        self._stop, self._check_body, self._quarantine = None, True, quarantine
        self.problem = self.doubt = None
        self.to_end(progress)

    def _next_file(self) -> MappedFile | None:
        """Return the file to continue in, None at the end."""
        if self._stop is not None and self.offset >= self._stop:
            return None
        file = self._files.find(self.offset)
        return file if file is not None and self.offset < self._files.end_offset else None

    def _bounds(self, file: MappedFile) -> tuple[int, int]:
        """Return the positions in the file where the records' bytes end, and before which records
        must begin.
        """
        end = min(file.end, self._files.end_offset)
        return end - file.start, (end if self._stop is None else min(end, self._stop)) - file.start

    def _skip(self, file: MappedFile) -> bool:
        """Move past a blank, or past corrupt bytes that may be quarantined; return False at the
        end.
        """
        result = self.scanner.result
        if result == 0:
            self.offset = LogOffset(file.end)
            return True
        if self._quarantine is not None:
            gap = LogResync(self._files, check_record=self._check_record).find_next(
                self.offset, self.scanner.recent_time_ms
            )
            self.doubt = gap.doubt
            if gap.next_offset is not None and gap.doubt is None:
                for bad in gap.bad:
                    self._quarantine.add(bad)
                self.offset = gap.next_offset
                return True
        if result > 0:
            self.problem = (
                f"the record at {self.offset} states the offset {self._cursor.log_offset}"
            )
        else:
            self.problem = f"no record at {self.offset}: {flaw_text(result)}"
        return False
