"""A pipeline as Spark will run it: rows from the source, through the steps, as each sink takes them. Reads and writes nothing yet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.spark.pipeline import sinks
from orbitmq.spark.pipeline.model import COMMIT_LOG, ROCKETMQ, STREAMS, Pipeline, Sink, Source
from orbitmq.spark.pipeline.needed_columns import used_columns
from orbitmq.spark.pipeline.problems import patiently, told_at
from orbitmq.spark.pipeline.steps import applied

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MASK: Final = "***"
_CHEAPEST: Final = "queueOffset"  # where rows only have to be counted
_SECRETS: Final = frozenset({"accesskey", "secretkey", "securitytoken", "tlskeypassword"})


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What one sink gets."""

    sink: Sink
    columns_read: tuple[str, ...]  # of the source
    rows: DataFrame


def planned(spark: SparkSession, pipeline: Pipeline) -> list[SinkPlan]:
    """The plan of each sink; ConfigurationError with the line of whatever Spark refuses."""
    whole = _read(spark, pipeline.source)
    rows = applied(whole, pipeline.steps)
    return [_planned(pipeline, sink, whole, rows) for sink in pipeline.sinks]


def shown_options(source: Source | Sink) -> dict[str, str]:
    """Options without their secrets."""
    return {name: MASK if name.lower() in _SECRETS else text for name, text in source.options.items()}


def plan_text(plan: SinkPlan) -> str:
    """How Spark goes about it."""
    rows = plan.rows
    text: str = rows.sparkSession._jvm.PythonSQLUtils.explainString(rows._jdf.queryExecution(), "formatted")  # type: ignore[union-attr]
    return text.strip()


def _planned(pipeline: Pipeline, sink: Sink, whole: DataFrame, rows: DataFrame) -> SinkPlan:
    rows, used = sinks.fitted(rows, sink), whole.columns
    if pipeline.source.format in (ROCKETMQ, COMMIT_LOG):
        used = used_columns(rows, whole.columns) or [_CHEAPEST]
        rows = sinks.fitted(applied(_read_only(pipeline.source_of(sink), used, whole), pipeline.steps), sink)
    if pipeline.is_stream:
        _check_stream(rows, sink)
    return SinkPlan(sink, tuple(used), rows)


def _read_only(source: Source, used: Collection[str], whole: DataFrame) -> DataFrame:
    """The same table, but that columns which nobody uses are null: steps may still name them."""
    import pyspark.sql.functions as fn

    fields = whole.schema.fields
    schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields if field.name in used)
    columns = (fn.col(field.name) if field.name in used else fn.lit(None).cast(field.dataType).alias(field.name) for field in fields)
    return _read(whole.sparkSession, source, schema).select(*columns)


def _read(spark: SparkSession, source: Source, schema: str | None = None) -> DataFrame:
    kind = spark.readStream if source.format in STREAMS else spark.read
    reader = kind.format(source.format).options(**source.options)
    with told_at(source.place, "source"):
        return patiently((reader.schema(schema) if schema else reader).load)


def _check_stream(rows: DataFrame, sink: Sink) -> None:
    """Refuse what Spark would refuse when the query starts."""
    jvm = rows.sparkSession._jvm
    assert jvm is not None, "a session has it"
    with told_at(sink.place, f"sink {sink.name}"):
        mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, sink.mode.capitalize())()
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), mode)
