"""Recovery: where the log ends, and queues and index brought up to it; after a clean stop and after a crash.

Two passes over the last part of the log. The first finds the end: it goes from a file that the checkpoint, or the position of the queues,
says is safe, as far as records are good. The second dispatches that part again, which queues and index take as often as it comes.

Rule for a record that is not good: what follows is given up with it only if nothing good follows: a torn tail. If good records stand behind
it, the log is damaged, not torn: the bad bytes are quarantined, and the good ones stay (`log_gap`). Where it cannot be told without
doubt which those are, `DamagedLog` names the place, and nothing is changed. `truncate_damage` is the original's rule: everything from the
first bad record on is given up. The original leaves bytes of records that it gave up behind the end of the log: after a clean stop,
records of which the checkpoint knows nothing are such.

After a crash, what the checkpoint does not vouch for is written once more, the log over itself and queue entries by dispatch: a sync that
failed before the crash may have left pages that the system takes for clean although the disk does not have them.

Crash rule: every step can be repeated; the log is cut before anything is put into queues or index.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from orbitmq.common.clock import Clock
from orbitmq.common.errors import StoreError
from orbitmq.message.properties import KEYS, TAGS, UNIQUE_KEY
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.index import Index
from orbitmq.store.log_scan import LogScan
from orbitmq.store.mapped_file import MappedFile
from orbitmq.store.quarantine import Quarantine
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs

log = logging.getLogger(__name__)

_FILES_AFTER_CLEAN_STOP = 3
_TELL_PERIOD_MS = 2_000
_CLOCK_JUMP_MS_MAX = 24 * 3_600_000


class DamagedLog(StoreError):
    """The log has a record that is not good, and nobody can tell where the good ones behind it begin."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pass has come: bytes of the log, from where, up to now, of how far."""

    step: str
    begin: LogOffset
    offset: LogOffset
    end: LogOffset


ProgressListener = Callable[[Progress], None]


class ProgressLog:
    """Tells the log now and then how far a long recovery is, and when it may be done."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._step = ""
        self._began_ms = self._told_ms = 0

    def __call__(self, progress: Progress) -> None:
        now_ms = self._monotonic_ms()
        if progress.step != self._step:
            self._step, self._began_ms, self._told_ms = progress.step, now_ms, now_ms
        done, whole = progress.offset - progress.begin, progress.end - progress.begin
        if now_ms - self._told_ms >= _TELL_PERIOD_MS and done > 0:
            self._told_ms = now_ms
            left_s = (now_ms - self._began_ms) * (whole - done) / done / 1000
            log.info(
                "recovering step=%s percent=%d bytes=%d of=%d seconds_left=%.0f", progress.step, 100 * done // whole, done, whole, left_s
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What recovery found."""

    clean: bool
    scanned_from: LogOffset
    end: LogOffset
    records: int
    quarantined: int  # places in the log that are stepped over
    lost_reason: str | None  # why the log ends where it does, None when it ends where nothing was written


