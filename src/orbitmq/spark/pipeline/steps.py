"""Applies the steps of a pipeline with Spark, to a stream or a batch.

Spark tracks one event time per query, with one watermark delay, and drops duplicates within that
delay: it reads it from metadata of the time column. If a window has its own delay, that metadata
passes `within` to the dedup step.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from orbitmq.spark.pipeline.model import (
    STEP_NAMES,
    DedupStep,
    FilterStep,
    JsonStep,
    SqlStep,
    Step,
    WindowStep,
)
from orbitmq.spark.pipeline.problems import located_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INPUT: Final = "input"  # the name of the rows in queries
_DELAY: Final = "spark.watermarkDelayMs"  # column metadata of Spark
_PARSED: Final = "__parsed"
_MALFORMED: Final = "__malformed"
_BEFORE: Final = "__before"


def apply_steps(rows: DataFrame, steps: tuple[Step, ...]) -> DataFrame:
    """Return the rows after all steps; raises ConfigurationError with the step and its line if
    Spark refuses one.
    """
    return reduce(_apply_step, enumerate(steps, 1), rows)


def _apply_step(rows: DataFrame, numbered: tuple[int, Step]) -> DataFrame:
    number, step = numbered
    with located_errors(step.place, f"step {number} ({STEP_NAMES[type(step)]})"):
        match step:
            case JsonStep():
                return _json(rows, step)
            case FilterStep():
                return rows.filter(step.condition)
            case DedupStep():
                return _dedup_stream(rows, step) if rows.isStreaming else _dedup_all(rows, step)
            case WindowStep():
                return _window(rows, step)
            case SqlStep():
                return _sql(rows, step)


def _json(rows: DataFrame, step: JsonStep) -> DataFrame:
    """Parse JSON; a field replaces a column of its name, other columns stay."""
    import pyspark.sql.functions as fn
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType.fromDDL(step.schema)
    assert isinstance(schema, StructType), "a list of columns is a struct"
    options = {
        "mode": "FAILFAST" if step.malformed == "fail" else "PERMISSIVE",
        "columnNameOfCorruptRecord": _MALFORMED,
    }
    wanted = (
        StructType([*schema.fields, StructField(_MALFORMED, StringType())])
        if step.malformed == "drop"
        else schema
    )
    parsed = rows.withColumn(
        _PARSED, fn.from_json(fn.col(step.column).cast("string"), wanted, options)
    )
    if step.malformed == "drop":
        parsed = parsed.filter(fn.col(_PARSED).isNotNull() & fn.col(_PARSED)[_MALFORMED].isNull())
    return parsed.withColumns(
        {field.name: fn.col(_PARSED)[field.name] for field in schema.fields}
    ).drop(_PARSED)


def _dedup_stream(rows: DataFrame, step: DedupStep) -> DataFrame:
    marked = _with_watermark(rows, step.time, step.watermark_ms).withMetadata(
        step.time, {_DELAY: step.within_ms}
    )
    return marked.dropDuplicatesWithinWatermark(list(step.keys))


def _dedup_all(rows: DataFrame, step: DedupStep) -> DataFrame:
    import pyspark.sql.functions as fn
    from pyspark.sql import Window

    before = fn.lag(step.time).over(Window.partitionBy(*step.keys).orderBy(step.time))
    apart_us = fn.unix_micros(step.time) - fn.unix_micros(_BEFORE)
    return (
        rows.withColumn(_BEFORE, before)
        .filter(fn.col(_BEFORE).isNull() | (apart_us > step.within_ms * 1000))
        .drop(_BEFORE)
    )


def _window(rows: DataFrame, step: WindowStep) -> DataFrame:
    import pyspark.sql.functions as fn

    if rows.isStreaming and step.watermark_ms is not None:
        rows = _with_watermark(rows, step.time, step.watermark_ms)
    window = fn.window(step.time, _interval(step.size_ms), _interval(step.slide_ms))
    results = [fn.expr(text).alias(name) for name, text in step.aggregate.items()]
    return rows.groupBy(window, *step.group_by).agg(*results)


def _sql(rows: DataFrame, step: SqlStep) -> DataFrame:
    spark = rows.sparkSession
    # A statement other than a query would run at once, even if the pipeline is only inspected.
    spark._jsparkSession.sessionState().sqlParser().parseQuery(step.query)
    rows.createOrReplaceTempView(INPUT)
    try:
        return spark.sql(step.query)
    finally:
        spark.catalog.dropTempView(INPUT)


def _with_watermark(rows: DataFrame, time: str, late_ms: int) -> DataFrame:
    """Return rows with a watermark on the event time, which a query may set only once."""
    is_marked = any(_DELAY in field.metadata for field in rows.schema.fields)
    return rows if is_marked else rows.withWatermark(time, _interval(late_ms))


def _interval(length_ms: int) -> str:
    return f"{length_ms} milliseconds"
