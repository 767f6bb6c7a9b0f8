"""Reads one piece of a commit log on an executor into batches of rows; damage ends the read or is
skipped and reported.

`store.log_resync` decides what is corrupt and where the log continues, as it does for a broker that
opens the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from orbitmq.common.errors import CorruptRecordError
from orbitmq.message.record import flaw_text
from orbitmq.spark.commitlog.damage import DamagedRegion, report_damage
from orbitmq.spark.commitlog.options import CommitLogOptions
from orbitmq.spark.commitlog.pieces import LogPiece, explain_file_errors
from orbitmq.spark.kernels.log_rows import LogRows
from orbitmq.spark.kernels.rows import RowBuilder
from orbitmq.store.log_resync import LogResync
from orbitmq.store.log_scan import LogScan
from orbitmq.store.types import LogOffset

_STRIDE: Final = 256 << 10  # bytes of the log between checks of the batch size
_ROWS_MIN: Final = 8192  # a batch costs as much as hundreds of rows
_BODY_BYTES_MIN: Final = 16 << 20
REMEDY: Final = "read it with onDamage=skip, or inspect it with `orbitmq store check`"


class LogPieceReader:
    """Reads one piece once."""

    def __init__(self, piece: LogPiece, options: CommitLogOptions, columns: Sequence[str]) -> None:
        self._piece = piece
        self._options = options
        self._rows = RowBuilder(columns)
        self._rows.set_broker(piece.broker_name)
        self._run = LogRows(
            self._rows, options.topics.__contains__, options.begin_ms, options.end_ms
        )
        self._files = piece.open()
        self._damage: list[DamagedRegion] = []

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows; raises CorruptRecordError at the first damage unless damage is
        skipped.
        """
        try:
            with explain_file_errors():
                yield from self._batches()
        finally:
            self._files.close()
            folder = self._options.damage_report
            report_damage(self._damage, None if folder is None else Path(folder), self._piece.name)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        position = LogOffset(self._piece.begin)
        while position < self._piece.end:
            stop = LogOffset(min(position + _STRIDE, self._piece.end))
            scan = LogScan(
                self._files, position, stop, check_body=self._options.check_body, scanner=self._run
            )
            scan.to_end()
            position = scan.offset
            self._report_unreadable()
            if scan.problem is not None:
                position = self._skip_damage(position, scan.problem)
            if self._rows.size >= _ROWS_MIN or self._rows.body_bytes >= _BODY_BYTES_MIN:
                yield self._rows.take()
        if self._rows.size:
            yield self._rows.take()

    def _skip_damage(self, position: LogOffset, problem: str) -> LogOffset:
        """Return where to continue after an invalid record."""
        gap = LogResync(self._files).find_next(position, self._run.recent_time_ms)
        if gap.next_offset is None:
            reason = problem if self._run.result > 0 else flaw_text(self._run.result)
            self._report(self._piece.region(position, self._piece.end, reason))
            return LogOffset(self._piece.end)
        for bad in gap.bad:
            reason = bad.reason if gap.doubt is None else f"{bad.reason}; {gap.doubt}"
            self._report(self._piece.region(bad.offset, bad.end, reason))
        return gap.next_offset

    def _report_unreadable(self) -> None:
        for bad in self._run.unreadable:
            self._report(self._piece.region(bad.offset, bad.end, bad.reason))
        self._run.unreadable.clear()

    def _report(self, region: DamagedRegion) -> None:
        if not self._options.skips_damage:
            raise CorruptRecordError(f"{region}; {REMEDY}")
        self._damage.append(region)
