"""A job goes on in steps: each is work of Spark's, watched by a thread that tells how far it is and cancels it when somebody says so.

Whoever watches hears of every step when it begins, while it goes on, and when it is over. The work itself stays in the thread of whoever
asks for it: Spark knows sessions, and the formats that they have, by threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from orbitmq.common.errors import OrbitError
from orbitmq.spark.pipeline.problems import sentence
from orbitmq.spark.pipeline.stopping import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
Measure = Callable[[], tuple[int, int]]  # how much is done, and of how much; 0 when that is not known
_LOOK_S: Final = 0.2
_MEASURE_S: Final = 1.0


class JobFailed(OrbitError):
    """What Spark could not do, in one sentence."""


class Stopped(OrbitError):
    """A job that was told to end before it was done."""


class Watcher(Protocol):
    """Whoever watches a job. `goes_on` is called by another thread than the others."""

    def begins(self, step: str) -> None:
        """A step begins."""

    def goes_on(self, done: int, whole: int) -> None:
        """So much of the step is done; of how much is not known when `whole` is 0."""

    def ends(self, result: str) -> None:
        """The step is over, with this result."""


class Steps:
    """The steps of one job, in the session that it has."""

    def __init__(self, spark: SparkSession, watcher: Watcher, stop: StopRequest) -> None:
        self.spark = spark
        self._watcher = watcher
        self._stop = stop

    def do(self, step: str, work: Callable[[], T], result: Callable[[T], str], measure: Measure | None = None) -> T:
        """Do the work; `result` says what came of it in a few words, `measure` how far it is. JobFailed when Spark cannot."""
        self._watcher.begins(step)
        try:
            with self._watched(measure or self._tasks):
                found = work()
        except OrbitError:
            raise
        except Exception as problem:
            if self._stop.count:
                raise Stopped(f"it was stopped while {step}") from problem
            raise JobFailed(f"{step}: {sentence(problem)}") from problem
        self._watcher.ends(result(found))
        return found

    @contextmanager
    def _watched(self, measure: Measure) -> Iterator[None]:
        is_over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(measure, is_over), name="orbitmq-job", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _watch(self, measure: Measure, is_over: threading.Event) -> None:
        measured_s = time.monotonic()
        while not is_over.wait(_LOOK_S):
            with suppress(Exception):  # what ails Spark or the cluster, the work itself says
                if self._stop.count:
                    self.spark.sparkContext.cancelAllJobs()
                elif time.monotonic() - measured_s >= _MEASURE_S:
                    measured_s = time.monotonic()
                    self._watcher.goes_on(*measure())

    def _tasks(self) -> tuple[int, int]:
        """How many of the tasks of all stages that are under way are done."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [info for number in tracker.getActiveStageIds() if (info := tracker.getStageInfo(number)) is not None]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
