"""Flushers of a simulated host: syncs take virtual time, and no thread waits for them.

`SimulatedFlushers` is a `MakeFlusher`. As with the thread, jobs that arrive during a sync are taken
together afterwards. The sync itself happens at some moment between the submission and the report,
so a loss of power finds jobs that are not synced, and synced jobs that are not reported. Code that
waits for a flush, such as the `close` of a store, would wait for ever, as virtual time does not
pass meanwhile: it runs within `prompt`. Crash rule: when the process dies, nothing more is synced
or reported. Thread rule: that of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final, TypeVar

from orbitmq.common.errors import StoreError
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.flush.fsync_thread import Flusher, FlushReport, SyncJob
from orbitmq.testing.network_host import NetworkHost

SYNC_MS_MAX: Final = 8  # until another is set
J = TypeVar("J", bound=SyncJob)


class SimulatedFlusher(Flusher[J]):
    """Syncs as events of its host."""

    def __init__(
        self,
        layer: FileLayer,
        notify: Callable[[list[FlushReport[J]]], None],
        name: str,
        *,
        owner: SimulatedFlushers,
    ) -> None:
        super().__init__(layer, notify, name)
        self._name = name
        self._owner = owner
        self._waiting: list[J] = []
        self._syncing: list[J] = []  # to be synced, then to be reported
        self._reports: list[FlushReport[J]] = []
        self._round = 0  # events of earlier rounds are void

    def start(self) -> None:
        """Do nothing: there is no thread."""

    def submit(self, job: J) -> None:
        if self._stopped:
            raise StoreError("the flusher was stopped: nothing can be flushed any more")
        self._waiting.append(job)
        if self._owner.is_prompt:
            self.finish()
        elif not self._syncing and not self._reports:
            self._begin()

    def stop(self, within_s: float = 30.0) -> None:
        self._stopped = True
        self.finish()

    def finish(self) -> None:
        """Sync and report all jobs now."""
        self._round += 1
        while self._syncing or self._waiting or self._reports:
            jobs = [*self._syncing, *self._waiting]
            self._syncing, self._waiting = [], []
            reports, self._reports = [*self._reports, *self._sync(jobs)], []
            self._report(reports)

    def drop(self) -> None:
        """Forget all jobs: the process died."""
        self._round += 1
        self._stopped = True
        self._waiting, self._syncing, self._reports = [], [], []

    def _begin(self) -> None:
        """Let the seed decide when the waiting jobs are synced, and when they are reported."""
        self._syncing, self._waiting = self._waiting, []
        self._round += 1
        this = self._round
        synced_ms, reported_ms = self._owner.next_times_ms()

        def sync() -> None:
            if self._round == this:
                self._reports, self._syncing = self._sync(self._syncing), []
                self._owner.host.call_later_ms(
                    reported_ms - synced_ms, report, f"{self._name} reports"
                )

        def report() -> None:
            if self._round == this:
                reports, self._reports = self._reports, []
                if self._waiting:
                    self._begin()
                self._report(reports)

        self._owner.host.call_later_ms(synced_ms, sync, f"{self._name} syncs")


class SimulatedFlushers:
    """The flushers of one host; call it to create one, as a `MakeFlusher`."""

    def __init__(self, host: NetworkHost, random: Random) -> None:
        self.host = host
        self.is_prompt = False
        self.sync_ms_max = SYNC_MS_MAX  # raise it for a slow disk
        self._random = random
        self._flushers: list[SimulatedFlusher[SyncJob]] = []

    def __call__(
        self, layer: FileLayer, notify: Callable[[list[FlushReport[J]]], None], name: str
    ) -> Flusher[J]:
        flusher = SimulatedFlusher(layer, notify, name, owner=self)
        self._flushers.append(flusher)  # type: ignore[arg-type]
        return flusher

    @contextmanager
    def prompt(self) -> Iterator[None]:
        """Sync and report every job at once, those in flight included: for code that waits."""
        self.is_prompt = True
        try:
            for flusher in self._flushers:
                flusher.finish()
            yield
        finally:
            self.is_prompt = False

    def drop_all(self) -> None:
        """Forget all flushers and their jobs: the process died."""
        for flusher in self._flushers:
            flusher.drop()
        self._flushers.clear()

    def next_times_ms(self) -> tuple[int, int]:
        """Return after which times a job is synced, and reported."""
        reported_ms = self._random.randint(0, self.sync_ms_max)
        return self._random.randint(0, reported_ms), reported_ms