class Recovery:
    """One start."""

    def __init__(
        self,
        log: CommitLog,
        queues: Queues,
        index: Index | None,
        checkpoint: Checkpoint,
        dispatcher: Dispatcher,
        quarantine: Quarantine,
        clock: Clock,
        *,
        truncate_damage: bool,
        listener: ProgressListener | None = None,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._dispatcher = dispatcher
        self._quarantine = quarantine
        self._clock = clock
        self._truncate_damage = truncate_damage
        self._listener = listener
        self._cursor = RecordCursor()

    def run(self, *, clean: bool) -> Recovered:
        """Find the end of the log, cut everything to it, and dispatch what queues and index may lack."""
        files = self._log.files.files
        begin = LogOffset(self._first_file(files, clean=clean).start if files else 0)
        scan, safe = self._find_end(begin, clean=clean)
        lost_reason = scan.problem
        if lost_reason is not None and (self._is_clear(scan.offset) or (clean and self._is_known_end(scan))):
            lost_reason = None
        latest_ms = self._clock.now_ms() + _CLOCK_JUMP_MS_MAX  # a time that cannot be is damage, and would be that of all that follow
        unsynced = LogOffset(scan.offset if clean else max(begin, min(self._checkpoint.confirmed_offset, scan.offset)))
        self._log.resume(scan.offset, StoreTimeMs(min(scan.store_time_ms, latest_ms)), unsynced)
        self._queues.bound(self._log.min_offset, scan.offset, self._confirms, self._dispatcher.refill, None if clean else safe)
        self._dispatch(safe, scan, clean=clean)
        log.info(
            "recovered clean=%s from=%d end=%d records=%d quarantined=%d lost=%s",
            clean, begin, scan.offset, scan.records, len(self._quarantine), lost_reason,
        )  # fmt: skip
        return Recovered(
            clean=clean,
            scanned_from=begin,
            end=scan.offset,
            records=scan.records,
            quarantined=len(self._quarantine),
            lost_reason=lost_reason,
        )

    def _first_file(self, files: Sequence[MappedFile], *, clean: bool) -> MappedFile:
        """The last file before which everything is known to be in the queues; the first file when nothing is known."""
        if clean:
            safe_offset = self._checkpoint.queues_offset
            candidates = [file for file in files if file.start <= safe_offset] if safe_offset else list(files[:-_FILES_AFTER_CLEAN_STOP])
            return self._latest(candidates, lambda _record: True) or files[0]
        safe_time = self._checkpoint.min_time_ms
        return self._latest(list(files), lambda record: 0 < record.store_time_ms <= safe_time) or files[0]

    def _latest(self, files: list[MappedFile], is_safe: Callable[[RecordCursor], bool]) -> MappedFile | None:
        """The last of the files whose first record is good and safe."""
        for file in reversed(files):
            record = self._cursor
            good = record.read(file.view(), 0, file.size) > 0 and record.log_offset == file.start
            if good and is_safe(record):
                return file
        return None

    def _find_end(self, begin: LogOffset, *, clean: bool) -> tuple[LogScan, LogOffset]:
        """Go over the log up to where the good records end, and from where on they have to be dispatched.

        After a clean stop the checkpoint says up to where all is well: it is believed if that is the end of a record.
        """
        safe = LogOffset(self._checkpoint.queues_offset if clean else 0)
        scan = self._log.scan(begin, safe, check_body=False)
        if safe > begin:
            scan.to_end()
        if scan.offset != safe:
            scan, safe = self._log.scan(begin), begin
        scan.go_on(None, lambda offset: self._tell("checking", begin, offset))
        if scan.problem is not None and not self._truncate_damage and not (clean and self._is_known_end(scan)):
            scan.go_on(self._quarantine, lambda offset: self._tell("checking", begin, offset))
        if scan.doubt is not None:
            raise DamagedLog(
                f"the commit log is damaged: {scan.problem}, and where it goes on cannot be told: {scan.doubt}. Restore the file from a "
                f"replica or a backup, or start with recoverBadRecord=truncate, which gives up everything from {scan.offset} on"
            )
        return scan, safe

    def _dispatch(self, begin: LogOffset, scan: LogScan, *, clean: bool) -> None:
        """Put into queues and index what they may lack: what is behind `begin`, and all of what is missing as a whole."""
        log_min = self._log.min_offset
        if next(iter(self._queues.plain), None) is None and next(iter(self._queues.batch), None) is None:
            begin = log_min
        index = self._index
        if index is not None:
            index.truncate(scan.offset)
            if not clean or index.lost_entries or (not index.files and self._has_keys(log_min)):
                begin = max(min(begin, index.end_offset), log_min)
        dispatcher = self._dispatcher
        dispatcher.offset, dispatcher.store_time_ms = begin, scan.store_time_ms
        dispatcher.advance(progress=lambda offset: self._tell("dispatching", begin, offset))
        assert dispatcher.problem is None, f"the log was cut at {scan.offset}, and yet: {dispatcher.problem}"

    def _has_keys(self, offset: LogOffset) -> bool:
        """Whether the record there is one that the index would know."""
        return any(record.property(name) for record in islice(self._log.scan(offset), 1) for name in (UNIQUE_KEY, KEYS, TAGS))

    def _tell(self, step: str, begin: LogOffset, offset: LogOffset) -> None:
        if self._listener is not None:
            self._listener(Progress(step, begin, offset, self._log.end_offset))

    def _is_known_end(self, scan: LogScan) -> bool:
        """Whether the checkpoint of a clean stop knows of no record behind the place where a scan stopped."""
        known_ms: int = max(self._checkpoint.log_time_ms, self._checkpoint.queues_time_ms)
        return known_ms <= scan.store_time_ms and self._checkpoint.queues_offset <= scan.offset

    def _is_clear(self, offset: LogOffset) -> bool:
        """Whether nothing was ever written at the offset."""
        file = self._log.files.find(offset)
        if file is None:
            return True
        at = offset - file.start
        return not any(file.view()[at : at + 8])

    def _confirms(self, key: QueueKey, log_offset: LogOffset, size: int, queue_offset: QueueOffset) -> bool:
        """Whether the log has that record for that place of the queue, or had it: what it deleted was right when it was there."""
        if log_offset < self._log.min_offset:
            return True
        content = self._log.read(log_offset, size)
        record = RecordCursor()  # one that is kept would keep the file from being unmapped
        return (
            content is not None
            and record.read(content, 0, size, False) == size
            and (record.queue_id, record.queue_offset) == (key.queue_id, queue_offset)
            and record.topic() == key.topic.encode()
        )
