"""Goes over the records of a commit log from one offset to another, file after file, and says where and why it had to stop.

The one reader of log structure: dispatch, recovery and tools use it. It decides nothing: whether a bad record is the end of the log,
or damage, is for its caller to judge. A record that is not where it says it is counts as bad, which the original does not check:
it is what an earlier use of the same bytes left behind. Given a quarantine, it puts bad bytes there and goes on behind them, where that
can be done without doubt (`log_gap`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from orbitmq.message.record import flaw_text
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.file_queue import FileQueue
from orbitmq.store.log_gap import LogGap
from orbitmq.store.mapped_file import MappedFile
from orbitmq.store.quarantine import Quarantine
from orbitmq.store.record_run import RecordRun
from orbitmq.store.types import LogOffset, StoreTimeMs

_STRIDE = 4 << 20  # bytes between two reports of progress


class LogScan:
    """Iterate over it: it moves one cursor from record to record, and blanks are passed over. `to_end` does the same without a look.

    `offset` is behind the last good record, at the next file's start after a blank; `store_time_ms` is that record's. Records that begin
    at or behind `stop` are not read. At the end, `problem` is None if there is no record to be read any more, else what is wrong at
    `offset`; `doubt` is why the next good record, if there is one, was not gone to.
    """

    __slots__ = ("_check_body", "_check_record", "_cursor", "_files", "_quarantine", "_stop", "doubt", "offset", "problem", "run")

    def __init__(
        self,
        files: FileQueue,
        begin: LogOffset,
        stop: LogOffset | None = None,
        *,
        check_body: bool = True,
        check_record: bool = False,
        quarantine: Quarantine | None = None,
        run: RecordRun | None = None,
    ) -> None:
        self.offset = begin
        self.problem: str | None = None
        self.doubt: str | None = None
        self.run = run or RecordRun()
        self._files = files
        self._stop = stop
        self._check_body = check_body
        self._check_record = check_record
        self._quarantine = quarantine
        self._cursor = RecordCursor()

    @property
    def records(self) -> int:
        """How many good records there were."""
        return self.run.count

    @property
    def store_time_ms(self) -> StoreTimeMs:
        """When the last good record was stored, 0 before the first."""
        return StoreTimeMs(self.run.store_time_ms)

    def __iter__(self) -> Iterator[RecordCursor]:
        cursor, run, check_body, check_record = self._cursor, self.run, self._check_body, self._check_record
        while (file := self._next_file()) is not None:
            buffer, start, end, until = file.view(), file.start, *self._bounds(file)
            at = self.offset - start
            while at < until and run.go(cursor, buffer, at, at + 1, end, start, check_body, check_record):
                at = run.at
                self.offset = LogOffset(start + at)
                yield cursor
            if at < until and not self._pass(file):
                return

    def to_end(self, progress: Callable[[LogOffset], None] | None = None) -> None:
        """Go over all records; `progress` hears now and then how far."""
        while (file := self._next_file()) is not None:
            buffer, start, end, until = file.view(), file.start, *self._bounds(file)
            at = self.offset - start
            went_on = True
            while at < until and went_on:
                stride = min(at + _STRIDE, until)
                went_on = self.run.go(self._cursor, buffer, at, stride, end, start, self._check_body, self._check_record)
                at = self.run.at
                self.offset = LogOffset(start + at)
                if progress is not None:
                    progress(self.offset)
            if not went_on and not self._pass(file):
                return

    def go_on(self, quarantine: Quarantine | None, progress: Callable[[LogOffset], None] | None = None) -> None:
        """Go from where it stopped to the end of the log, with bodies checked."""
        self._stop, self._check_body, self._quarantine = None, True, quarantine
        self.problem = self.doubt = None
        self.to_end(progress)

    def _next_file(self) -> MappedFile | None:
        """The file to go on in, None at the end."""
        if self._stop is not None and self.offset >= self._stop:
            return None
        file = self._files.find(self.offset)
        return file if file is not None and self.offset < self._files.end_offset else None

    def _bounds(self, file: MappedFile) -> tuple[int, int]:
        """The positions in the file where the bytes of records end, and before which records begin."""
        end = min(file.end, self._files.end_offset)
        return end - file.start, (end if self._stop is None else min(end, self._stop)) - file.start

    def _pass(self, file: MappedFile) -> bool:
        """Move over what is no record: a blank, or bad bytes that may be quarantined; False when that is the end."""
        result = self.run.result
        if result == 0:
            self.offset = LogOffset(file.end)
            return True
        if self._quarantine is not None:
            gap = LogGap(self._files, check_record=self._check_record).behind(self.offset, self.run.recent_time_ms)
            self.doubt = gap.doubt
            if gap.next_offset is not None and gap.doubt is None:
                for bad in gap.bad:
                    self._quarantine.add(bad)
                self.offset = gap.next_offset
                return True
        if result > 0:
            self.problem = f"the record at {self.offset} says that it is at {self._cursor.log_offset}"
        else:
            self.problem = f"no record at {self.offset}: {flaw_text(result)}"
        return False
