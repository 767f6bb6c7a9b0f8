"""A pipeline whose source has an end: each sink is written, one after the other, and that is all.

A write that is stopped has not happened: nothing is kept of how far it was, so it counts as a failure.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from orbitmq.spark.pipeline import sinks
from orbitmq.spark.pipeline.plan import SinkPlan
from orbitmq.spark.pipeline.problems import PipelineFailed, sentence
from orbitmq.spark.pipeline.progress import ROWS, Batch
from orbitmq.spark.pipeline.reporting import Report
from orbitmq.spark.pipeline.status import State
from orbitmq.spark.pipeline.stopping import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S: Final = 0.2


class BatchRun:
    """The writes of one run."""

    def __init__(self, spark: SparkSession, report: Report, stop: StopRequest) -> None:
        self._spark = spark
        self._report = report
        self._stop = stop

    def run(self, plans: Iterable[SinkPlan]) -> State:
        for plan in plans:
            self._write(plan)
        return State.FINISHED

    def _write(self, plan: SinkPlan) -> None:
        """Write in a thread of its own, so that somebody listens meanwhile."""
        from pyspark import InheritableThread
        from pyspark.sql import Observation

        count, problems = Observation(), []

        def work() -> None:
            try:
                sinks.write(sinks.counted(plan.rows, count), plan.sink, self._report.observer.rows)
            except Exception as error:
                problems.append(error)

        began_ms, began_s = time.time_ns() // 1_000_000, time.monotonic()
        thread = InheritableThread(target=work, daemon=True)
        thread.start()
        is_cancelled = False
        while thread.is_alive():
            if self._stop.count and not is_cancelled:
                is_cancelled = True
                self._report.change(State.STOPPING)
                self._spark.sparkContext.cancelAllJobs()
            self._report.tick()
            thread.join(_LOOK_S)
        if problems:
            why = "it was stopped before it was written; run it again" if is_cancelled else sentence(problems[0])
            raise PipelineFailed(f"{plan.sink.place}: sink {plan.sink.name}: {why}") from problems[0]
        took_ms = max(1, round((time.monotonic() - began_s) * 1000))
        rows_out = int(count.get[ROWS])
        self._report.batch(plan.sink.name, Batch(number=0, time_ms=began_ms, rows_in=None, rows_out=rows_out, took_ms=took_ms, lag=None))
