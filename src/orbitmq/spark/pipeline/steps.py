"""Steps on rows, as Spark does them: on a stream, or on everything at once.

Spark follows one event time in a query, with one bound for lateness, and drops repeats for as long as that bound says: it takes that from a
mark on the column of time. Where a window has a bound of its own, the mark says `within` to the step that drops repeats.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from orbitmq.spark.pipeline.model import STEP_NAMES, DedupStep, FilterStep, JsonStep, SqlStep, Step, WindowStep
from orbitmq.spark.pipeline.problems import told_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INPUT: Final = "input"  # what queries call the rows so far
_DELAY: Final = "spark.watermarkDelayMs"  # Spark's mark on a column of event time
_PARSED: Final = "__parsed"
_MALFORMED: Final = "__malformed"
_BEFORE: Final = "__before"


def applied(rows: DataFrame, steps: tuple[Step, ...]) -> DataFrame:
    """The rows after all steps; ConfigurationError with the step and its line when Spark refuses one."""
    return reduce(_applied, enumerate(steps, 1), rows)


def _applied(rows: DataFrame, numbered: tuple[int, Step]) -> DataFrame:
    number, step = numbered
    with told_at(step.place, f"step {number} ({STEP_NAMES[type(step)]})"):
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
    """A field takes the place of a column of its name; the others stay."""
    import pyspark.sql.functions as fn
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType.fromDDL(step.schema)
    assert isinstance(schema, StructType), "a list of columns is one"
    options = {"mode": "FAILFAST" if step.malformed == "fail" else "PERMISSIVE", "columnNameOfCorruptRecord": _MALFORMED}
    wanted = StructType([*schema.fields, StructField(_MALFORMED, StringType())]) if step.malformed == "drop" else schema
    parsed = rows.withColumn(_PARSED, fn.from_json(fn.col(step.column).cast("string"), wanted, options))
    if step.malformed == "drop":
        parsed = parsed.filter(fn.col(_PARSED).isNotNull() & fn.col(_PARSED)[_MALFORMED].isNull())
    return parsed.withColumns({field.name: fn.col(_PARSED)[field.name] for field in schema.fields}).drop(_PARSED)


def _dedup_stream(rows: DataFrame, step: DedupStep) -> DataFrame:
    marked = _followed(rows, step.time, step.watermark_ms).withMetadata(step.time, {_DELAY: step.within_ms})
    return marked.dropDuplicatesWithinWatermark(list(step.keys))


def _dedup_all(rows: DataFrame, step: DedupStep) -> DataFrame:
    import pyspark.sql.functions as fn
    from pyspark.sql import Window

    before = fn.lag(step.time).over(Window.partitionBy(*step.keys).orderBy(step.time))
    apart_us = fn.unix_micros(step.time) - fn.unix_micros(_BEFORE)
    return rows.withColumn(_BEFORE, before).filter(fn.col(_BEFORE).isNull() | (apart_us > step.within_ms * 1000)).drop(_BEFORE)


def _window(rows: DataFrame, step: WindowStep) -> DataFrame:
    import pyspark.sql.functions as fn

    if rows.isStreaming and step.watermark_ms is not None:
        rows = _followed(rows, step.time, step.watermark_ms)
    window = fn.window(step.time, _interval(step.size_ms), _interval(step.slide_ms))
    results = [fn.expr(text).alias(name) for name, text in step.aggregate.items()]
    return rows.groupBy(window, *step.group_by).agg(*results)


def _sql(rows: DataFrame, step: SqlStep) -> DataFrame:
    spark = rows.sparkSession
    # A statement that is no query would be done at once, by whoever only looks at the pipeline.
    spark._jsparkSession.sessionState().sqlParser().parseQuery(step.query)
    rows.createOrReplaceTempView(INPUT)
    try:
        return spark.sql(step.query)
    finally:
        spark.catalog.dropTempView(INPUT)


def _followed(rows: DataFrame, time: str, late_ms: int) -> DataFrame:
    """Rows whose event time Spark follows; it may be told once in a query."""
    is_followed = any(_DELAY in field.metadata for field in rows.schema.fields)
    return rows if is_followed else rows.withWatermark(time, _interval(late_ms))


def _interval(length_ms: int) -> str:
    return f"{length_ms} milliseconds"
