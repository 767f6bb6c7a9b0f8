"""Builds the DataFrames of a pipeline: from the source through the steps to what each sink takes.
Reads and writes no data.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.spark.pipeline import sinks
from orbitmq.spark.pipeline.model import (
    COMMIT_LOG,
    ROCKETMQ,
    STREAMS,
    Pipeline,
    SinkSpec,
    SourceSpec,
)
from orbitmq.spark.pipeline.needed_columns import used_columns
from orbitmq.spark.pipeline.problems import located_errors, retry_slow_start
from orbitmq.spark.pipeline.steps import apply_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MASK: Final = "***"
_CHEAPEST: Final = "queueOffset"  # read if rows are only counted
_SECRETS: Final = frozenset({"accesskey", "secretkey", "securitytoken", "tlskeypassword"})


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """The rows of one sink."""

    sink: SinkSpec
    columns_read: tuple[str, ...]  # of the source
    rows: DataFrame


def planned(spark: SparkSession, pipeline: Pipeline) -> list[SinkPlan]:
    """Return the plan of each sink; raises ConfigurationError with the line of whatever Spark
    refuses.
    """
    whole = _read(spark, pipeline.source)
    rows = apply_steps(whole, pipeline.steps)
    return [_planned(pipeline, sink, whole, rows) for sink in pipeline.sinks]


def shown_options(source: SourceSpec | SinkSpec) -> dict[str, str]:
    """Return options with secrets masked."""
    return {
        name: MASK if name.lower() in _SECRETS else text for name, text in source.options.items()
    }


def plan_text(plan: SinkPlan) -> str:
    """Return Spark's query plan as text."""
    rows = plan.rows
    text: str = rows.sparkSession._jvm.PythonSQLUtils.explainString(  # type: ignore[union-attr]
        rows._jdf.queryExecution(), "formatted"
    )
    return text.strip()


def _planned(pipeline: Pipeline, sink: SinkSpec, whole: DataFrame, rows: DataFrame) -> SinkPlan:
    rows, used = sinks.rows_for_sink(rows, sink), whole.columns
    if pipeline.source.format in (ROCKETMQ, COMMIT_LOG):
        used = used_columns(rows, whole.columns) or [_CHEAPEST]
        rows = sinks.rows_for_sink(
            apply_steps(_read_only(pipeline.source_of(sink), used, whole), pipeline.steps), sink
        )
    if pipeline.is_stream:
        _check_stream(rows, sink)
    return SinkPlan(sink, tuple(used), rows)


def _read_only(source: SourceSpec, used: Collection[str], whole: DataFrame) -> DataFrame:
    """Return the source with unused columns as nulls, because steps may still name them."""
    import pyspark.sql.functions as fn

    fields = whole.schema.fields
    schema = ", ".join(
        f"{field.name} {field.dataType.simpleString()}" for field in fields if field.name in used
    )
    columns = (
        (
            fn.col(field.name)
            if field.name in used
            else fn.lit(None).cast(field.dataType).alias(field.name)
        )
        for field in fields
    )
    return _read(whole.sparkSession, source, schema).select(*columns)


def _read(spark: SparkSession, source: SourceSpec, schema: str | None = None) -> DataFrame:
    kind = spark.readStream if source.format in STREAMS else spark.read
    reader = kind.format(source.format).options(**source.options)
    with located_errors(source.place, "source"):
        return retry_slow_start((reader.schema(schema) if schema else reader).load)


def _check_stream(rows: DataFrame, sink: SinkSpec) -> None:
    """Refuse what Spark would refuse when the query starts."""
    jvm = rows.sparkSession._jvm
    assert jvm is not None, "a running session has a JVM"
    with located_errors(sink.place, f"sink {sink.name}"):
        mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, sink.mode.capitalize())()
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), mode)
