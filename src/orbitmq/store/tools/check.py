"""The check: one pass over the log, with everything else compared against it. Read-only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orbitmq.message.record_read import RecordCursor
from orbitmq.store.log_loss import flushed_end, proven_end
from orbitmq.store.quarantine import BadBytes
from orbitmq.store.tools import small_files
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.findings import Finding, Findings, Mend, RepairAction, Severity
from orbitmq.store.tools.index_check import IndexCheck
from orbitmq.store.tools.log_walk import End, LogWalk
from orbitmq.store.tools.queue_check import QueueCheck
from orbitmq.store.types import QueueKey

Progress = Callable[[int, int], None]  # done, total
_STRIDE = 1 << 20
_BLOCKING = ("log-gap", "log-twice", "log-name", "log-size")
GIVE_UP = (
    "restore the file from a replica or a backup; the store skips it; repair --truncate-damage"
    " drops everything from there on"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of a check, and what it covered."""

    findings: Findings
    records: int
    log_begin: int
    log_end: int
    files_end: int
    last_store_time_ms: int
    index_entries: int
    bad: tuple[BadBytes, ...]
    blocked: str | None  # why the store cannot be opened with this log
    silent: frozenset[QueueKey]  # queues without a record in the log
    deleted: frozenset[QueueKey]  # queues of deleted topics that have records in the log
    cut: frozenset[QueueKey]  # queues with entries of records after the end of the log
    restarted: frozenset[QueueKey]  # queues with two lives in the log, which cannot be rebuilt
    delays_ms: tuple[int, ...]


class _Times:
    """Checks that store times do not decrease; a single outlier is corrupt, a clock that was set
    back is not.
    """

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None

    def next(self, offset: int, time_ms: int) -> tuple[int, str, Severity] | None:
        """Return what is wrong with the previous record, or with this one."""
        before, last, self._before, self._last = (
            self._before,
            self._last,
            self._last,
            (offset, time_ms),
        )
        if last is None:
            return None
        if before is not None and before[1] <= time_ms and not before[1] <= last[1] <= time_ms:
            self._before = before
            what = (
                f"the store time of the record at {last[0]} is {last[1]}, those around it were"
                f" stored from {before[1]} to {time_ms}"
            )
            return last[0], what, Severity.LOSS
        if time_ms < last[1] and (before is None or before[1] > time_ms):
            return (
                offset,
                f"the store time goes back from {last[1]} to {time_ms}: the clock was set back",
                Severity.NOTE,
            )
        return None


def check(directory: StoreDirectory, progress: Progress | None = None) -> Checked:
    """Check everything."""
    findings = Findings()
    small_files.check_names(directory, findings)
    topics = small_files.check_configs(directory, findings)
    bad: list[BadBytes] = []

    def on_bad(found: BadBytes) -> None:
        bad.append(found)
        file, at = directory.log_path(found.offset)
        if found.reason.startswith("a blank"):
            mend = Mend(RepairAction.WRITE_BLANK, str(found.offset))
            findings.add(
                Finding(
                    Severity.DAMAGE,
                    "blank",
                    file,
                    at,
                    found.reason,
                    "orbitmq store repair rewrites it",
                    mend,
                )
            )
            return
        what = (
            f"{found.end - found.offset} bytes at {found.offset} are not a valid record:"
            f" {found.reason}"
        )
        findings.add(
            Finding(
                Severity.LOSS,
                "record",
                file,
                at,
                what,
                GIVE_UP,
                Mend(RepairAction.GIVE_UP_LOG, str(found.offset)),
            )
        )

    walk = LogWalk(directory, on_bad)
    queues = QueueCheck(directory, findings, bad, topics)
    index = IndexCheck(directory, findings, bad, walk.files_end)
    times, reported = _Times(), 0
    for record in walk:
        if (problem := times.next(record.log_offset, record.store_time_ms)) is not None:
            file, at = directory.log_path(problem[0])
            remedy = (
                "restore the file from a replica or a backup"
                if problem[2] is Severity.LOSS
                else "nothing"
            )
            findings.add(Finding(problem[2], "store-time", file, at, problem[1], remedy))
        _check_values(directory, findings, record)
        if not bad or bad[-1].offset != record.log_offset:  # a corrupt record is not trusted
            queues.record(record)
        index.record(record)
        if progress is not None and record.log_offset - reported >= _STRIDE:
            reported = record.log_offset
            progress(reported - walk.begin, walk.files_end - walk.begin)
    is_lost = _check_loss(directory, findings, walk)
    queues.finish(walk.end, is_lost=is_lost)
    index.finish(walk.end)
    _check_end(directory, findings, walk)
    small_files.check_checkpoint(directory, findings, walk.end, walk.store_time_ms)
    if not directory.is_clean:
        findings.add(
            Finding(
                Severity.NOTE,
                "abort",
                "abort",
                None,
                "the store was not stopped cleanly, or is open",
                "nothing: the next start recovers it",
            )
        )
    if progress is not None:
        progress(1, 1)
    return Checked(
        findings=findings,
        records=walk.records,
        log_begin=walk.begin,
        log_end=walk.end,
        files_end=walk.files_end,
        last_store_time_ms=walk.store_time_ms,
        index_entries=index.entries,
        bad=tuple(bad),
        blocked=walk.doubt
        or next(
            (f"{found.file}: {found.what}" for found in findings if found.kind in _BLOCKING), None
        ),
        silent=queues.silent(),
        deleted=frozenset(queues.deleted),
        cut=queues.all_cut(),
        restarted=frozenset(queues.restarted),
        delays_ms=queues.delays_ms(),
    )


