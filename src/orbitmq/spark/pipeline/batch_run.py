"""Runs a pipeline whose source is finite: writes its sinks one after another.

A stopped write counts as a failure, because its progress is not kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from orbitmq.spark.pipeline import sinks
from orbitmq.spark.pipeline.plan import SinkPlan
from orbitmq.spark.pipeline.problems import PipelineFailedError, summarize_error
from orbitmq.spark.pipeline.progress import ROWS, BatchProgress
from orbitmq.spark.pipeline.reporting import RunReporter
from orbitmq.spark.pipeline.status import State
from orbitmq.spark.pipeline.stopping import StopRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S: Final = 0.2


class BatchRun:
    """Writes the sinks of one run."""

    def __init__(self, spark: SparkSession, report: RunReporter, stop: StopRequest) -> None:
        self._spark = spark
        self._report = report
        self._stop = stop

    def run(self, plans: Iterable[SinkPlan]) -> State:
        """Write all sinks and return the final state."""
        for plan in plans:
            self._write(plan)
        return State.FINISHED

    def _write(self, plan: SinkPlan) -> None:
        """Write one sink in a thread, so that stop requests are handled meanwhile."""
        from pyspark import InheritableThread
        from pyspark.sql import Observation

        count, problems = Observation(), []

        def work() -> None:
            try:
                sinks.write(
                    sinks.with_row_count(plan.rows, count), plan.sink, self._report.observer.rows
                )
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
            thread.join(_POLL_S)
        if problems:
            why = (
                "stopped before the write was complete; run it again"
                if is_cancelled
                else summarize_error(problems[0])
            )
            raise PipelineFailedError(
                f"{plan.sink.place}: sink {plan.sink.name}: {why}"
            ) from problems[0]
        took_ms = max(1, round((time.monotonic() - began_s) * 1000))
        rows_out = int(count.get[ROWS])
        self._report.batch(
            plan.sink.name,
            BatchProgress(
                number=0,
                time_ms=began_ms,
                rows_in=None,
                rows_out=rows_out,
                took_ms=took_ms,
                lag=None,
            ),
        )
