"""Flushes what is made from the log, queues and index, and keeps the checkpoint true: it claims only what the disk has.

What the checkpoint claims, and when:
- the log: the store time of the last record that is flushed, and the offset behind it;
- the queues: the offset and time up to which all was dispatched when a thorough round began, once every file that was unsynced then is
  synced, and the log is flushed that far too (or a power cut could leave queues that know records which the log has lost);
- the index: the time of the last entry of the full files, once they are synced and the log is flushed behind it. One millisecond less
  until the file that follows has a later entry: it may fill up within the same one, and would be covered by the claim unsynced.
A claim only grows. The one exception is `begin`, which takes back what a log that was cut has no more. A thorough round also syncs the
index file that takes entries: the checkpoint says nothing of it, but the manifest does.

A failed sync of queues or index: the system may have dropped pages of these files for good, and a later sync would succeed without them.
So `unsafe_reason` is set, and the claims about both stay what they are for as long as this process lives: after a crash, everything
since is dispatched again. The store goes on, for no message is lost and the log has all of them. But it must not be marked as stopped
cleanly, or the next start would trust these files: who closes the store keeps its `abort` mark when there is an `unsafe_reason`.
A failed write or sync of the checkpoint loses nothing, whether the disk has the old numbers or the new: it is told, and tried again.

Thread rule: the loop thread. Invariants: one job of each kind is under way at most; the files of a job stay open until it is reported.
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

JOB_FILES_MAX = 128  # queue files that are opened and synced in one go
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """The checkpoint's file to sync, and what was written to it."""

    descriptors: tuple[int, ...]
    content: bytes


DerivedJob: TypeAlias = FilesFlushJob | IndexFlushJob | CheckpointJob


class Claim(NamedTuple):
    """What may be claimed as soon as the log is flushed up to `offset`."""

    offset: LogOffset
    time_ms: StoreTimeMs


