"""A pipeline that goes on: a query for each sink, watched until all have ended, somebody stops them, or one fails.

On a stop the queries finish the batch they are at; what they have not begun is read by the next run, from the checkpoint. A query that
fails ends the others in the same way.
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
from orbitmq.spark.pipeline.problems import SLOW_TRIES_MAX, PipelineFailed, is_of_source, is_too_slow, sentence, told_at
from orbitmq.spark.pipeline.progress import batch_of
from orbitmq.spark.pipeline.reporting import Report
from orbitmq.spark.pipeline.status import State
from orbitmq.spark.pipeline.stopping import StopRequest

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S: Final = 0.2
_LOOK_CLOSELY_S: Final = 0.01  # while a batch is awaited whose end is the moment to stop
_NO_BATCH: Final = ("Getting offsets", "Waiting for")  # how Spark says that a query is at none
log = logging.getLogger(__name__)


class StreamRun:
    """The queries of one run."""

    def __init__(self, pipeline: Pipeline, report: Report, stop: StopRequest) -> None:
        self._pipeline = pipeline
        self._report = report
        self._stop = stop
        self._queries: dict[str, StreamingQuery] = {}
        self._heard: dict[str, tuple[int, str]] = {}  # of which batch, and when, each query told last
        self._plans: dict[str, SinkPlan] = {}
        self._tries: Counter[str] = Counter()

    def run(self, plans: Iterable[SinkPlan]) -> State:
        """Start the queries and stay with them."""
        self._plans = {plan.sink.name: plan for plan in plans}
        try:
            for name in self._plans:
                self._start(name)
            return self._watch()
        finally:
            with suppress(Exception):  # another error says already why it ends
                for query in self._queries.values():
                    query.stop()

    def _start(self, name: str) -> None:
        plan, pipeline = self._plans[name], self._pipeline
        sink = plan.sink
        self._tries[name] += 1
        with told_at(sink.place, f"sink {sink.name}"):
            rows, checkpoint = sinks.counted(plan.rows), pipeline.checkpoint_of(sink)
            self._queries[sink.name] = sinks.start(rows, sink, checkpoint, pipeline.interval_ms, self._report.observer.rows)

    def _watch(self) -> State:
        while True:
            has_active = any(query.isActive for query in self._queries.values())  # asked first: what has ended has told all
            self._listen()
            for name, query in list(self._queries.items()):
                if (problem := query.exception()) is not None:
                    has_active = self._again(name, problem)
            if not has_active:
                return State.FINISHED
            if self._stop.count:
                self._finish()
                return State.STOPPED
            self._report.tick()
            time.sleep(_LOOK_S)

    def _again(self, name: str, problem: Exception) -> bool:
        """Start a query that failed once more, when that may help; PipelineFailed otherwise."""
        if not is_too_slow(problem) or self._tries[name] >= SLOW_TRIES_MAX or self._stop.count:
            self._finish()
            part = f"{self._pipeline.source.place}: source" if is_of_source(problem) else f"sink {name}"
            raise PipelineFailed(f"{part}: {sentence(problem)}")
        log.warning("query_started_again sink=%s tries=%d reason=%r", name, self._tries[name], sentence(problem))
        self._start(name)
        return True

    def _listen(self) -> None:
        """Hand on what queries tell of batches that are done."""
        for name, query in self._queries.items():
            last = query.lastProgress
            heard = self._heard.get(name, (-1, ""))
            if last is None or _told(last) == heard:
                continue
            for progress in query.recentProgress:
                if _told(progress) > heard:
                    self._report.batch(name, batch_of(json.loads(progress.json)))
            self._heard[name] = _told(last)

    def _finish(self) -> None:
        """Stop the queries, each when its batch is done; at once when somebody says so again."""
        self._report.change(State.STOPPING)
        waiting = dict(self._queries)
        while waiting:
            for name, query in list(waiting.items()):
                if self._stop.count > 1 or not _is_at_batch(query):
                    query.stop()
                    del waiting[name]
            self._listen()
            self._report.tick()
            time.sleep(_LOOK_CLOSELY_S)
        self._listen()


def _is_at_batch(query: StreamingQuery) -> bool:
    status: Mapping[str, object] = query.status
    return query.isActive and bool(status["isTriggerActive"]) and not str(status["message"]).startswith(_NO_BATCH)


def _told(progress: object) -> tuple[int, str]:
    return progress["batchId"], progress["timestamp"]  # type: ignore[index]
