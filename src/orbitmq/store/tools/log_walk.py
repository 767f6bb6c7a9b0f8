"""Walks over every record of a log that may be damaged anywhere, to the end of the log, and reports
what it skips.

The rules are recovery's: `log_resync` decides what is corrupt and what follows it; after a clean
stop, bytes after the last record known to the checkpoint are what Apache leaves there when it drops
records. Memory: only the corrupt ranges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from zlib import crc32

from orbitmq.common.mem import signed32
from orbitmq.message.layout import BLANK_SIZE, CRC_PROPERTY_SIZE
from orbitmq.message.properties import CRC32, NAME_END, VALUE_END
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.file_queue import FileQueue
from orbitmq.store.log_resync import LogResync
from orbitmq.store.log_scan import LogScan
from orbitmq.store.quarantine import BadBytes
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.types import LogOffset

_CRC_BEGIN = f"{CRC32}{NAME_END}".encode()
_CRC_END = VALUE_END.encode()
BODY_FLAW = "its body does not have the checksum that was stored"
RECORD_FLAW = "it does not have the checksum of the whole record that was stored"

OnBad = Callable[[BadBytes], None]


class End(Enum):
    """What follows the end of the log."""

    CLEAR = "nothing"
    STALE = "dropped records"
    TORN = "an incomplete record"


class LogWalk:
    """An iterator that moves one cursor over the records with valid frames, including those with a
    corrupt body.

    Afterwards `end` is where the log ends and `ending` what follows.
    """

    def __init__(
        self, directory: StoreDirectory, on_bad: OnBad, begin: LogOffset | None = None
    ) -> None:
        self._directory = directory
        self._on_bad = on_bad
        self._crc_cursor = RecordCursor()
        self.runs = directory.log_runs()
        if begin is not None:
            self.runs = [run for run in self.runs if run.end_offset > begin]
        self.begin = (
            LogOffset(self.runs[0].first_offset if self.runs else 0) if begin is None else begin
        )
        self.end = self.begin
        self.ending = End.CLEAR
        self.store_time_ms = 0
        self.records = 0
        self.doubt: str | None = None

    @property
    def files_end(self) -> LogOffset:
        """Where the last file ends."""
        return LogOffset(self.runs[-1].files[-1].end if self.runs else 0)

    def __iter__(self) -> Iterator[RecordCursor]:
        for number, run in enumerate(self.runs):
            yield from self._run(run, number == len(self.runs) - 1)
            run.close()

    def data_end(self) -> int:
        """Return the offset after the last non-zero byte, at least the end."""
        stale = self.end
        for run in self.runs:
            for file in run.files:
                if file.end <= self.end:
                    continue
                at, content = max(self.end - file.start, 0), file.view()
                while (at := file.next_data(at)) < file.size:
                    part = bytes(content[at : at + (1 << 20)])
                    if kept := part.rstrip(b"\0"):
                        stale = LogOffset(file.start + at + len(kept))
                    at += len(part)
            run.close()
        return stale

    def _run(self, files: FileQueue, is_last: bool) -> Iterator[RecordCursor]:
        position = max(files.first_offset, self.begin)
        while True:
            scan = LogScan(files, LogOffset(position), check_body=False)
            for record in scan:
                if record.log_offset != position:
                    self._check_blank(files, position)
                    self._close_before(files, record.log_offset)
                if (flaw := self._flaw(record)) is not None:
                    if is_last and self._is_known_end(record.log_offset):
                        self.end, self.ending = LogOffset(record.log_offset), End.STALE
                        return
                    self._on_bad(
                        BadBytes(
                            LogOffset(record.log_offset),
                            LogOffset(record.log_offset + record.size),
                            flaw,
                        )
                    )
                position = record.log_offset + record.size
                self.end = LogOffset(position)
                self.store_time_ms = record.store_time_ms
                self.records += 1
                yield record
            if scan.offset != position:
                self._check_blank(files, position)
                position = scan.offset
                self.end = LogOffset(position)
            if scan.problem is None:
                return
            if is_last and self._is_known_end(position):
                self.ending = End.STALE if self._any_byte(files, position) else End.CLEAR
                return
            gap = LogResync(files).find_next(LogOffset(position), self.store_time_ms)
            if gap.next_offset is None:
                self.ending = End.TORN if self._any_byte(files, position) else End.CLEAR
                if not is_last:
                    self._on_bad(
                        BadBytes(
                            LogOffset(position),
                            LogOffset(files.files[-1].end),
                            "no valid record follows it in its files",
                        )
                    )
                return
            for bad in gap.bad:
                self._on_bad(bad)
            self.doubt = self.doubt or gap.doubt
            position = gap.next_offset

    def _close_before(self, files: FileQueue, position: int) -> None:
        """Close the file that was scanned: mappings count as memory."""
        file = files.find(position - files.file_size)
        if file is not None:
            file.close()

    def _flaw(self, record: RecordCursor) -> str | None:
        """Return what is wrong with a record whose frame is valid."""
        with memoryview(record.buffer) as buffer:
            if (
                crc32(buffer[record.body_at : record.body_at + record.body_size]) & 0x7FFFFFFF
                != record.body_crc
            ):
                return BODY_FLAW
            end = record.at + record.size
            last = bytes(buffer[end - CRC_PROPERTY_SIZE : end])
            has_checksum = last[len(_CRC_BEGIN) : -1].isdigit() and _is_nearly(
                last[: len(_CRC_BEGIN)], _CRC_BEGIN
            )
            if has_checksum and (
                last[-1:] != _CRC_END
                or self._crc_cursor.read(record.buffer, record.at, end, False, True) < 0
            ):
                return RECORD_FLAW
        return None

    def _is_known_end(self, position: int) -> bool:
        """Whether the checkpoint of a clean stop knows of nothing after the previous record."""
        numbers = self._directory.checkpoint
        if not self._directory.is_clean or numbers is None:
            return False
        known_ms = max(numbers.log_time_ms, numbers.queues_time_ms)
        return 0 < known_ms <= self.store_time_ms and numbers.queues_offset <= position

    def _check_blank(self, files: FileQueue, position: int) -> None:
        file = files.find(position)
        assert file is not None, f"a blank was read at {position}"
        rest = file.end - position
        if signed32(file.view(), position - file.start) != rest:
            self._on_bad(
                BadBytes(
                    LogOffset(position),
                    LogOffset(position + BLANK_SIZE),
                    f"a blank that does not state that {rest} bytes are left",
                )
            )

    def _any_byte(self, files: FileQueue, position: int) -> bool:
        file = files.find(position)
        return file is not None and any(
            file.view()[position - file.start : position - file.start + BLANK_SIZE]
        )


def _is_nearly(text: bytes, wanted: bytes) -> bool:
    """Whether most of the bytes are the same: the name of a checksum is not covered by it."""
    return text == wanted or 2 * sum(a == b for a, b in zip(text, wanted, strict=True)) > len(
        wanted
    )


def is_bad(bad: Sequence[BadBytes], offset: int) -> bool:
    """Whether the byte is in one of the corrupt ranges, which are in the order of the log."""
    at = bisect_right(bad, offset, key=lambda found: found.offset) - 1
    return at >= 0 and offset < bad[at].end
