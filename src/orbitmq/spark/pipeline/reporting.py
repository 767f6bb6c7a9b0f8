"""Reports the status of a run to an observer and to the status file."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final, Protocol

from orbitmq.spark.pipeline.progress import BatchProgress
from orbitmq.spark.pipeline.status import State, Status, StatusFile

_INTERVAL_S_MIN: Final = 1.0  # between writes of the file after changes
_HEARTBEAT_S: Final = 10.0  # between writes without changes


class RunObserver(Protocol):
    """Receives the status, batches and rows of a run. Spark's threads call `rows`."""

    def status(self, status: Status) -> None: ...

    def batch(self, sink: str, batch: BatchProgress) -> None: ...

    def rows(
        self, sink: str, number: int, columns: list[str], rows: list[tuple[Any, ...]]
    ) -> None: ...


class RunReporter:
    """Keeps and publishes the status of one run."""

    def __init__(self, status: Status, file: StatusFile, observer: RunObserver) -> None:
        self.status = status
        self.observer = observer
        self._file = file
        self._written_s = 0.0
        self._is_written = False

    def change(
        self, state: State, *, ui: str | None = None, master: str = "", problem: str | None = None
    ) -> None:
        """Report a new state of the run."""
        status = self.status
        self.status = replace(
            status, state=state, ui=ui or status.ui, master=master or status.master, problem=problem
        )
        self._write()

    def batch(self, sink: str, batch: BatchProgress) -> None:
        """Report a finished batch, or that there is none to do."""
        sinks = tuple(
            each.after(batch) if each.sink == sink else each for each in self.status.sinks
        )
        self.status = replace(self.status, sinks=sinks)
        self._is_written = False
        if not batch.is_idle:
            self.observer.batch(sink, batch)

    def tick(self) -> None:
        """Write the status file if it is due."""
        interval_s = _HEARTBEAT_S if self._is_written else _INTERVAL_S_MIN
        if time.monotonic() - self._written_s >= interval_s:
            self._write()
        else:
            self.observer.status(self.status)

    def _write(self) -> None:
        self.status = replace(self.status, updated_ms=time.time_ns() // 1_000_000)
        self._file.write(self.status)
        self._written_s = time.monotonic()
        self._is_written = True
        self.observer.status(self.status)