def _check_values(directory: StoreDirectory, findings: Findings, record: RecordCursor) -> None:
    """Report impossible values of fields that no checksum covers."""
    wrong = [
        text
        for text, is_wrong in (
            (f"queue {record.queue_id}", record.queue_id < 0),
            (f"queue offset {record.queue_offset}", record.queue_offset < 0),
            (f"store time {record.store_time_ms}", record.store_time_ms <= 0),
            ("no topic", not record.topic_size),
        )
        if is_wrong
    ]
    if wrong:
        file, at = directory.log_path(record.log_offset)
        what = f"the record at {record.log_offset} has {', '.join(wrong)}"
        findings.add(
            Finding(
                Severity.LOSS,
                "record-field",
                file,
                at,
                what,
                "restore the file from a replica or a backup",
            )
        )


def _check_loss(directory: StoreDirectory, findings: Findings, walk: LogWalk) -> bool:
    """Whether the log ends before what was flushed, by the rules of a start."""
    checkpoint, manifest = directory.checkpoint, directory.manifest
    proven = (
        proven_end(checkpoint, manifest, log_end=walk.end, last_time_ms=walk.store_time_ms)
        if directory.is_clean
        else flushed_end(checkpoint, manifest)
    )
    if proven is None or (not directory.is_clean and proven <= walk.end):
        return False
    file, at = directory.log_path(walk.end)
    missing = f"{proven - walk.end} bytes" if proven else "records of later times"
    findings.add(
        Finding(
            Severity.LOSS,
            "log-lost",
            file,
            at,
            f"the log ends at {walk.end}, but checkpoint and manifest list more: {missing} are"
            " missing",
            "mount the disk, or restore the file from a replica or a backup; orbitmq store repair"
            " accepts the loss",
            Mend(RepairAction.ACCEPT_LOSS, "commitlog"),
        )
    )
    return True


def _check_end(directory: StoreDirectory, findings: Findings, walk: LogWalk) -> None:
    if not walk.runs:
        findings.add(
            Finding(
                Severity.NOTE, "log-none", "commitlog", None, "there are no log files", "nothing"
            )
        )
        return
    if walk.doubt is not None:
        file, at = directory.log_path(walk.end)
        findings.add(Finding(Severity.LOSS, "doubt", file, at, walk.doubt, GIVE_UP))
    stale = walk.data_end()
    if stale == walk.end:
        return
    file, at = directory.log_path(walk.end)
    mend = Mend(RepairAction.CUT_LOG, str(walk.end))
    what = (
        f"the log ends at {walk.end}, followed by {stale - walk.end} bytes of {walk.ending.value}"
    )
    if walk.ending is End.TORN:
        findings.add(
            Finding(
                Severity.DAMAGE,
                "torn",
                file,
                at,
                what,
                "orbitmq store repair, or the next start, removes them",
                mend,
            )
        )
    else:
        what = (
            what
            if walk.ending is End.STALE
            else f"the log ends at {walk.end}, bytes up to {stale} are not zero"
        )
        findings.add(
            Finding(
                Severity.NOTE, "stale", file, at, what, "nothing: the next start clears them", mend
            )
        )
