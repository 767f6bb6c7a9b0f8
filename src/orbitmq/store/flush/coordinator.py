"""Coordinates the flushing of one store: submits what is due, notifies the waiters, and updates the
checkpoint.

Wires the schedule (`schedule`), the waiters (`group_commit`), the fsync threads (`fsync_thread`)
and the claims of the checkpoint (`derived`). The log has a thread of its own, so that the waiter
for a message does not wait for a thousand queue files or a full index file. The owner calls
`written` after each commit of the log, and `tick` when a report is pending (`notify`, on a flush
thread) and at `next_ms`.

Rules: at most one log job is in flight; what is written meanwhile joins the next, so many waiters
share one sync. If replicas are required, durable means that enough of them have the record and,
with SYNC_FLUSH, that it is flushed here: both are prefixes of the log, so one list of waiters is
enough. A waiter is notified once: DONE when its record is durable; TIMED_OUT or REPLICA_TIMED_OUT
when that took too long, and the record may become durable later; NO_REPLICA when it is durable here
and there is no replica; FAILED when a sync of the log failed. That makes the log read-only, fails
all waiters, and is never retried: the next sync would succeed although the pages are lost. For the
same reason a sync that succeeds after the log became read-only for another reason counts as failed.
After a failed sync of queues or index the store continues, but does not stop cleanly: see `derived`
and `derived_unsafe_reason`.

Thread rule: the loop thread owns all of it; the descriptors of a job are pinned until it is
reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol, TypeAlias, TypeVar

from orbitmq.common.errors import StoreError, StoreReadOnlyError
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.file_queue import FlushJob
from orbitmq.store.files_worker import FilesWorker
from orbitmq.store.flush.derived import DerivedFlush, DerivedJob
from orbitmq.store.flush.fsync_thread import Flusher, FlushReport
from orbitmq.store.flush.group_commit import GroupCommit, Outcome
from orbitmq.store.flush.replica_acks import NO_REPLICAS, ReplicaAcks
from orbitmq.store.flush.schedule import FlushSchedule
from orbitmq.store.index import Index
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, StoreTimeMs

_DISK_TIMEOUT_S = 30.0
Job: TypeAlias = FlushJob | DerivedJob
Reports: TypeAlias = list[FlushReport[Job]]
Waiter: TypeAlias = Callable[[Outcome], None]
T = TypeVar("T")
log = logging.getLogger(__name__)


class MakeFlusher(Protocol):
    """Creates flushers: threads, or their replacement in a simulation."""

    def __call__(
        self, layer: FileLayer, notify: Callable[[Reports], None], name: str
    ) -> Flusher[Job]: ...


class Flushing:
    """The flushing of one store, from `start`, after recovery, to `stop`."""

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
        flushed: Callable[[], None] = lambda: None,  # called before the waiters
        make_flusher: MakeFlusher = Flusher,
        replicas: ReplicaAcks = NO_REPLICAS,
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._log = log
        self._monotonic_ms = monotonic_ms
        self._notify = notify
        self._flushed = flushed
        self._reports: SimpleQueue[Reports] = SimpleQueue()
        self._log_flusher = make_flusher(layer, self._enqueue, "flusher")
        self._derived_flusher = make_flusher(layer, self._enqueue, "flusher-derived")
        self._derived = DerivedFlush(
            log, queues.files, index, checkpoint, dispatched, self._derived_flusher.submit
        )
        self._worker = FilesWorker(log.files)
        self._schedule = FlushSchedule(config, monotonic_ms())
        self._waiters: GroupCommit[Waiter] = GroupCommit()
        self._log_job: FlushJob | None = None  # in flight
        self._log_job_time_ms = StoreTimeMs(0)  # of its last record
        self._log_due = False
        self._is_running = False

    def follow(self, config: StoreConfig) -> None:
        """Apply intervals and timeouts, which may change while the store is open."""
        self._config = self._schedule.config = config

    @property
    def derived_unsafe_reason(self) -> str | None:
        """Why queues and index cannot be trusted after this process, so that the store must not be
        marked as stopped cleanly.
        """
        return self._derived.unsafe_reason

    @property
    def thorough_rounds(self) -> tuple[int, int]:
        """How many thorough flushes of the queues have begun, and ended."""
        return self._derived.rounds_begun, self._derived.rounds_ended

    @property
    def next_ms(self) -> int:
        """When to call `tick` again at the latest, by the monotonic clock."""
        deadline_ms = self._waiters.next_deadline_ms
        return (
            self._schedule.next_ms
            if deadline_ms is None
            else min(deadline_ms, self._schedule.next_ms)
        )

    @property
    def waiting_count(self) -> int:
        """How many messages have waiters."""
        return self._waiters.message_count

    def waited_ms(self, now_ms: int) -> int:
        """Return how long the first waiter has waited; 0 if there is none."""
        deadline_ms = self._waiters.next_deadline_ms
        return 0 if deadline_ms is None else max(now_ms - (deadline_ms - self._timeout_ms), 0)

    @property
    def waits_for_replicas(self) -> bool:
        """Whether waiters wait for replicas, and not for the disk."""
        return self._replicas.is_required and self._replicas.acknowledged < self._log.flushed_offset

    @property
    def durable_offset(self) -> LogOffset:
        """The offset up to which the log is durable as configured: what waiters wait for."""
        replicas = self._replicas
        if not replicas.is_required:
            return self._log.flushed_offset
        here = (
            self._log.flushed_offset
            if self._config.flush_mode is FlushMode.SYNC
            else self._log.end_offset
        )
        return min(here, replicas.acknowledged)

    @property
    def settled_offset(self) -> LogOffset:
        """The offset up to which the log is flushed and, if required, replicated: no crash, and no
        switch to a replica, undoes it.
        """
        return min(self._log.flushed_offset, self.durable_offset)

    # -- life

    def start(self) -> None:
        """Start, after recovery, when the log is flushed. OSError if the checkpoint claims too much
        and cannot be written.
        """
        self._derived.begin()
        self._log_flusher.start()
        self._derived_flusher.start()
        self._is_running = True

    def stop(self) -> None:
        """Make everything durable, as far as the disk allows, notify the waiters, close the index
        and end the threads.

        The log's `read_only_reason` and `derived_unsafe_reason` state what is not durable then;
        StoreError if the disk hangs.
        """
        if not self._is_running:
            return
        try:
            self._flush_all(self._derived.stop_index)
            self._worker.stop()
        finally:
            self._is_running = False
            self._notify_waiters(self._waiters.fail(), Outcome.TIMED_OUT)  # if the disk hangs
            for flusher in (self._log_flusher, self._derived_flusher):
                flusher.stop(_DISK_TIMEOUT_S)

    def abandon(self) -> None:
        """End the threads without flushing anything or notifying waiters."""
        self._is_running = False
        self._worker.stop()
        for flusher in (self._log_flusher, self._derived_flusher):
            flusher.stop(_DISK_TIMEOUT_S)
        while not self._reports.empty():
            for report in self._reports.get():
                if isinstance(report.job, FlushJob):
                    self._log.files.end_flush(report.job, report.error)
                else:
                    self._derived.release(report.job)

    def run_in_worker(self, work: Callable[[], T]) -> Future[T]:
        """Run slow work on files, such as their removal, off the loop."""
        return self._worker.run(work)

    # -- while messages come in

    def written(self) -> None:
        """Note a commit of the log: with SYNC_FLUSH it is flushed at once, or after the job in
        flight.
        """
        if self._is_log_wanted:
            self._flush_log()
        self._worker.prepare(self._monotonic_ms())

    def when_durable(self, end: LogOffset, waiter: Waiter, message_count: int = 1) -> None:
        """Call `waiter` once the log is durable up to `end`, which must not decrease between calls;
        at once if the outcome is known.
        """
        if self._replicas.is_missing:
            waiter = partial(_without_replica, waiter)
            if self._config.flush_mode is not FlushMode.SYNC:
                self._notify_waiters([waiter], Outcome.DONE)
                return
        self.settle()
        outcome = self._waiters.ticket(
            end, self._monotonic_ms() + self._timeout_ms, waiter, message_count
        )
        if outcome is not None:
            self._notify_waiters([waiter], outcome)
        elif self._is_log_wanted:
            self._flush_log()

    def tick(self) -> None:
        """Take reports, submit what is due, and expire waiters."""
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
        self.settle()
        for end, waiter in self._waiters.expire(now_ms):
            is_replica_late = self._replicas.is_required and self._replicas.acknowledged < end
            self._notify_waiters(
                [waiter], Outcome.REPLICA_TIMED_OUT if is_replica_late else Outcome.TIMED_OUT
            )

    def flush(self) -> None:
        """Make everything written durable, synchronously, and notify the waiters; StoreError if
        that fails.
        """
        end = self._log.end_offset
        self._flush_all(lambda: None)
        if self._log.read_only_reason is not None:
            raise StoreReadOnlyError(self._log.read_only_reason)
        if self._log.flushed_offset < end:
            raise StoreError(
                f"the commit log is flushed to {self._log.flushed_offset}, not to {end}: it could"
                " not be opened; see the log"
            )
        if self._derived.unsafe_reason is not None:
            raise StoreError(self._derived.unsafe_reason)
        if not self._derived.is_checkpoint_saved:
            raise StoreError(
                "the checkpoint could not be written: the next start begins at the previous one;"
                " see the log for the reason"
            )

    def flush_log(self) -> None:
        """Flush the log, synchronously, as far as the disk allows, and notify the waiters."""
        self._wait()
        self._flush_log()
        self._wait()
        self.settle()

    # -- internals

    @property
    def _is_log_wanted(self) -> bool:
        return (
            self._log_due
            or self._config.flush_mode is FlushMode.SYNC
            or (len(self._waiters) > 0 and not self._replicas.is_required)
        )

    @property
    def _timeout_ms(self) -> int:
        return (
            self._replicas.timeout_ms
            if self._replicas.is_required
            else self._config.sync_flush_timeout_ms
        )

    def _flush_log(self) -> None:
        """Submit the unflushed part of the log, unless a job is in flight: its report calls this
        again.
        """
        if self._log_job is not None:
            return
        try:
            job = self._log.begin_flush()
        except OSError as error:  # no descriptor: nothing is lost, the next tick retries
            log.error("log_not_flushed offset=%d error=%s", self._log.flushed_offset, error)
            return
        self._log_due = False
        if job is not None:
            self._log_job, self._log_job_time_ms = job, self._log.last_store_time_ms
            self._log_flusher.submit(job)

    def _flush_all(self, before_checkpoint: Callable[[], None]) -> None:
        """Flush log, queues and index, then the checkpoint that claims them; blocks until all of it
        is reported.
        """
        self._wait()  # a round in flight proves less than one that begins now
        self._flush_log()
        self._derived.due(0, checkpoint=False)
        self._wait()
        before_checkpoint()
        self._derived.due(None, checkpoint=True)
        self._wait()
        self.settle()

    def _wait(self) -> None:
        """Take reports until no job is in flight."""
        while self._log_job is not None or self._derived.is_in_flight:
            try:
                reports = self._reports.get(timeout=_DISK_TIMEOUT_S)
            except Empty:
                raise StoreError(
                    f"the disk did not finish a flush within {_DISK_TIMEOUT_S:g} s: the last"
                    " writes may not be durable"
                ) from None
            self._take(reports)

    def _enqueue(self, reports: Reports) -> None:
        """On a flush thread: queue the reports for the loop, and notify it."""
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
        """Account for what was synced; the next job is submitted before the waiters are notified,
        so that the disk does not idle.
        """
        if error is None and self._log.read_only_reason is not None:
            error = StoreReadOnlyError(self._log.read_only_reason)
        self._log.end_flush(job, error)
        self._log_job = None
        if error is None and self._log.flushed_offset >= job.end_offset:  # else it was truncated
            self._derived.log_flushed(self._log_job_time_ms)
            self._flushed()
        if self._is_log_wanted:
            self._flush_log()
        self.settle()

    def settle(self) -> None:
        """Notify the waiters whose outcome is known; called when replicas have acknowledged
        more.
        """
        self._notify_waiters(self._waiters.reach(self.durable_offset), Outcome.DONE)
        if self._log.read_only_reason is not None:
            self._notify_waiters(self._waiters.fail(), Outcome.FAILED)

    def _notify_waiters(self, waiters: list[Waiter], outcome: Outcome) -> None:
        for waiter in waiters:
            try:
                waiter(outcome)
            except Exception:  # the others must be notified all the same
                log.exception("waiter_failed outcome=%s", outcome.value)


def _without_replica(waiter: Waiter, outcome: Outcome) -> None:
    waiter(Outcome.NO_REPLICA if outcome is Outcome.DONE else outcome)
