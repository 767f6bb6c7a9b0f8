"""Cuts a commit log into pieces that can be read independently, and finds the gaps between its
files.

Runs on the driver. No broker needs to be running on the store, but one may be writing to it: the
end of the log is fixed at planning time.

Invariants: pieces are contiguous as long as the files are; each starts and ends at a record
boundary, so no record is in two pieces.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple
from urllib.parse import quote

from orbitmq.common.errors import StoreError
from orbitmq.spark.commitlog.boundaries import LogBoundaries, RecordBoundary
from orbitmq.spark.commitlog.damage import DamagedRegion
from orbitmq.store.file_queue import FileQueue
from orbitmq.store.log_scan import LogScan
from orbitmq.store.mapped_file import MappedFile
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.log_walk import End, LogWalk
from orbitmq.store.tools.read_only import ReadOnlyLayer
from orbitmq.store.tools.sizes import Extent
from orbitmq.store.types import LogOffset

# Upper bound for clock corrections: store times never go back by more than that.
CLOCK_BACK_MS_MAX: Final = 600_000
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogPiece:
    """The bytes [begin, end) of a commit log, in `files`. Its records were stored from `begin_ms`
    on, and before `end_ms` if that is known.
    """

    broker_name: str
    files: tuple[Extent, ...]
    file_size: int
    begin: int
    end: int
    begin_ms: int = 0
    end_ms: int | None = None

    @property
    def name(self) -> str:
        """The name of the piece in file names."""
        return part_name(self.broker_name, self.begin)

    def open(self) -> FileQueue:
        """Open the files; the queue ends where the piece ends."""
        queue = FileQueue(ReadOnlyLayer(), [self.files[0].path.parent], self.file_size)
        queue.files = [
            MappedFile(ReadOnlyLayer(), extent.path, extent.start, extent.length)
            for extent in self.files
        ]
        queue.end_offset = self.end
        return queue

    def region(self, offset: int, end: int, reason: str) -> DamagedRegion:
        """Return the bytes [offset, end) of the log as a damaged region of the file they
        start in.
        """
        extent = next(extent for extent in reversed(self.files) if extent.start <= offset)
        return DamagedRegion(
            self.broker_name,
            str(extent.path),
            offset - extent.start,
            offset,
            min(end, self.end) - offset,
            reason,
        )

    def may_hold(self, begin_ms: int, end_ms: int) -> bool:
        """Return whether a record of the piece may have a store time in [begin_ms, end_ms)."""
        return self.begin_ms - CLOCK_BACK_MS_MAX < end_ms and (
            self.end_ms is None or self.end_ms + CLOCK_BACK_MS_MAX >= begin_ms
        )


def part_name(broker_name: str, offset: int) -> str:
    """Return the name of a part of a log in file names."""
    return f"{quote(broker_name, safe='')}-{offset:020}"


@contextmanager
def explain_file_errors() -> Iterator[None]:
    """Convert errors of reading a store's files to StoreError."""
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(
            f"{error.filename} is gone: its broker has deleted it; read again"
        ) from error
    except OSError as error:
        raise StoreError(
            f"{error.filename} cannot be read: {error.strerror}; give the user that runs Spark"
            " read access"
        ) from error


class LogPlan(NamedTuple):
    """The pieces of a commit log, and the damage outside of all pieces."""

    pieces: list[LogPiece]
    damage: list[DamagedRegion]


def plan_pieces(broker_name: str, directory: StoreDirectory, piece_size: int) -> LogPlan:
    """Cut a commit log into pieces of about the given size."""
    runs = directory.log_runs()
    _check_names(directory, runs)
    boundaries = LogBoundaries(directory)
    pieces: list[LogPiece] = []
    damage: list[DamagedRegion] = []
    try:
        for before, run in pairwise([None, *runs]):
            assert run is not None
            if before is not None:
                missing = run.first_offset - before.files[-1].end
                what = f"the {missing} bytes of the log before it are missing"
                damage.append(
                    DamagedRegion(
                        broker_name,
                        str(run.files[0].path),
                        0,
                        run.first_offset - missing,
                        missing,
                        what,
                    )
                )
            end = run.end_offset
            if run is runs[-1]:
                end, torn = _find_end(broker_name, directory, boundaries, run)
                damage += torn
            pieces += _cut(
                broker_name,
                run,
                _merge_cuts(_cuts(boundaries, run, end, piece_size), end, piece_size),
                end,
            )
    finally:
        boundaries.close()
    return LogPlan(pieces, damage)


