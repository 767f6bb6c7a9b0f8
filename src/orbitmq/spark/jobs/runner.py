"""Runs a job in steps. A background thread reports the progress of each step and cancels Spark's
work on a stop request.

Thread rule: the work stays in the caller's thread, because Spark binds sessions and their formats
to threads; only `on_progress` is called from the background thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from orbitmq.common.errors import OrbitError
from orbitmq.spark.pipeline.problems import summarize_error
from orbitmq.spark.pipeline.stopping import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
ProgressMeasure = Callable[[], tuple[int, int]]  # units done, and in total, 0 if unknown
_POLL_S: Final = 0.2
_MEASURE_S: Final = 1.0


class JobFailedError(OrbitError):
    """Spark failed to run a step."""


class JobStoppedError(OrbitError):
    """A job was stopped before it was done."""


class StepListener(Protocol):
    """Receives the progress of a job. `on_progress` is called from another thread than the
    others.
    """

    def on_begin(self, step: str) -> None:
        """A step begins."""

    def on_progress(self, done: int, whole: int) -> None:
        """`done` of `whole` units are done; `whole` is 0 if unknown."""

    def on_end(self, result: str) -> None:
        """The step has ended with this result."""


class JobRunner:
    """Runs the steps of one job in its Spark session."""

    def __init__(self, spark: SparkSession, listener: StepListener, stop: StopRequest) -> None:
        self.spark = spark
        self._listener = listener
        self._stop = stop

    def run_step(
        self,
        step: str,
        work: Callable[[], T],
        result: Callable[[T], str],
        measure: ProgressMeasure | None = None,
    ) -> T:
        """Run the work and return its result; `result` summarizes it and `measure` reports
        progress. Raises JobFailedError if Spark fails.
        """
        self._listener.on_begin(step)
        try:
            with self._watched(measure or self._tasks):
                found = work()
        except OrbitError:
            raise
        except Exception as problem:
            if self._stop.count:
                raise JobStoppedError(f"stopped while {step}") from problem
            raise JobFailedError(f"{step}: {summarize_error(problem)}") from problem
        self._listener.on_end(result(found))
        return found

    @contextmanager
    def _watched(self, measure: ProgressMeasure) -> Iterator[None]:
        is_over = threading.Event()
        thread = threading.Thread(
            target=self._watch, args=(measure, is_over), name="orbitmq-job", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _watch(self, measure: ProgressMeasure, is_over: threading.Event) -> None:
        measured_s = time.monotonic()
        while not is_over.wait(_POLL_S):
            with suppress(Exception):  # the work itself raises errors of Spark or the cluster
                if self._stop.count:
                    self.spark.sparkContext.cancelAllJobs()
                elif time.monotonic() - measured_s >= _MEASURE_S:
                    measured_s = time.monotonic()
                    self._listener.on_progress(*measure())

    def _tasks(self) -> tuple[int, int]:
        """Return how many tasks of all active stages are done, and of how many."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [
            info
            for number in tracker.getActiveStageIds()
            if (info := tracker.getStageInfo(number)) is not None
        ]
        return sum(stage.numCompletedTasks for stage in stages), sum(
            stage.numTasks for stage in stages
        )
