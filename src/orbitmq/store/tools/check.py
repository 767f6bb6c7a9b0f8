"""The check: one pass over the log, and everything else held against it. Reads, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orbitmq.message.record_read import RecordCursor
from orbitmq.store.quarantine import BadBytes
from orbitmq.store.tools import small_files
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.findings import Action, Finding, Findings, Mend, Severity
from orbitmq.store.tools.index_check import IndexCheck
from orbitmq.store.tools.log_walk import End, LogWalk
from orbitmq.store.tools.queue_check import QueueCheck
from orbitmq.store.types import QueueKey

Progress = Callable[[int, int], None]  # how far, of how far
_STRIDE = 1 << 20
_BLOCKING = ("log-gap", "log-twice", "log-name")
GIVE_UP = "restore the file from a replica or a backup; the store steps over it; repair --truncate-damage gives up all from there on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a check found, and how much it went over."""

    findings: Findings
    records: int
    log_begin: int
    log_end: int
    files_end: int
    last_store_time_ms: int
    index_entries: int
    bad: tuple[BadBytes, ...]
    blocked: str | None  # why the store cannot be opened as its log is
    silent: frozenset[QueueKey]  # queues of which the log has no record any more
    deleted: frozenset[QueueKey]  # queues of deleted topics, of which the log still has records
    restarted: frozenset[QueueKey]  # queues that cannot be built again from the log, for it has two lives of them
    delays_ms: tuple[int, ...]


class _Times:
    """Store times do not go back; one record that stands out is damaged, a clock that was set back is not."""

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None

    def next(self, offset: int, time_ms: int) -> tuple[int, str, Severity] | None:
        """What is to be said of the record before this one, or of this one."""
        before, last, self._before, self._last = self._before, self._last, self._last, (offset, time_ms)
        if last is None:
            return None
        if before is not None and before[1] <= time_ms and not before[1] <= last[1] <= time_ms:
            self._before = before
            what = f"the store time of the record at {last[0]} is {last[1]}, those around it were stored from {before[1]} to {time_ms}"
            return last[0], what, Severity.LOSS
        if time_ms < last[1] and (before is None or before[1] > time_ms):
            return offset, f"the store time goes back from {last[1]} to {time_ms}: the clock was set back", Severity.NOTE
        return None


def check(directory: StoreDirectory, progress: Progress | None = None) -> Checked:
    """Go over everything."""
    findings = Findings()
    small_files.check_names(directory, findings)
    topics = small_files.check_configs(directory, findings)
    bad: list[BadBytes] = []

    def on_bad(found: BadBytes) -> None:
        bad.append(found)
        file, at = directory.log_path(found.offset)
        if found.reason.startswith("a blank"):
            mend = Mend(Action.WRITE_BLANK, str(found.offset))
            findings.add(Finding(Severity.DAMAGE, "blank", file, at, found.reason, "orbitmq store repair writes it again", mend))
            return
        what = f"{found.end - found.offset} bytes at {found.offset} are no good record: {found.reason}"
        findings.add(Finding(Severity.LOSS, "record", file, at, what, GIVE_UP, Mend(Action.GIVE_UP_LOG, str(found.offset))))

    walk = LogWalk(directory, on_bad)
    queues = QueueCheck(directory, findings, bad, topics)
    index = IndexCheck(directory, findings, bad, walk.files_end)
    times, told = _Times(), 0
    for record in walk:
        if (said := times.next(record.log_offset, record.store_time_ms)) is not None:
            file, at = directory.log_path(said[0])
            remedy = "restore the file from a replica or a backup" if said[2] is Severity.LOSS else "nothing"
            findings.add(Finding(said[2], "store-time", file, at, said[1], remedy))
        _check_values(directory, findings, record)
        queues.record(record)
        index.record(record)
        if progress is not None and record.log_offset - told >= _STRIDE:
            told = record.log_offset
            progress(told - walk.begin, walk.files_end - walk.begin)
    queues.finish(walk.end)
    index.finish(walk.end)
    _check_end(directory, findings, walk)
    small_files.check_checkpoint(directory, findings, walk.end, walk.store_time_ms)
    if not directory.is_clean:
        findings.add(
            Finding(Severity.NOTE, "abort", "abort", None, "the store was not stopped, or is open", "nothing: the next start recovers it")
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
        blocked=walk.doubt or next((f"{found.file}: {found.what}" for found in findings if found.kind in _BLOCKING), None),
        silent=queues.silent(),
        deleted=frozenset(queues.deleted),
        restarted=frozenset(queues.restarted),
        delays_ms=queues.delays_ms(),
    )


def _check_values(directory: StoreDirectory, findings: Findings, record: RecordCursor) -> None:
    """Fields that no checksum guards, and that have values which cannot be."""
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
        findings.add(Finding(Severity.LOSS, "record-field", file, at, what, "restore the file from a replica or a backup"))


def _check_end(directory: StoreDirectory, findings: Findings, walk: LogWalk) -> None:
    if not walk.runs:
        findings.add(Finding(Severity.NOTE, "log-none", "commitlog", None, "there are no log files", "nothing"))
        return
    if walk.doubt is not None:
        file, at = directory.log_path(walk.end)
        findings.add(Finding(Severity.LOSS, "doubt", file, at, walk.doubt, GIVE_UP))
    stale = walk.behind_end()
    if stale == walk.end:
        return
    file, at = directory.log_path(walk.end)
    mend = Mend(Action.CUT_LOG, str(walk.end))
    what = f"the log ends at {walk.end}, behind it are {stale - walk.end} bytes of {walk.ending.value}"
    if walk.ending is End.TORN:
        findings.add(Finding(Severity.DAMAGE, "torn", file, at, what, "orbitmq store repair, or the next start, cuts them off", mend))
    else:
        what = what if walk.ending is End.STALE else f"the log ends at {walk.end}, bytes up to {stale} are not zero"
        findings.add(Finding(Severity.NOTE, "stale", file, at, what, "nothing: the next start clears them", mend))