class DerivedFlush:
    """Queues, index and checkpoint of one store."""

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
        self._under_way: set[type[DerivedJob]] = set()
        self._pages_due: int | None = None  # the next round: how many dirty pages a queue must have to be in it; 0 is thorough
        self._round_bytes_min = 0
        self._round_left = 0  # how many files the round under way may still take
        self._round_claim: Claim | None = None  # what it will prove, if it is thorough
        self._queues_claim: Claim | None = None  # proved, and the log is not flushed that far
        self._index_file: IndexFile | None = None  # the last full one that is synced, unless all of it is claimed
        self._is_index_due = False  # all of it, in the thorough round under way
        self._checkpoint_due = False
        self._saved = b""  # the content of the checkpoint that is known to be on disk

    @property
    def is_under_way(self) -> bool:
        return bool(self._under_way)

    @property
    def is_checkpoint_saved(self) -> bool:
        """Whether the disk has all that is claimed."""
        return self._saved == self._checkpoint.content

    def begin(self) -> None:
        """Claim the log as recovery left it, flushed, and nothing behind its end; OSError when a claim cannot be taken back."""
        checkpoint, flushed_offset, time_ms = self._checkpoint, self._log.flushed_offset, self._log.last_store_time_ms
        assert flushed_offset == self._log.end_offset, "recovery flushes the log"
        before = checkpoint.log_time_ms, checkpoint.queues_time_ms, checkpoint.index_time_ms, checkpoint.queues_offset
        checkpoint.log_time_ms = time_ms
        checkpoint.queues_time_ms = min(checkpoint.queues_time_ms, time_ms)
        checkpoint.index_time_ms = min(checkpoint.index_time_ms, time_ms)
        checkpoint.queues_offset = min(checkpoint.queues_offset, flushed_offset)
        checkpoint.confirmed_offset = flushed_offset
        after = checkpoint.log_time_ms, checkpoint.queues_time_ms, checkpoint.index_time_ms, checkpoint.queues_offset
        if any(now < then for now, then in zip(after, before, strict=True)):
            log.warning("checkpoint_taken_back before=%s after=%s", before, after)
            checkpoint.flush()
            self._saved = checkpoint.content

    def due(self, queues_pages_min: int | None, *, checkpoint: bool) -> None:
        """Hand in what is due, or remember it until what is under way is back."""
        if queues_pages_min is not None:
            self._pages_due = queues_pages_min if self._pages_due is None else min(queues_pages_min, self._pages_due)
            self._flush_queues()
            self._flush_index()
        if checkpoint:
            self._checkpoint_due = True
            self._save_checkpoint()

    def log_flushed(self, time_ms: StoreTimeMs) -> None:
        """The log is flushed up to a record of that time; what waited for it can be claimed."""
        self._checkpoint.log_time_ms = time_ms
        self._checkpoint.confirmed_offset = self._log.flushed_offset
        self._claim()

    def reported(self, job: DerivedJob, error: Exception | None) -> None:
        """What became of a job; the next of its kind is handed in, if it is due."""
        self._under_way.remove(type(job))
        self.let_go(job)
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
                else:
                    self._checkpoint_failed(error)
                self._save_checkpoint()

    def let_go(self, job: DerivedJob) -> None:
        """Give the files of a job free, whatever became of it."""
        if isinstance(job, FilesFlushJob):
            self._queue_files.end_flush(job)
        elif isinstance(job, IndexFlushJob):
            assert self._index is not None
            self._index.end_flush(job)

    def stop_index(self) -> None:
        """Write and sync the index to its last entry, here and now, and close it."""
        if self._index is None:
            return
        try:
            self._index.stop()
        except Exception as error:  # whatever it is, the index is not safe, and the rest has to be stopped too
            self._become_unsafe("index", error)
            self._index.close()

    def _flush_queues(self) -> None:
        """Hand in the next files of the round under way; begin the next round when it is due."""
        while FilesFlushJob not in self._under_way:
            if self._round_left <= 0:
                if self._round_claim is not None and (self._is_index_due or IndexFlushJob in self._under_way):
                    return
                self._end_round()
                if self._pages_due is None:
                    return
                self._begin_round(self._pages_due)
                self._pages_due = None
            before = self._queue_files.unsynced_count
            try:
                job = self._queue_files.begin_flush(self._round_bytes_min, min(self._round_left, JOB_FILES_MAX))
            except OSError as error:  # no descriptor: files may have left the list without being synced
                self._become_unsafe("consume queues", error)
                self._round_left = 0
                continue
            taken = before - self._queue_files.unsynced_count
            self._round_left = self._round_left - taken if taken else 0
            if job is not None:
                self._hand_in(job)

    def _begin_round(self, pages_min: int) -> None:
        """The files that are unsynced now come first in their list: as many from its beginning, and all of them were taken."""
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
        if self._index is None or IndexFlushJob in self._under_way:
            return
        job, self._is_index_due = self._index.begin_flush(is_thorough=self._is_index_due), False
        if job is not None:
            self._hand_in(job)

    def _save_checkpoint(self) -> None:
        if not self._checkpoint_due or CheckpointJob in self._under_way:
            return
        self._checkpoint_due = False
        if self.is_checkpoint_saved:
            return
        try:
            self._checkpoint.write()
        except OSError as error:
            self._checkpoint_failed(error)
        else:
            self._hand_in(CheckpointJob((self._checkpoint.descriptor,), self._checkpoint.content))

    def _hand_in(self, job: DerivedJob) -> None:
        self._under_way.add(type(job))
        self._submit(job)

    def _claim(self) -> None:
        """Let the checkpoint claim what is proved, as far as the log is flushed."""
        if self.unsafe_reason is not None:
            return
        checkpoint, flushed_offset, queues = self._checkpoint, self._log.flushed_offset, self._queues_claim
        if queues is not None and queues.offset <= flushed_offset:
            checkpoint.queues_offset, checkpoint.queues_time_ms = queues
            self._queues_claim = None
        if self._index_file is not None and self._index_file.header.end_offset < flushed_offset:
            self._claim_index(self._index_file)

    def _claim_index(self, file: IndexFile) -> None:
        """Claim the index up to the end of that file, as far as no file behind it can be meant too."""
        assert self._index is not None
        time_ms = file.header.end_time_ms
        following = next((each for each in self._index.files if each.path.name > file.path.name), None)
        if following is not None and following.header.end_time_ms > time_ms:
            self._index_file = None
        else:
            time_ms = StoreTimeMs(time_ms - 1)
        self._checkpoint.index_time_ms = max(self._checkpoint.index_time_ms, time_ms)

    def _become_unsafe(self, what: str, error: Exception) -> None:
        """Claim nothing more about queues and index, for the first reason there was."""
        if self.unsafe_reason is None:
            self.unsafe_reason = (
                f"flushing the {what} failed: {error}; some of what was written to them last may be lost. The commit log has all "
                "messages: look after the disk, then start the broker again, which builds queues and index anew from the last checkpoint on"
            )
            log.error("derived_files_unsafe reason=%s", self.unsafe_reason)

    def _checkpoint_failed(self, error: Exception) -> None:
        log.error("checkpoint_not_saved error=%s, it is tried again", error)
