"""Recovery: finds the end of the log and brings queues and index up to it, after a clean stop and
after a crash.

Two passes over the last part of the log. The first finds the end: it scans from a file that is safe
by the checkpoint, or by the position of the queues, as far as records are valid. The second
dispatches what queues and index may lack: from where the manifest proves every queue and the index,
or from where one begins that must be rebuilt (`queue_proof`, `index_proof`). Present entries are
skipped.

Rule for a corrupt record: the rest is dropped with it only if no valid record follows: a torn tail.
If valid records follow, the log is damaged, not torn: the corrupt bytes are quarantined, and the
valid records stay (`log_resync`). If these cannot be determined with certainty, `CorruptLogError`
names the place, and nothing is changed. `truncate_damage` is Apache's rule: everything from the
first corrupt record on is dropped. Apache leaves the bytes of dropped records after the end of the
log: after a clean stop, records unknown to the checkpoint are such leftovers.

After a crash, everything the checkpoint does not cover is written once more: the log over itself,
queues and index by dispatch where the manifest does not prove them. A sync that failed before the
crash may have left pages that the system considers clean although they are not on disk.

A log that ends before what a clean stop left is not opened (`LostLogError`): nothing is changed, so
that the files can be restored. After a crash it is opened, and an error log line counts the missing
bytes.

Crash rule: every step can be repeated; the log is truncated before anything is put into queues or
index.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orbitmq.common.clock import Clock
from orbitmq.common.errors import StoreError, WriteFailedError
from orbitmq.common.short_collections import collector_paused
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.index_proof import IndexProof
from orbitmq.store.log_loss import flushed_end, proven_end
from orbitmq.store.log_scan import LogScan
from orbitmq.store.mapped_file import MappedFile
from orbitmq.store.quarantine import Quarantine
from orbitmq.store.queue_manifest import Manifest
from orbitmq.store.queue_proof import QueueProof
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, StoreTimeMs

log = logging.getLogger(__name__)

_FILES_AFTER_CLEAN_STOP = 3
_REPORT_PERIOD_MS = 2_000
_CLOCK_JUMP_MS_MAX = 24 * 3_600_000
_LOOK_BACK = 64  # bytes before the end of the last record: less than any record


class CorruptLogError(StoreError):
    """The log has a corrupt record, and the next valid one cannot be determined."""


class LostLogError(StoreError):
    """The log ends before what was flushed when the store was stopped."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a pass over the log, in log offsets."""

    step: str
    begin: LogOffset
    offset: LogOffset
    end: LogOffset


ProgressListener = Callable[[Progress], None]


class ProgressLog:
    """Logs the progress of a long recovery now and then, and the estimated time left."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._step = ""
        self._began_ms = self._reported_ms = 0

    def __call__(self, progress: Progress) -> None:
        now_ms = self._monotonic_ms()
        if progress.step != self._step:
            self._step, self._began_ms, self._reported_ms = progress.step, now_ms, now_ms
        done, whole = progress.offset - progress.begin, progress.end - progress.begin
        if now_ms - self._reported_ms >= _REPORT_PERIOD_MS and done > 0:
            self._reported_ms = now_ms
            left_s = (now_ms - self._began_ms) * (whole - done) / done / 1000
            log.info(
                "recovering step=%s percent=%d bytes=%d of=%d seconds_left=%.0f",
                progress.step,
                100 * done // whole,
                done,
                whole,
                left_s,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The result of recovery."""

    clean: bool
    scanned_from: LogOffset
    end: LogOffset
    records: int
    quarantined: int  # corrupt ranges of the log that are skipped
    queues_rebuilt: int  # with at least one file that differed
    is_index_rebuilt: bool  # from the first file on that differed
    lost_reason: str | None  # why the log ends here; None if nothing was written after its end


