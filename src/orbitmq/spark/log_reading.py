"""Reads one piece of a log, on an executor: rows of what is wanted, in batches; damage ends it, or is stepped over and remembered.

What is bad, and where the log goes on behind it, is `log_gap`'s to say, as for a broker that opens the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from orbitmq.common.errors import CorruptRecord
from orbitmq.message.record import flaw_text
from orbitmq.spark.commitlog_options import CommitLogOptions
from orbitmq.spark.log_damage import Region, report
from orbitmq.spark.log_pieces import LogPiece, readable
from orbitmq.spark.log_rows import LogRows
from orbitmq.spark.rows import RowBuilder
from orbitmq.store.log_gap import LogGap
from orbitmq.store.log_scan import LogScan
from orbitmq.store.types import LogOffset

_STRIDE: Final = 256 << 10  # bytes of the log between two looks at how much there is in a batch
_ROWS_MIN: Final = 8192  # a batch costs as much as hundreds of rows
_BODY_BYTES_MIN: Final = 16 << 20
REMEDY: Final = "read it with onDamage=skip, or see what is wrong with `orbitmq store check`"


class LogReading:
    """One piece, read once."""

    def __init__(self, piece: LogPiece, options: CommitLogOptions, columns: Sequence[str]) -> None:
        self._piece = piece
        self._options = options
        self._rows = RowBuilder(columns)
        self._rows.set_broker(piece.broker_name)
        self._run = LogRows(self._rows, options.topics.__contains__, options.begin_ms, options.end_ms)
        self._files = piece.open()
        self._damage: list[Region] = []

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows; CorruptRecord at the first damage, unless it is skipped."""
        try:
            with readable():
                yield from self._batches()
        finally:
            self._files.close()
            folder = self._options.damage_report
            report(self._damage, None if folder is None else Path(folder), self._piece.name)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        position = LogOffset(self._piece.begin)
        while position < self._piece.end:
            stop = LogOffset(min(position + _STRIDE, self._piece.end))
            scan = LogScan(self._files, position, stop, check_body=self._options.check_body, run=self._run)
            scan.to_end()
            position = scan.offset
            self._judge_unreadable()
            if scan.problem is not None:
                position = self._step_over(position, scan.problem)
            if self._rows.size >= _ROWS_MIN or self._rows.body_bytes >= _BODY_BYTES_MIN:
                yield self._rows.take()
        if self._rows.size:
            yield self._rows.take()

    def _step_over(self, position: LogOffset, problem: str) -> LogOffset:
        """Where to go on behind what is no good record."""
        gap = LogGap(self._files).behind(position, self._run.recent_time_ms)
        if gap.next_offset is None:
            reason = problem if self._run.result > 0 else flaw_text(self._run.result)
            self._tell(self._piece.region(position, self._piece.end, reason))
            return LogOffset(self._piece.end)
        for bad in gap.bad:
            reason = bad.reason if gap.doubt is None else f"{bad.reason}; {gap.doubt}"
            self._tell(self._piece.region(bad.offset, bad.end, reason))
        return gap.next_offset

    def _judge_unreadable(self) -> None:
        for bad in self._run.unreadable:
            self._tell(self._piece.region(bad.offset, bad.end, bad.reason))
        self._run.unreadable.clear()

    def _tell(self, region: Region) -> None:
        if not self._options.skips_damage:
            raise CorruptRecord(f"{region}; {REMEDY}")
        self._damage.append(region)
