"""Recovery: where the log ends, and queues and index brought up to it; after a clean stop and after a crash.

Two passes over the last part of the log. The first finds the end: it goes from a file that the checkpoint, or the position of the queues,
says is safe, as far as records are good. The second dispatches what queues and index may lack: from where the manifest proves every queue
and the index, or from where one begins that has to be rebuilt (`queue_proof`, `index_proof`). What was put already is skipped.

Rule for a record that is not good: what follows is given up with it only if nothing good follows: a torn tail. If good records stand behind
it, the log is damaged, not torn: the bad bytes are quarantined, and the good ones stay (`log_gap`). Where it cannot be told without
doubt which those are, `DamagedLog` names the place, and nothing is changed. `truncate_damage` is the original's rule: everything from the
first bad record on is given up. The original leaves bytes of records that it gave up behind the end of the log: after a clean stop,
records of which the checkpoint knows nothing are such.

After a crash, what the checkpoint does not vouch for is written once more, the log over itself, and what the manifest does not prove of
queues and index by dispatch: a sync that failed before the crash may have left pages that the system takes for clean although the disk
does not have them.

Crash rule: every step can be repeated; the log is cut before anything is put into queues or index.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orbitmq.common.clock import Clock
from orbitmq.common.errors import StoreError, WriteFailed
from orbitmq.common.garbage import collector_paused
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.index_proof import IndexProof
from orbitmq.store.log_scan import LogScan
from orbitmq.store.mapped_file import MappedFile
from orbitmq.store.quarantine import Quarantine
from orbitmq.store.queue_proof import QueueProof
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, StoreTimeMs

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
    queues_rebuilt: int  # of which some files at least were not as they should be
    is_index_rebuilt: bool  # from the first file on that was not as it should be
    lost_reason: str | None  # why the log ends where it does, None when it ends where nothing was written


class Recovery:
    """One start."""

    def __init__(
        self,
        log: CommitLog,
        queues: Queues,
        checkpoint: Checkpoint,
        dispatcher: Dispatcher,
        quarantine: Quarantine,
        clock: Clock,
        proofs: Callable[[], tuple[QueueProof, IndexProof | None]],
        *,
        truncate_damage: bool,
        listener: ProgressListener | None = None,
    ) -> None:
        self._log = log
        self._queues = queues
        self._checkpoint = checkpoint
        self._dispatcher = dispatcher
        self._quarantine = quarantine
        self._clock = clock
        self._proofs = proofs  # made when the end of the log is known
        self._truncate_damage = truncate_damage
        self._listener = listener
        self._cursor = RecordCursor()
        self.dispatch_failure: WriteFailed | None = None  # why the log is not in queues and index up to its end

    def run(self, *, clean: bool) -> Recovered:
        """Find the end of the log, cut everything to it, and dispatch what queues and index may lack."""
        self._log.files.end_at_data()
        files = [file for file in self._log.files.files if file.start < self._log.end_offset]
        begin = LogOffset(self._first_file(files, clean=clean).start if files else self._log.min_offset)
        scan = self._find_end(begin, clean=clean)
        lost_reason = scan.problem
        if lost_reason is not None and (self._is_clear(scan.offset) or (clean and self._is_known_end(scan))):
            lost_reason = None
        latest_ms = self._clock.now_ms() + _CLOCK_JUMP_MS_MAX  # a time that cannot be is damage, and would be that of all that follow
        unsynced = LogOffset(scan.offset if clean else max(begin, min(self._checkpoint.confirmed_offset, scan.offset)))
        self._log.resume(scan.offset, StoreTimeMs(min(scan.store_time_ms, latest_ms)), unsynced)
        self._queues.bound(self._log.min_offset, scan.offset)
        with collector_paused():
            proof, index_proof = self._proofs()
            needed = proof.run(scan.offset)
        if index_proof is not None:
            needed = min(needed, index_proof.run(scan.offset))
        is_index_rebuilt = index_proof is not None and index_proof.is_rebuilt
        self._dispatch(needed, begin, scan)
        log.info(
            "recovered clean=%s from=%d end=%d records=%d quarantined=%d queues_rebuilt=%d index_rebuilt=%s lost=%s",
            clean, begin, scan.offset, scan.records, len(self._quarantine), proof.rebuilt, is_index_rebuilt, lost_reason,
        )  # fmt: skip
        return Recovered(
            clean=clean,
            scanned_from=begin,
            end=scan.offset,
            records=scan.records,
            quarantined=len(self._quarantine),
            queues_rebuilt=proof.rebuilt,
            is_index_rebuilt=is_index_rebuilt,
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

    def _find_end(self, begin: LogOffset, *, clean: bool) -> LogScan:
        """Go over the log up to where the good records end.

        After a clean stop the checkpoint says up to where all is well: it is believed if that is the end of a record.
        """
        safe = LogOffset(self._checkpoint.queues_offset if clean else 0)
        scan = self._log.scan(begin, safe, check_body=False)
        if safe > begin:
            scan.to_end()
        if scan.offset != safe:
            scan = self._log.scan(begin)
        scan.go_on(None, lambda offset: self._tell("checking", begin, offset))
        if scan.problem is not None and not self._truncate_damage and not (clean and self._is_known_end(scan)):
            scan.go_on(self._quarantine, lambda offset: self._tell("checking", begin, offset))
        if scan.doubt is not None:
            raise DamagedLog(
                f"the commit log is damaged: {scan.problem}, and where it goes on cannot be told: {scan.doubt}. Restore the file from a "
                f"replica or a backup, or start with recoverBadRecord=truncate, which gives up everything from {scan.offset} on"
            )
        return scan

    def _dispatch(self, begin: LogOffset, checked_from: LogOffset, scan: LogScan) -> None:
        """Put into queues and index what they may lack: what is behind `begin`."""
        if begin < checked_from:
            self._check_between(begin, checked_from)
        dispatcher = self._dispatcher
        dispatcher.offset, dispatcher.store_time_ms = begin, scan.store_time_ms
        try:
            dispatcher.advance(progress=lambda offset: self._tell("dispatching", begin, offset))
        except WriteFailed as error:  # a full disk: the store is opened, goes on with this, and takes no messages until it is done
            self.dispatch_failure = error
        assert dispatcher.problem is None, f"the log was cut at {scan.offset}, and yet: {dispatcher.problem}"

    def _check_between(self, begin: LogOffset, end: LogOffset) -> None:
        """Quarantine what is bad in a part of the log that is older than what a start looks at."""
        scan = self._log.scan(begin, end, check_body=False, quarantine=self._quarantine)
        scan.to_end(lambda offset: self._tell("checking", begin, offset))
        if scan.problem is not None:
            raise DamagedLog(
                f"the commit log is damaged: {scan.problem}, and where it goes on cannot be told: {scan.doubt}. Queues have to be rebuilt "
                "from it: restore the file from a replica or a backup, or have the store repaired: orbitmq store repair"
            )

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
        return file.next_data(at) >= at + 8 or not any(file.view()[at : at + 8])
