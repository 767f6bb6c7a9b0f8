"""Flushes the files derived from the log, queues and index, and keeps the checkpoint true: it
claims only what is durable.

What the checkpoint claims, and when:
- the log: the store time of the last flushed record, and the offset after it;
- the queues: the offset and time up to which all was dispatched when a thorough round began, once
  every file that was unsynced then is synced, and the log is flushed that far too (or a power
  failure could leave queues with records that the log has lost);
- the index: the time of the last entry of the full files, once they are synced and the log is
  flushed beyond it. One millisecond less until the next file has a later entry: that file may fill
  up within the same millisecond, and the claim would cover it unsynced.

A claim only grows. The one exception is `begin`, which takes back what a truncated log no longer
has. A thorough round also syncs the index file that takes entries: the checkpoint does not cover
it, but the manifest does.

A failed sync of queues or index: the system may have dropped pages of these files for good, and a
later sync would succeed without them. So `unsafe_reason` is set, and the claims about both stay as
they are until the process ends: after a crash, everything since is dispatched again. The store
continues, for no message is lost and the log has all of them. But it must not be marked as stopped
cleanly, or the next start would trust these files: on close the `abort` mark stays if there is an
`unsafe_reason`. A failed write or sync of the checkpoint loses nothing, whether the old or the new
numbers are on disk: it is logged and retried.

Thread rule: the loop thread. Invariants: at most one job of each kind is in flight; the files of a
job stay open until it is reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import PAGE_SIZE
from orbitmq.store.index import Index, IndexFlushJob
from orbitmq.store.index_file import IndexFile
from orbitmq.store.open_files import FilesFlushJob, OpenFiles
from orbitmq.store.types import LogOffset, StoreTimeMs

JOB_FILES_MAX = 128  # queue files that one job opens and syncs
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """The checkpoint's file to sync, and what was written to it."""

    descriptors: tuple[int, ...]
    content: bytes


DerivedJob: TypeAlias = FilesFlushJob | IndexFlushJob | CheckpointJob


class Claim(NamedTuple):
    """What may be claimed once the log is flushed up to `offset`."""

    offset: LogOffset
    time_ms: StoreTimeMs


