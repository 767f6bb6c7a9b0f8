"""Flushing of one store: what is due goes to the disk, those who wait for it hear what became of it, the checkpoint follows.

Wires the schedule (`flush`), the waiters (`group_commit`), the threads that sync (`flusher`) and what is known to be safe
(`derived_flush`). The log has a thread of its own, so that who waits for a message does not wait for a thousand queue files or a
full index file before it. The owner calls `written` after each commit of the log, and `tick` when a report waits (`notify`, on a
flusher's thread) and at `next_ms`.

Rules: one log job is under way at most; what is written meanwhile joins the next, so many waiters share one sync. A waiter is told once:
DONE when the disk has its record; TIMED_OUT when that took too long, and the record may become safe yet; FAILED when a sync of the log
failed. That makes the log read-only, fails everybody who waits, and is never tried again: the next sync would succeed although the
pages are lost. For the same reason a sync that comes back well after the log became read-only for another reason counts as failed. A
failed sync of queues or index lets the store go on, but takes it the clean stop: `derived_flush` says why, `derived_unsafe_reason` that.

Thread rule: the loop thread owns all of it; descriptors that a flusher has are pinned until they are reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Protocol, TypeAlias, TypeVar

from orbitmq.common.errors import StoreError, StoreReadOnly
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.derived_flush import DerivedFlush, DerivedJob
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.file_queue import FlushJob
from orbitmq.store.files_worker import FilesWorker
from orbitmq.store.flush import FlushSchedule
from orbitmq.store.flusher import Flusher, FlushReport
from orbitmq.store.group_commit import GroupCommit, Outcome
from orbitmq.store.index import Index
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, StoreTimeMs

_DISK_ANSWERS_WITHIN_S = 30.0
Job: TypeAlias = FlushJob | DerivedJob
Reports: TypeAlias = list[FlushReport[Job]]
Waiter: TypeAlias = Callable[[Outcome], None]
T = TypeVar("T")
log = logging.getLogger(__name__)


class MakeFlusher(Protocol):
    """How flushers are made: threads, or whatever stands in for them in a simulation."""

    def __call__(self, layer: FileLayer, notify: Callable[[Reports], None], name: str) -> Flusher[Job]: ...


class Flushing:
    """From `start`, behind recovery, to `stop`."""

    def __init__(
        self,
        layer: FileLayer,
        config: StoreConfig,
        log: CommitLog,
        queues: Queues,
        index: Index | None,
        checkpoint: Checkpoint,
        dispatched: Callable[[], tuple[LogOffset, StoreTimeMs]],
        monotonic_ms: Callable[[], int],
        notify: Callable[[], object] | None,
        *,
        flushed: Callable[[], None] = lambda: None,  # called when more of the log is on disk, before those who wait for it are told
        make_flusher: MakeFlusher = Flusher,
    ) -> None:
        self._config = config
        self._log = log
        self._monotonic_ms = monotonic_ms
        self._notify = notify
        self._flushed = flushed
        self._reports: SimpleQueue[Reports] = SimpleQueue()
        self._log_flusher = make_flusher(layer, self._heard, "flusher")
        self._derived_flusher = make_flusher(layer, self._heard, "flusher-derived")
        self._derived = DerivedFlush(log, queues.files, index, checkpoint, dispatched, self._derived_flusher.submit)
        self._worker = FilesWorker(log.files)
        self._schedule = FlushSchedule(config, monotonic_ms())
        self._waiters: GroupCommit[Waiter] = GroupCommit()
        self._log_job: FlushJob | None = None  # under way
        self._log_job_time_ms = StoreTimeMs(0)  # of the last record that it covers
        self._log_due = False
        self._is_running = False

    def follow(self, config: StoreConfig) -> None:
        """Take over intervals and timeouts, which may change while the store is open."""
        self._config = self._schedule.config = config

    @property
    def derived_unsafe_reason(self) -> str | None:
        """Why queues and index cannot be trusted after this process, so that the store must not be marked as stopped cleanly."""
        return self._derived.unsafe_reason

    @property
    def thorough_rounds(self) -> tuple[int, int]:
        """How many thorough flushes of the queues have begun, and ended."""
        return self._derived.rounds_begun, self._derived.rounds_ended

    @property
    def next_ms(self) -> int:
        """When to call `tick` again at the latest, by the monotonic clock."""
        deadline_ms = self._waiters.next_deadline_ms
        return self._schedule.next_ms if deadline_ms is None else min(deadline_ms, self._schedule.next_ms)

    @property
    def waiting_count(self) -> int:
        """How many messages somebody waits for."""
        return self._waiters.message_count

    def waited_ms(self, now_ms: int) -> int:
        """For how long the first of those who wait has done so; 0 when nobody does."""
        deadline_ms = self._waiters.next_deadline_ms
        return 0 if deadline_ms is None else now_ms - (deadline_ms - self._config.sync_flush_timeout_ms)

    # -- life

    def start(self) -> None:
        """Begin; recovery is done, and the log is flushed. OSError when the checkpoint claims too much and cannot be written."""
        self._derived.begin()
        self._log_flusher.start()
        self._derived_flusher.start()
        self._is_running = True

    def stop(self) -> None:
        """Bring everything to disk, as far as it takes it, tell who waits, close the index and end the threads.

        What was not safe then is said by the log's `read_only_reason` and by `derived_unsafe_reason`; StoreError when the disk hangs.
        """
        if not self._is_running:
            return
        try:
            self._flush_all(self._derived.stop_index)
            self._worker.stop()
        finally:
            self._is_running = False
            self._tell(self._waiters.fail(), Outcome.TIMED_OUT)  # none, unless the disk hangs
            for flusher in (self._log_flusher, self._derived_flusher):
                flusher.stop(_DISK_ANSWERS_WITHIN_S)

    def abandon(self) -> None:
        """End the threads as they are: nothing more is brought to disk, and nobody hears of anything."""
        self._is_running = False
        self._worker.stop()
        for flusher in (self._log_flusher, self._derived_flusher):
            flusher.stop(_DISK_ANSWERS_WITHIN_S)
        while not self._reports.empty():
            for report in self._reports.get():
                if isinstance(report.job, FlushJob):
                    self._log.files.end_flush(report.job, report.error)
                else:
                    self._derived.let_go(report.job)

    def run_in_worker(self, work: Callable[[], T]) -> Future[T]:
        """Have something that takes long with files, such as their removal, done off the loop."""
        return self._worker.run(work)

    # -- while messages come in

    def written(self) -> None:
        """The log was committed to: with SYNC_FLUSH it is flushed at once, or behind what is under way."""
        if self._is_log_wanted:
            self._flush_log()
        self._worker.prepare(self._monotonic_ms())

    def when_safe(self, end: LogOffset, waiter: Waiter, message_count: int = 1) -> None:
        """Tell `waiter` when the log is flushed up to `end`, which is none before that of the last call; at once if that is known."""
        self._settle()
        outcome = self._waiters.ticket(end, self._monotonic_ms() + self._config.sync_flush_timeout_ms, waiter, message_count)
        if outcome is not None:
            self._tell([waiter], outcome)
        else:
            self._flush_log()

    def tick(self) -> None:
        """Take what was reported, hand in what is due, and tell those whose time is over."""
        if not self._is_running:
            return
        while not self._reports.empty():
            self._take(self._reports.get())
        now_ms = self._monotonic_ms()
        due = self._schedule.due(now_ms, self._log.flushed_offset, self._log.end_offset)
        self._log_due |= due.log
        if self._is_log_wanted:
            self._flush_log()
        self._derived.due(due.queues_pages_min, checkpoint=due.checkpoint)
        self._worker.prepare(now_ms)
        self._settle()
        self._tell(self._waiters.expire(now_ms), Outcome.TIMED_OUT)

    def flush(self) -> None:
        """Bring everything that is written to disk, here and now, and tell who waits; StoreError when the disk has not all of it then."""
        end = self._log.end_offset
        self._flush_all(lambda: None)
        if self._log.read_only_reason is not None:
            raise StoreReadOnly(self._log.read_only_reason)
        if self._log.flushed_offset < end:
            raise StoreError(f"the commit log is flushed to {self._log.flushed_offset}, not to {end}: it could not be opened; see the log")
        if self._derived.unsafe_reason is not None:
            raise StoreError(self._derived.unsafe_reason)
        if not self._derived.is_checkpoint_saved:
            raise StoreError("the checkpoint could not be written: the next start begins at the one before; see the log for the reason")

    def flush_log(self) -> None:
        """Bring what is written to the log to disk, here and now, as far as the disk takes it, and tell who waits."""
        self._wait()
        self._flush_log()
        self._wait()
        self._settle()

    # -- behind it

    @property
    def _is_log_wanted(self) -> bool:
        return self._log_due or len(self._waiters) > 0 or self._config.flush_mode is FlushMode.SYNC

    def _flush_log(self) -> None:
        """Hand in what is not flushed of the log, unless a job is under way: its report calls this again."""
        if self._log_job is not None:
            return
        try:
            job = self._log.begin_flush()
        except OSError as error:  # no descriptor: nothing is lost, it is tried again with the next tick
            log.error("log_not_flushed offset=%d error=%s", self._log.flushed_offset, error)
            return
        self._log_due = False
        if job is not None:
            self._log_job, self._log_job_time_ms = job, self._log.last_store_time_ms
            self._log_flusher.submit(job)

    def _flush_all(self, before_checkpoint: Callable[[], None]) -> None:
        """Flush log, queues and index, then the checkpoint that claims them; blocks until all of it is reported."""
        self._wait()  # a round of queues that is under way proves less than one that begins now
        self._flush_log()
        self._derived.due(0, checkpoint=False)
        self._wait()
        before_checkpoint()
        self._derived.due(None, checkpoint=True)
        self._wait()
        self._settle()

    def _wait(self) -> None:
        """Take reports until nothing is under way."""
        while self._log_job is not None or self._derived.is_under_way:
            try:
                reports = self._reports.get(timeout=_DISK_ANSWERS_WITHIN_S)
            except Empty:
                raise StoreError(
                    f"the disk did not finish a flush within {_DISK_ANSWERS_WITHIN_S:g} s: what was written last may not be safe"
                ) from None
            self._take(reports)

    def _heard(self, reports: Reports) -> None:
        """On a flusher's thread: keep the reports for the loop, and say that they are there."""
        self._reports.put(reports)
        if self._notify is not None:
            self._notify()

    def _take(self, reports: Reports) -> None:
        for report in reports:
            if isinstance(report.job, FlushJob):
                self._log_reported(report.job, report.error)
            else:
                self._derived.reported(report.job, report.error)

    def _log_reported(self, job: FlushJob, error: Exception | None) -> None:
        """Account for what was synced; the next job goes before the waiters are told, so that the disk need not wait for them."""
        if error is None and self._log.read_only_reason is not None:
            error = StoreReadOnly(self._log.read_only_reason)
        self._log.end_flush(job, error)
        self._log_job = None
        if error is None and self._log.flushed_offset >= job.end_offset:  # else the log was cut meanwhile
            self._derived.log_flushed(self._log_job_time_ms)
            self._flushed()
        if self._is_log_wanted:
            self._flush_log()
        self._settle()

    def _settle(self) -> None:
        """Tell those whose wait is over, by what is known of the log."""
        self._tell(self._waiters.reach(self._log.flushed_offset), Outcome.DONE)
        if self._log.read_only_reason is not None:
            self._tell(self._waiters.fail(), Outcome.FAILED)

    def _tell(self, waiters: list[Waiter], outcome: Outcome) -> None:
        for waiter in waiters:
            try:
                waiter(outcome)
            except Exception:  # the others must hear of it all the same
                log.exception("waiter_failed outcome=%s", outcome.value)
