"""The thread that waits for the disk, so that no other has to: it calls fdatasync on descriptors
and does nothing else.

Jobs that arrive meanwhile are taken together, and a descriptor that several of them name is synced
once. A job's writes precede its submission, so a sync that begins later covers them. Reports leave
through `notify`, which is called on this thread: the broker passes a function that forwards them to
its loop. Invariants: every job is reported once; a failed sync is reported, with the jobs it
affects, and never retried here; no exception of a sync or `notify` ends the thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from orbitmq.common.errors import StoreError
from orbitmq.store.file_layer import FileLayer

log = logging.getLogger(__name__)


class SyncJob(Protocol):
    """Descriptors that stay open until the job is reported."""

    @property
    def descriptors(self) -> Sequence[int]: ...


J = TypeVar("J", bound=SyncJob)


@dataclass(frozen=True, slots=True)
class FlushReport(Generic[J]):
    """The result of a job: `error` is None if all of its descriptors are synced."""

    job: J
    error: Exception | None


class Flusher(Generic[J]):
    """A thread that syncs files, from `start` to `stop`."""

    def __init__(
        self,
        layer: FileLayer,
        notify: Callable[[list[FlushReport[J]]], None],
        name: str = "flusher",
    ) -> None:
        self._layer = layer
        self._notify = notify
        self._jobs: SimpleQueue[J | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._stopped = False

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: J) -> None:
        """Sync the descriptors of `job`; it is reported when they are synced."""
        if self._stopped:
            raise StoreError("the flusher was stopped: nothing can be flushed any more")
        self._jobs.put(job)

    def stop(self, within_s: float = 30.0) -> None:
        """Finish the submitted jobs, and end; StoreError if the disk does not finish in
        that time.
        """
        if not self._stopped:
            self._stopped = True
            self._jobs.put(None)
        self._thread.join(within_s)
        if self._thread.is_alive():
            raise StoreError(
                f"the disk did not finish a flush within {within_s:g} s: the last writes may"
                " not be durable"
            )

    def _run(self) -> None:
        running = True
        while running:
            jobs = self._take()
            if jobs[-1] is None:  # `stop` puts it last
                jobs.pop()
                running = False
            self._report(self._sync([job for job in jobs if job is not None]))

    def _take(self) -> list[J | None]:
        """Return the next job and all that follow it; None is the end."""
        jobs = [self._jobs.get()]
        while jobs[-1] is not None:
            try:
                jobs.append(self._jobs.get_nowait())
            except Empty:
                break
        return jobs

    def _sync(self, jobs: Iterable[J]) -> list[FlushReport[J]]:
        errors: dict[int, Exception | None] = {}
        reports = []
        for job in jobs:
            for descriptor in job.descriptors:
                if descriptor not in errors:
                    errors[descriptor] = self._sync_one(descriptor)
            reports.append(
                FlushReport(
                    job, next((error for each in job.descriptors if (error := errors[each])), None)
                )
            )
        return reports

    def _sync_one(self, descriptor: int) -> Exception | None:
        try:
            self._layer.fdatasync(descriptor)
        except Exception as error:  # waiters must learn of any failure
            log.error("sync_failed descriptor=%d error=%s", descriptor, error)
            return error
        return None

    def _report(self, reports: list[FlushReport[J]]) -> None:
        if not reports:
            return
        try:
            self._notify(reports)
        except Exception:  # the loop may be closed already
            log.exception("flush_report_lost jobs=%d", len(reports))