class DerivedFlush:
    """Flushes queues, index and checkpoint of one store."""

    def __init__(
        self,
        log: CommitLog,
        queue_files: OpenFiles,
        index: Index | None,
        checkpoint: Checkpoint,
        dispatched: Callable[[], tuple[LogOffset, StoreTimeMs]],
        submit: Callable[[DerivedJob], None],
    ) -> None:
        self.unsafe_reason: str | None = None
        self.rounds_begun = self.rounds_ended = 0  # thorough ones
        self._log = log
        self._queue_files = queue_files
        self._index = index
        self._checkpoint = checkpoint
        self._dispatched = dispatched
        self._submit = submit
        self._in_flight: set[type[DerivedJob]] = set()
        # The next round: the dirty pages a queue must have to be in it; 0 is thorough.
        self._pages_due: int | None = None
        self._round_bytes_min = 0
        self._round_left = 0  # files the current round may still take
        self._round_claim: Claim | None = None  # what a thorough round will prove
        self._queues_claim: Claim | None = None  # proved, but the log is not flushed that far
        self._index_file: IndexFile | None = None  # the last full synced one, until fully claimed
        self._is_index_due = False  # all of it, in the current thorough round
        self._is_checkpoint_failing = False
        self._checkpoint_due = False
        self._saved = b""  # the content of the checkpoint that is durable

    @property
    def is_in_flight(self) -> bool:
        return bool(self._in_flight)

    @property
    def is_checkpoint_saved(self) -> bool:
        """Whether all claims are durable."""
        return self._saved == self._checkpoint.content

    def begin(self) -> None:
        """Claim the log as recovery left it, flushed, and nothing after its end; OSError if a claim
        cannot be taken back.
        """
        checkpoint, flushed_offset, time_ms = (
            self._checkpoint,
            self._log.flushed_offset,
            self._log.last_store_time_ms,
        )
        assert flushed_offset == self._log.end_offset, "recovery flushes the log"
        before = (
            checkpoint.log_time_ms,
            checkpoint.queues_time_ms,
            checkpoint.index_time_ms,
            checkpoint.queues_offset,
        )
        checkpoint.log_time_ms = time_ms
        checkpoint.queues_time_ms = min(checkpoint.queues_time_ms, time_ms)
        checkpoint.index_time_ms = min(checkpoint.index_time_ms, time_ms)
        checkpoint.queues_offset = min(checkpoint.queues_offset, flushed_offset)
        checkpoint.confirmed_offset = flushed_offset
        after = (
            checkpoint.log_time_ms,
            checkpoint.queues_time_ms,
            checkpoint.index_time_ms,
            checkpoint.queues_offset,
        )
        if any(now < then for now, then in zip(after, before, strict=True)):
            log.warning("checkpoint_taken_back before=%s after=%s", before, after)
            checkpoint.flush()
            self._saved = checkpoint.content

    def due(self, queues_pages_min: int | None, *, checkpoint: bool) -> None:
        """Submit what is due, or defer it until the jobs in flight are done."""
        if queues_pages_min is not None:
            self._pages_due = (
                queues_pages_min
                if self._pages_due is None
                else min(queues_pages_min, self._pages_due)
            )
            self._flush_queues()
            self._flush_index()
        if checkpoint:
            self._checkpoint_due = True
            self._save_checkpoint()

    def log_flushed(self, time_ms: StoreTimeMs) -> None:
        """Note that the log is flushed up to a record of that time; claims that waited for it can
        be made.
        """
        self._checkpoint.log_time_ms = time_ms
        self._checkpoint.confirmed_offset = self._log.flushed_offset
        self._claim()

    def reported(self, job: DerivedJob, error: Exception | None) -> None:
        """Take the result of a job; the next of its kind is submitted, if it is due."""
        self._in_flight.remove(type(job))
        self.release(job)
        match job:
            case FilesFlushJob():
                if error is not None:
                    self._become_unsafe("consume queues", error)
                self._flush_queues()
            case IndexFlushJob():
                if error is not None:
                    self._become_unsafe("index", error)
                if job.sealed is not None:
                    self._index_file = job.sealed
                self._claim()
                self._flush_index()
                self._flush_queues()
            case CheckpointJob():
                if error is None:
                    self._saved = job.content
                    if self._is_checkpoint_failing:
                        log.info("checkpoint_saved_again")
                    self._is_checkpoint_failing = False
                else:
                    self._checkpoint_failed(error)
                self._save_checkpoint()

    def release(self, job: DerivedJob) -> None:
        """Release the files of a job, whatever its result."""
        if isinstance(job, FilesFlushJob):
            self._queue_files.end_flush(job)
        elif isinstance(job, IndexFlushJob):
            assert self._index is not None
            self._index.end_flush(job)

    def stop_index(self) -> None:
        """Write and sync the index to its last entry, synchronously, and close it."""
        if self._index is None:
            return
        try:
            self._index.stop()
        except Exception as error:  # the index is not safe, and the rest must be stopped too
            self._become_unsafe("index", error)
            self._index.close()

    def _flush_queues(self) -> None:
        """Submit the next files of the current round; begin the next round if it is due."""
        while FilesFlushJob not in self._in_flight:
            if self._round_left <= 0:
                if self._round_claim is not None and (
                    self._is_index_due or IndexFlushJob in self._in_flight
                ):
                    return
                self._end_round()
                if self._pages_due is None:
                    return
                self._begin_round(self._pages_due)
                self._pages_due = None
            before = self._queue_files.unsynced_count
            try:
                job = self._queue_files.begin_flush(
                    self._round_bytes_min, min(self._round_left, JOB_FILES_MAX)
                )
            except OSError as error:  # no descriptor: files may have left the list unsynced
                self._become_unsafe("consume queues", error)
                self._round_left = 0
                continue
            taken = before - self._queue_files.unsynced_count
            self._round_left = self._round_left - taken if taken else 0
            if job is not None:
                self._start(job)

    def _begin_round(self, pages_min: int) -> None:
        """Begin a round over the files that are unsynced now: they are the first of the list."""
        self._round_bytes_min = pages_min * PAGE_SIZE
        self._round_left = self._queue_files.unsynced_count
        if pages_min == 0:
            self._round_claim = Claim(*self._dispatched())
            self.rounds_begun += 1
            self._is_index_due = self._index is not None
            self._flush_index()

    def _end_round(self) -> None:
        if self._round_claim is not None:
            self.rounds_ended += 1
            self._queues_claim, self._round_claim = self._round_claim, None
            self._claim()

    def _flush_index(self) -> None:
        if self._index is None or IndexFlushJob in self._in_flight:
            return
        job, self._is_index_due = self._index.begin_flush(is_thorough=self._is_index_due), False
        if job is not None:
            self._start(job)

    def _save_checkpoint(self) -> None:
        if not self._checkpoint_due or CheckpointJob in self._in_flight:
            return
        self._checkpoint_due = False
        if self.is_checkpoint_saved:
            return
        try:
            self._checkpoint.write()
        except OSError as error:
            self._checkpoint_failed(error)
        else:
            self._start(CheckpointJob((self._checkpoint.descriptor,), self._checkpoint.content))

    def _start(self, job: DerivedJob) -> None:
        self._in_flight.add(type(job))
        self._submit(job)

    def _claim(self) -> None:
        """Make the checkpoint claim what is proved, as far as the log is flushed."""
        if self.unsafe_reason is not None:
            return
        checkpoint, flushed_offset, queues = (
            self._checkpoint,
            self._log.flushed_offset,
            self._queues_claim,
        )
        if queues is not None and queues.offset <= flushed_offset:
            checkpoint.queues_offset, checkpoint.queues_time_ms = queues
            self._queues_claim = None
        if self._index_file is not None and self._index_file.header.end_offset < flushed_offset:
            self._claim_index(self._index_file)

    def _claim_index(self, file: IndexFile) -> None:
        """Claim the index up to the end of that file, unless the claim would cover a later file
        too.
        """
        assert self._index is not None
        time_ms = file.header.end_time_ms
        following = next(
            (each for each in self._index.files if each.path.name > file.path.name), None
        )
        if following is not None and following.header.end_time_ms > time_ms:
            self._index_file = None
        else:
            time_ms = StoreTimeMs(time_ms - 1)
        self._checkpoint.index_time_ms = max(self._checkpoint.index_time_ms, time_ms)

    def _become_unsafe(self, what: str, error: Exception) -> None:
        """Claim nothing more about queues and index; the first reason is kept."""
        if self.unsafe_reason is None:
            self.unsafe_reason = (
                f"flushing the {what} failed: {error}; their last writes may be"
                " lost. The commit log has all messages: check the disk, then restart the"
                " broker, which rebuilds queues and index from the last checkpoint on"
            )
            log.error("derived_files_unsafe reason=%s", self.unsafe_reason)

    def _checkpoint_failed(self, error: Exception) -> None:
        """Log the failure once; every later round writes the checkpoint again."""
        if not self._is_checkpoint_failing:
            log.error("checkpoint_not_saved error=%s, retrying", error)
        self._is_checkpoint_failing = True
