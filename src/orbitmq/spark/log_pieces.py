"""A log in pieces that can be read one apart from the other: where each begins and ends, and what of the log is missing altogether.

Made by the driver, of a store that nobody may have open, and that somebody may be writing to: the end of the log is where it was then.
Invariants: pieces follow each other without a gap as long as the files do; each begins and ends where a record does, so no record is in
two of them.
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
from orbitmq.spark.log_boundaries import Boundary, LogBoundaries
from orbitmq.spark.log_damage import Region
from orbitmq.store.file_queue import FileQueue
from orbitmq.store.log_scan import LogScan
from orbitmq.store.mapped_file import MappedFile
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.log_walk import End, LogWalk
from orbitmq.store.tools.read_only import ReadOnlyLayer
from orbitmq.store.tools.sizes import Extent
from orbitmq.store.types import LogOffset

# How far a clock may have been set back: store times do not go back by more than that.
CLOCK_BACK_MS_MAX: Final = 600_000
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogPiece:
    """The bytes [begin, end) of a log, in `files`. Its records were stored from `begin_ms` on, and before `end_ms` if that is known."""

    broker_name: str
    files: tuple[Extent, ...]
    file_size: int
    begin: int
    end: int
    begin_ms: int = 0
    end_ms: int | None = None

    @property
    def name(self) -> str:
        return part_name(self.broker_name, self.begin)

    def open(self) -> FileQueue:
        """The files, which end where the piece does."""
        queue = FileQueue(ReadOnlyLayer(), [self.files[0].path.parent], self.file_size)
        queue.files = [MappedFile(ReadOnlyLayer(), extent.path, extent.start, extent.length) for extent in self.files]
        queue.end_offset = self.end
        return queue

    def region(self, offset: int, end: int, reason: str) -> Region:
        """The bytes [offset, end) of the log as damage, told by the file they begin in."""
        extent = next(extent for extent in reversed(self.files) if extent.start <= offset)
        return Region(self.broker_name, str(extent.path), offset - extent.start, offset, min(end, self.end) - offset, reason)

    def may_hold(self, begin_ms: int, end_ms: int) -> bool:
        """Whether any record may have been stored at a time in [begin_ms, end_ms)."""
        return self.begin_ms - CLOCK_BACK_MS_MAX < end_ms and (self.end_ms is None or self.end_ms + CLOCK_BACK_MS_MAX >= begin_ms)


def part_name(broker_name: str, offset: int) -> str:
    """What a part of a log is called in file names."""
    return f"{quote(broker_name, safe='')}-{offset:020}"


@contextmanager
def readable() -> Iterator[None]:
    """Tell in words what the system says of a store's files: StoreError."""
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(f"{error.filename} is gone: its broker has deleted it meanwhile; read again") from error
    except OSError as error:
        raise StoreError(f"{error.filename} cannot be read: {error.strerror}; whoever runs Spark must be allowed to") from error


class LogPlan(NamedTuple):
    """The pieces of a log, and the damage that is not in any of them."""

    pieces: list[LogPiece]
    damage: list[Region]


def plan(broker_name: str, directory: StoreDirectory, piece_size: int) -> LogPlan:
    """Cut a log into pieces of about that size."""
    runs = directory.log_runs()
    _check_names(directory, runs)
    boundaries = LogBoundaries(directory)
    pieces: list[LogPiece] = []
    damage: list[Region] = []
    try:
        for before, run in pairwise([None, *runs]):
            assert run is not None
            if before is not None:
                missing = run.first_offset - before.files[-1].end
                what = f"the {missing} bytes of the log before it are in no file"
                damage.append(Region(broker_name, str(run.files[0].path), 0, run.first_offset - missing, missing, what))
            end = run.end_offset
            if run is runs[-1]:
                end, torn = _end(broker_name, directory, boundaries, run)
                damage += torn
            pieces += _pieces(broker_name, run, _thinned(_cuts(boundaries, run, end, piece_size), end, piece_size), end)
    finally:
        boundaries.close()
    return LogPlan(pieces, damage)


def _check_names(directory: StoreDirectory, runs: Sequence[FileQueue]) -> None:
    """Every file that is not empty must be in a run."""
    known = {file.path for run in runs for file in run.files}
    for extent in directory.log_files:
        if extent.length and extent.path not in known:
            raise StoreError(f"{extent.path} overlaps the log file before it: it is there twice, or misnamed; move it away")


def _cuts(boundaries: LogBoundaries, run: FileQueue, end: int, piece_size: int) -> Iterator[Boundary]:
    """Where pieces may begin: at the first file, and from there on where a record is known to begin."""
    yield boundaries.at(run.first_offset) or Boundary(run.first_offset, 0)
    for file in run.files:
        if run.first_offset < file.start < end and (first := boundaries.at(file.start)) is not None:
            yield first
        cut = boundaries.from_(file.start + piece_size, min(file.end, end))
        while cut is not None:
            yield cut
            cut = boundaries.from_(cut.offset + piece_size, min(file.end, end))


def _thinned(cuts: Iterable[Boundary], end: int, piece_size: int) -> list[Boundary]:
    """The cuts without those that a piece of that size can go over."""
    kept: list[Boundary] = []
    for cut, following in pairwise([*cuts, Boundary(end, 0)]):
        if not kept or following.offset - kept[-1].offset > piece_size:
            kept.append(cut)
    return kept


def _pieces(broker_name: str, run: FileQueue, cuts: Sequence[Boundary], end: int) -> Iterator[LogPiece]:
    for cut, following in pairwise([*cuts, None]):
        assert cut is not None
        stop = end if following is None else following.offset
        files = tuple(Extent(file.start, file.size, file.path) for file in run.files if file.start < stop and cut.offset < file.end)
        if files and cut.offset < stop:
            stop_ms = None if following is None else following.store_time_ms
            yield LogPiece(broker_name, files, run.file_size, cut.offset, stop, cut.store_time_ms, stop_ms)


def _shortly_before_flaw(run: FileQueue, begin: LogOffset) -> LogOffset:
    """Where a record begins that is a little before the first that is not good: a walk looks at each, and would take long to get there."""
    marks = [begin]
    scan = LogScan(run, begin)
    scan.to_end(marks.append)
    run.close()
    return max((mark for mark in marks if mark < scan.offset), default=begin)


def _end(broker_name: str, directory: StoreDirectory, boundaries: LogBoundaries, run: FileQueue) -> tuple[int, list[Region]]:
    """Where the log ends, and what is torn there although its broker stopped it."""
    starts = (file.start for file in reversed(run.files))
    near = next((cut.offset for start in starts if (cut := boundaries.at(start)) is not None), run.first_offset)
    newest = boundaries.newest(near, run.end_offset)
    walk = LogWalk(directory, lambda _bad: None, begin=_shortly_before_flaw(run, LogOffset(near if newest is None else newest.offset)))
    for _record in walk:
        pass
    is_in_use = directory.lock_owner() is not None
    if walk.ending is not End.TORN:
        return walk.end, []
    if is_in_use or not directory.is_clean:
        log.info("log_ends_in_part_of_record broker=%s offset=%d in_use=%s", broker_name, walk.end, is_in_use)
        return walk.end, []
    file = run.find(walk.end)
    assert file is not None, "something stands there"
    size = walk.behind_end() - walk.end
    what = "the last record is not whole, although the broker was stopped"
    return walk.end, [Region(broker_name, str(file.path), walk.end - file.start, walk.end, size, what)]
