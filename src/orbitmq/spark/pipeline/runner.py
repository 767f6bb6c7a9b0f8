"""Runs a pipeline from its definition to its final status. The only place that assembles a run."""

from __future__ import annotations

import time

from orbitmq.common.errors import OrbitError
from orbitmq.spark.pipeline.batch_run import BatchRun
from orbitmq.spark.pipeline.cluster_session import SessionSettings, open_session
from orbitmq.spark.pipeline.model import Pipeline
from orbitmq.spark.pipeline.plan import planned
from orbitmq.spark.pipeline.problems import PipelineFailedError, spark_error_types, summarize_error
from orbitmq.spark.pipeline.progress import SinkProgress
from orbitmq.spark.pipeline.reporting import RunObserver, RunReporter
from orbitmq.spark.pipeline.status import State, Status, StatusFile
from orbitmq.spark.pipeline.stopping import StoppedEarly, StopRequest
from orbitmq.spark.pipeline.stream_run import StreamRun


def run(
    pipeline: Pipeline,
    settings: SessionSettings,
    observer: RunObserver,
    stop: StopRequest | None = None,
) -> Status:
    """Run a pipeline until it is done or stopped; raises PipelineFailedError or ConfigurationError
    if it cannot go on.

    In the main thread, SIGTERM and SIGINT stop it.
    """
    stop = stop or StopRequest()
    file = StatusFile(pipeline.status_file)
    file.acquire()
    try:
        now_ms = time.time_ns() // 1_000_000
        progress = tuple(SinkProgress(sink=sink.name) for sink in pipeline.sinks)
        status = Status(
            name=pipeline.name,
            state=State.STARTING,
            started_ms=now_ms,
            updated_ms=now_ms,
            sinks=progress,
        )
        report = RunReporter(status, file, observer)
        with stop.by_signal():
            _run(pipeline, settings, report, stop)
        return report.status
    finally:
        file.release()


def _run(
    pipeline: Pipeline, settings: SessionSettings, report: RunReporter, stop: StopRequest
) -> None:
    lost: tuple[type[Exception], ...] = (*spark_error_types(), ConnectionError)
    try:
        report.change(State.STARTING, master=settings.master)
        with stop.starting():
            spark = open_session(pipeline, settings)
            report.change(State.STARTING, ui=spark.sparkContext.uiWebUrl)
            plans = planned(spark, pipeline)
        report.change(State.RUNNING)
        is_stream = pipeline.is_stream
        report.change(
            StreamRun(pipeline, report, stop).run(plans)
            if is_stream
            else BatchRun(spark, report, stop).run(plans)
        )
    except StoppedEarly:
        report.change(State.STOPPED)
    except OrbitError as error:
        report.change(State.FAILED, problem=str(error))
        raise
    except lost as error:
        if stop.count:  # the stop request also ended Spark's Java
            report.change(State.STOPPED)
            return
        problem = (
            f"Spark's Java ended or cannot be reached: {summarize_error(error)}; see its messages"
            " above"
        )
        report.change(State.FAILED, problem=problem)
        raise PipelineFailedError(problem) from error
