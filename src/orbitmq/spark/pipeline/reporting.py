"""What a run says of itself while it runs: to whoever watches, and to the status file."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final, Protocol

from orbitmq.spark.pipeline.progress import Batch
from orbitmq.spark.pipeline.status import State, Status, StatusFile

_APART_S: Final = 1.0  # how often the file is written at most
_HEARTBEAT_S: Final = 10.0  # and at least


class Observer(Protocol):
    """Whoever watches. `rows` is called by threads of Spark's."""

    def status(self, status: Status) -> None: ...

    def batch(self, sink: str, batch: Batch) -> None: ...

    def rows(self, sink: str, number: int, columns: list[str], rows: list[tuple[Any, ...]]) -> None: ...


class Report:
    """The status of one run."""

    def __init__(self, status: Status, file: StatusFile, observer: Observer) -> None:
        self.status = status
        self.observer = observer
        self._file = file
        self._written_s = 0.0
        self._is_written = False

    def change(self, state: State, *, ui: str | None = None, master: str = "", problem: str | None = None) -> None:
        """Say that the run is about something else now."""
        status = self.status
        self.status = replace(status, state=state, ui=ui or status.ui, master=master or status.master, problem=problem)
        self._write()

    def batch(self, sink: str, batch: Batch) -> None:
        """Say that a batch is done, or that there is none to do."""
        sinks = tuple(each.after(batch) if each.sink == sink else each for each in self.status.sinks)
        self.status = replace(self.status, sinks=sinks)
        self._is_written = False
        if not batch.is_idle:
            self.observer.batch(sink, batch)

    def tick(self) -> None:
        """Write down what was said since the last time, if that is long enough ago."""
        apart_s = _HEARTBEAT_S if self._is_written else _APART_S
        if time.monotonic() - self._written_s >= apart_s:
            self._write()
        else:
            self.observer.status(self.status)

    def _write(self) -> None:
        self.status = replace(self.status, updated_ms=time.time_ns() // 1_000_000)
        self._file.write(self.status)
        self._written_s = time.monotonic()
        self._is_written = True
        self.observer.status(self.status)