def _check_names(directory: StoreDirectory, runs: Sequence[FileQueue]) -> None:
    """Check that every non-empty file is part of a contiguous run."""
    known = {file.path for run in runs for file in run.files}
    for extent in directory.log_files:
        if extent.length and extent.path not in known:
            raise StoreError(
                f"{extent.path} overlaps the log file before it: it is a duplicate or misnamed;"
                " move it away"
            )


def _cuts(
    boundaries: LogBoundaries, run: FileQueue, end: int, piece_size: int
) -> Iterator[RecordBoundary]:
    """Return where pieces may start: at the first file, then at known record boundaries."""
    yield boundaries.at(run.first_offset) or RecordBoundary(run.first_offset, 0)
    for file in run.files:
        if run.first_offset < file.start < end and (first := boundaries.at(file.start)) is not None:
            yield first
        cut = boundaries.first_in(file.start + piece_size, min(file.end, end))
        while cut is not None:
            yield cut
            cut = boundaries.first_in(cut.offset + piece_size, min(file.end, end))


def _merge_cuts(cuts: Iterable[RecordBoundary], end: int, piece_size: int) -> list[RecordBoundary]:
    """Drop cuts that a piece of the given size can span."""
    kept: list[RecordBoundary] = []
    for cut, following in pairwise([*cuts, RecordBoundary(end, 0)]):
        if not kept or following.offset - kept[-1].offset > piece_size:
            kept.append(cut)
    return kept


def _cut(
    broker_name: str, run: FileQueue, cuts: Sequence[RecordBoundary], end: int
) -> Iterator[LogPiece]:
    for cut, following in pairwise([*cuts, None]):
        assert cut is not None
        stop = end if following is None else following.offset
        files = tuple(
            Extent(file.start, file.size, file.path)
            for file in run.files
            if file.start < stop and cut.offset < file.end
        )
        if files and cut.offset < stop:
            stop_ms = None if following is None else following.store_time_ms
            yield LogPiece(
                broker_name, files, run.file_size, cut.offset, stop, cut.store_time_ms, stop_ms
            )


def _shortly_before_flaw(run: FileQueue, begin: LogOffset) -> LogOffset:
    """Return a record boundary shortly before the first invalid record: the walk inspects every
    record and would take long to get there.
    """
    marks = [begin]
    scan = LogScan(run, begin)
    scan.to_end(marks.append)
    run.close()
    return max((mark for mark in marks if mark < scan.offset), default=begin)


def _find_end(
    broker_name: str, directory: StoreDirectory, boundaries: LogBoundaries, run: FileQueue
) -> tuple[int, list[DamagedRegion]]:
    """Return where the log ends, and the torn record there if the broker was shut down cleanly."""
    starts = (file.start for file in reversed(run.files))
    near = next(
        (cut.offset for start in starts if (cut := boundaries.at(start)) is not None),
        run.first_offset,
    )
    newest = boundaries.newest(near, run.end_offset)
    walk = LogWalk(
        directory,
        lambda _bad: None,
        begin=_shortly_before_flaw(run, LogOffset(near if newest is None else newest.offset)),
    )
    for _record in walk:
        pass
    is_in_use = directory.lock_owner() is not None
    if walk.ending is not End.TORN:
        return walk.end, []
    if is_in_use or not directory.is_clean:
        log.info(
            "log_ends_in_part_of_record broker=%s offset=%d in_use=%s",
            broker_name,
            walk.end,
            is_in_use,
        )
        return walk.end, []
    file = run.find(walk.end)
    assert file is not None, "the torn record is in a file"
    size = walk.data_end() - walk.end
    what = "the last record is truncated, although the broker was shut down cleanly"
    return walk.end, [
        DamagedRegion(broker_name, str(file.path), walk.end - file.start, walk.end, size, what)
    ]
