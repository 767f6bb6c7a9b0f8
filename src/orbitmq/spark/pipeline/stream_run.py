"""Runs a streaming pipeline: one query per sink, watched until all end, one fails, or a stop is
requested.

On a stop the queries finish their current batch; the next run continues from the checkpoint. A
failed query stops the others in the same way.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from orbitmq.spark.pipeline import sinks
from orbitmq.spark.pipeline.model import Pipeline
from orbitmq.spark.pipeline.plan import SinkPlan
from orbitmq.spark.pipeline.problems import (
    SLOW_TRIES_MAX,
    PipelineFailedError,
    is_slow_start,
    is_source_error,
    located_errors,
    summarize_error,
)
from orbitmq.spark.pipeline.progress import parse_progress
from orbitmq.spark.pipeline.reporting import RunReporter
from orbitmq.spark.pipeline.status import State
from orbitmq.spark.pipeline.stopping import StopRequest

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S: Final = 0.2
_STOP_POLL_S: Final = 0.01  # while waiting for the end of a batch
_NO_BATCH: Final = ("Getting offsets", "Waiting for")  # status messages of a query without a batch
log = logging.getLogger(__name__)


class StreamRun:
    """The queries of one run."""

    def __init__(self, pipeline: Pipeline, report: RunReporter, stop: StopRequest) -> None:
        self._pipeline = pipeline
        self._report = report
        self._stop = stop
        self._queries: dict[str, StreamingQuery] = {}
        self._reported: dict[str, tuple[int, str]] = {}  # batch and time last reported, by query
        self._plans: dict[str, SinkPlan] = {}
        self._starts: Counter[str] = Counter()

    def run(self, plans: Iterable[SinkPlan]) -> State:
        """Start the queries and watch them; return the final state."""
        self._plans = {plan.sink.name: plan for plan in plans}
        try:
            for name in self._plans:
                self._start(name)
            return self._watch()
        finally:
            with suppress(Exception):  # another error already says why the run ends
                for query in self._queries.values():
                    query.stop()

    def _start(self, name: str) -> None:
        plan, pipeline = self._plans[name], self._pipeline
        sink = plan.sink
        self._starts[name] += 1
        with located_errors(sink.place, f"sink {sink.name}"):
            rows, checkpoint = sinks.with_row_count(plan.rows), pipeline.checkpoint_of(sink)
            self._queries[sink.name] = sinks.start(
                rows, sink, checkpoint, pipeline.interval_ms, self._report.observer.rows
            )

    def _watch(self) -> State:
        while True:
            # Checked first: the progress of an ended query is complete.
            has_active = any(query.isActive for query in self._queries.values())
            self._collect_progress()
            for name, query in list(self._queries.items()):
                if (problem := query.exception()) is not None:
                    has_active = self._restart(name, problem)
            if not has_active:
                return State.FINISHED
            if self._stop.count:
                self._stop_queries()
                return State.STOPPED
            self._report.tick()
            time.sleep(_POLL_S)

    def _restart(self, name: str, problem: Exception) -> bool:
        """Restart a failed query if that may help; raises PipelineFailedError otherwise."""
        if not is_slow_start(problem) or self._starts[name] >= SLOW_TRIES_MAX or self._stop.count:
            self._stop_queries()
            part = (
                f"{self._pipeline.source.place}: source"
                if is_source_error(problem)
                else f"sink {name}"
            )
            raise PipelineFailedError(f"{part}: {summarize_error(problem)}")
        log.warning(
            "query_started_again sink=%s tries=%d reason=%r",
            name,
            self._starts[name],
            summarize_error(problem),
        )
        self._start(name)
        return True

    def _collect_progress(self) -> None:
        """Report batches that queries have finished."""
        for name, query in self._queries.items():
            last = query.lastProgress
            reported = self._reported.get(name, (-1, ""))
            if last is None or _progress_key(last) == reported:
                continue
            for progress in query.recentProgress:
                if _progress_key(progress) > reported:
                    self._report.batch(name, parse_progress(json.loads(progress.json)))
            self._reported[name] = _progress_key(last)

    def _stop_queries(self) -> None:
        """Stop each query when its batch is done; at once on a second stop request."""
        self._report.change(State.STOPPING)
        pending = dict(self._queries)
        while pending:
            for name, query in list(pending.items()):
                if self._stop.count > 1 or not _is_at_batch(query):
                    query.stop()
                    del pending[name]
            self._collect_progress()
            self._report.tick()
            time.sleep(_STOP_POLL_S)
        self._collect_progress()


def _is_at_batch(query: StreamingQuery) -> bool:
    """Return whether a query is processing a batch."""
    status: Mapping[str, object] = query.status
    return (
        query.isActive
        and bool(status["isTriggerActive"])
        and not str(status["message"]).startswith(_NO_BATCH)
    )


def _progress_key(progress: object) -> tuple[int, str]:
    """Return what orders the progress reports of a query."""
    return progress["batchId"], progress["timestamp"]  # type: ignore[index]