class Recovery:
    """The recovery of one start."""

    def __init__(
        self,
        log: CommitLog,
        queues: Queues,
        checkpoint: Checkpoint,
        dispatcher: Dispatcher,
        quarantine: Quarantine,
        clock: Clock,
        proofs: Callable[[], tuple[QueueProof, IndexProof | None]],
        manifest: Manifest | None,
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
        self._manifest = manifest
        self._proofs = proofs  # created once the end of the log is known
        self._truncate_damage = truncate_damage
        self._listener = listener
        self._cursor = RecordCursor()
        # Why queues and index are not up to the end of the log.
        self.dispatch_failure: WriteFailedError | None = None

    def run(self, *, clean: bool) -> Recovered:
        """Find the end of the log, truncate everything to it, and dispatch what queues and index
        may lack.
        """
        self._log.files.end_at_data()
        files = [file for file in self._log.files.files if file.start < self._log.end_offset]
        begin = LogOffset(
            self._first_file(files, clean=clean).start if files else self._log.min_offset
        )
        scan = self._find_end(begin, clean=clean)
        lost_reason = scan.problem
        if lost_reason is not None and (
            self._is_clear(scan.offset) or (clean and self._is_known_end(scan))
        ):
            lost_reason = None
        self._check_loss(scan, lost_reason, clean=clean)
        # An impossible time is damage, and all later records would inherit it.
        latest_ms = self._clock.now_ms() + _CLOCK_JUMP_MS_MAX
        unsynced = LogOffset(
            scan.offset
            if clean
            else max(begin, min(self._checkpoint.confirmed_offset, scan.offset))
        )
        self._log.resume(scan.offset, StoreTimeMs(min(scan.store_time_ms, latest_ms)), unsynced)
        self._queues.bound(self._log.min_offset, scan.offset)
        with collector_paused():
            proof, index_proof = self._proofs()
            needed = proof.run(scan.offset, clean=clean)
        if index_proof is not None:
            needed = min(needed, index_proof.run(scan.offset))
        is_index_rebuilt = index_proof is not None and index_proof.is_rebuilt
        self._dispatch(needed, begin, scan)
        log.info(
            "recovered clean=%s from=%d end=%d records=%d quarantined=%d queues_rebuilt=%d "
            "index_rebuilt=%s lost=%s",
            clean,
            begin,
            scan.offset,
            scan.records,
            len(self._quarantine),
            proof.rebuilt,
            is_index_rebuilt,
            lost_reason,
        )
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

    def _check_loss(self, scan: LogScan, lost_reason: str | None, *, clean: bool) -> None:
        """Log how many flushed bytes are missing. After a clean stop none may be: LostLogError,
        unless they exist but are corrupt, or damage is dropped.
        """
        end = scan.offset
        if not clean:
            proven = flushed_end(self._checkpoint, self._manifest)
            if proven > end:
                log.error(
                    "log_shorter_than_flushed end=%d flushed=%d missing=%d reason=%s",
                    end,
                    proven,
                    proven - end,
                    lost_reason or "the log ends there",
                )
            return
        known = proven_end(
            self._checkpoint, self._manifest, log_end=end, last_time_ms=scan.store_time_ms
        )
        if known is None:
            return
        if lost_reason is not None and (self._truncate_damage or self._any_byte_before(known)):
            log.error(
                "log_end_damaged end=%d proven=%d missing=%d reason=%s",
                end,
                known,
                known - end,
                lost_reason,
            )
            return
        folder = ", ".join(map(str, self._log.files.folders))
        file = self._log.files.find(end) or self._log.files.find(end - 1)
        what = (
            f"{known - end} bytes of records are missing"
            if known
            else "records of later times are missing"
        )
        raise LostLogError(
            f"the commit log in {folder} ends at {end}"
            f"{'' if file is None else f' ({file.path})'}, but the store was stopped with more:"
            f" {what} that queues.manifest and checkpoint list. Is a disk not mounted, or was a"
            " file replaced? Restore the files from their disk, a replica or a backup;"
            " to accept the loss: orbitmq store repair"
        )

    def _any_byte_before(self, end: int) -> bool:
        """Whether any bytes before that offset exist, valid or not."""
        content = self._log.files.view(end - _LOOK_BACK, _LOOK_BACK)
        return content is not None and any(content)

    def _first_file(self, files: Sequence[MappedFile], *, clean: bool) -> MappedFile:
        """Return the last file before which everything is known to be in the queues, or the first
        file.
        """
        if clean:
            safe_offset = self._checkpoint.queues_offset
            candidates = (
                [file for file in files if file.start <= safe_offset]
                if safe_offset
                else list(files[:-_FILES_AFTER_CLEAN_STOP])
            )
            return self._latest(candidates, lambda _record: True) or files[0]
        safe_time = self._checkpoint.min_time_ms
        return (
            self._latest(list(files), lambda record: 0 < record.store_time_ms <= safe_time)
            or files[0]
        )

    def _latest(
        self, files: list[MappedFile], is_safe: Callable[[RecordCursor], bool]
    ) -> MappedFile | None:
        """Return the last file whose first record is valid and safe."""
        for file in reversed(files):
            record = self._cursor
            good = record.read(file.view(), 0, file.size) > 0 and record.log_offset == file.start
            if good and is_safe(record):
                return file
        return None

    def _find_end(self, begin: LogOffset, *, clean: bool) -> LogScan:
        """Scan the log to the end of the valid records.

        After a clean stop the checkpoint states up to where all is well: it is trusted if a record
        ends there.
        """
        safe = LogOffset(self._checkpoint.queues_offset if clean else 0)
        scan = self._log.scan(begin, safe, check_body=False)
        if safe > begin:
            scan.to_end()
        if scan.offset != safe:
            scan = self._log.scan(begin)
        scan.resume(None, lambda offset: self._report("checking", begin, offset))
        if (
            scan.problem is not None
            and not self._truncate_damage
            and not (clean and self._is_known_end(scan))
        ):
            scan.resume(self._quarantine, lambda offset: self._report("checking", begin, offset))
        if scan.doubt is not None:
            raise CorruptLogError(
                f"the commit log is damaged: {scan.problem}, and the next valid record is"
                f" uncertain: {scan.doubt}. Restore the file from a replica or a backup, or start"
                f" with recoverBadRecord=truncate, which drops everything from {scan.offset} on"
            )
        return scan

    def _dispatch(self, begin: LogOffset, checked_from: LogOffset, scan: LogScan) -> None:
        """Dispatch from `begin` on what queues and index may lack."""
        if begin < checked_from:
            self._check_between(begin, checked_from)
        dispatcher = self._dispatcher
        dispatcher.offset, dispatcher.store_time_ms = begin, scan.store_time_ms
        try:
            dispatcher.advance(progress=lambda offset: self._report("dispatching", begin, offset))
        except WriteFailedError as error:
            # A full disk: the store opens, retries this, and refuses messages until it succeeds.
            self.dispatch_failure = error
        assert dispatcher.problem is None, (
            f"the log was truncated to {scan.offset}, but: {dispatcher.problem}"
        )

    def _check_between(self, begin: LogOffset, end: LogOffset) -> None:
        """Quarantine corrupt bytes in a part of the log that a start does not normally read."""
        scan = self._log.scan(begin, end, check_body=False, quarantine=self._quarantine)
        scan.to_end(lambda offset: self._report("checking", begin, offset))
        if scan.problem is not None:
            raise CorruptLogError(
                f"the commit log is damaged: {scan.problem}, and the next valid record is"
                f" uncertain: {scan.doubt}. Queues must be rebuilt from it: restore the file from a"
                " replica or a backup, or repair the store: orbitmq store repair"
            )

    def _report(self, step: str, begin: LogOffset, offset: LogOffset) -> None:
        if self._listener is not None:
            self._listener(Progress(step, begin, offset, self._log.end_offset))

    def _is_known_end(self, scan: LogScan) -> bool:
        """Whether the checkpoint of a clean stop knows of no record after the place where a scan
        stopped.
        """
        known_ms: int = max(self._checkpoint.log_time_ms, self._checkpoint.queues_time_ms)
        return known_ms <= scan.store_time_ms and self._checkpoint.queues_offset <= scan.offset

    def _is_clear(self, offset: LogOffset) -> bool:
        """Whether nothing was ever written at the offset."""
        file = self._log.files.find(offset)
        if file is None:
            return True
        at = offset - file.start
        return file.next_data(at) >= at + 8 or not any(file.view()[at : at + 8])
