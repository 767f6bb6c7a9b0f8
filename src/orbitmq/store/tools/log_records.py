"""Single records of a log by offset, and where the log ends without a full scan."""

from __future__ import annotations

from functools import cached_property

from orbitmq.message.record_read import RecordCursor
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.log_walk import LogWalk
from orbitmq.store.types import LogOffset


class LogRecords:
    """Reads records; files stay open until `close`."""

    def __init__(self, directory: StoreDirectory) -> None:
        self._directory = directory
        self.runs = directory.log_runs()
        self._cursor = RecordCursor()
        self.min = self.runs[0].first_offset if self.runs else 0

    def at(self, offset: int) -> RecordCursor | None:
        """Return the record that begins at an offset and states it, with a valid body or not, until
        the next call; None if there is none.
        """
        for run in self.runs:
            file = run.find(offset) if offset >= run.first_offset else None
            if file is not None and offset < file.end:
                found = (
                    self._cursor.read(file.view(), offset - file.start, file.size, False) > 0
                    and self._cursor.log_offset == offset
                )
                return self._cursor if found else None
        return None

    @cached_property
    def end(self) -> int:
        """Where the log ends, by a scan of the last file that begins with a valid record."""
        starts = [file.start for run in self.runs for file in run.files]
        begin = next((start for start in reversed(starts) if self.at(start) is not None), self.min)
        walk = LogWalk(self._directory, lambda _bad: None, begin=LogOffset(begin))
        for _record in walk:
            pass
        return walk.end

    def close(self) -> None:
        """Close descriptors and mappings."""
        for run in self.runs:
            run.close()
