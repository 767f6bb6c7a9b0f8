"""Writes rows to sinks with Spark: shapes the rows for each sink, and starts its query or write.

In a stream each sink is a query with its own checkpoint, so each has the guarantee of its format
and none waits for another. Parquet files are exactly-once for readers that honour Spark's log next
to them. With `mode: update`, open windows are written with every change, in batches that are
repeated after a failure: at least once, unless the sink is configured for exactly-once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.pipeline.model import CONSOLE, DATE, PARQUET, ROCKETMQ, STORED, SinkSpec
from orbitmq.spark.pipeline.problems import located_errors
from orbitmq.spark.pipeline.progress import OUT, ROWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation
    from pyspark.sql.streaming.query import StreamingQuery

ShowRows = Callable[
    [str, int, list[str], list[tuple[Any, ...]]], None
]  # sink, batch, columns, rows
_RESERVED: Final = "reservedProperties"
_WINDOW_START: Final = "window.start"


def rows_for_sink(rows: DataFrame, sink: SinkSpec) -> DataFrame:
    """Return the rows as the sink takes them; raises ConfigurationError if it cannot."""
    with located_errors(sink.place, f"sink {sink.name}"):
        if sink.format == ROCKETMQ:
            return _as_messages(rows, sink)
        if DATE in sink.partition_by and DATE not in rows.columns:
            rows = _with_date(rows, sink)
        for column in sink.partition_by:
            if column not in rows.columns:
                raise ConfigurationError(
                    f"partitionBy has {column}, but rows have no such column; they have"
                    f" {', '.join(rows.columns)}"
                )
        return rows


def with_row_count(rows: DataFrame, observation: Observation | None = None) -> DataFrame:
    """Return the same rows, observed so that each batch reports their number."""
    import pyspark.sql.functions as fn

    return rows.observe(observation or OUT, fn.count(fn.lit(1)).alias(ROWS))


def start(
    rows: DataFrame, sink: SinkSpec, checkpoint: str, interval_ms: int | None, show: ShowRows
) -> StreamingQuery:
    """Start the query that writes rows to the sink."""
    query = (
        rows.writeStream.queryName(sink.name)
        .outputMode(sink.mode)
        .option("checkpointLocation", checkpoint)
    )
    query = (
        query.trigger(availableNow=True)
        if interval_ms is None
        else query.trigger(processingTime=f"{interval_ms} milliseconds")
    )
    if sink.format == CONSOLE:
        query = query.foreachBatch(lambda batch, number: _show(batch, sink, number, show))
    elif sink.mode == "update":  # Spark does not support update mode for Python sinks
        query = query.foreachBatch(
            lambda batch, number: write(
                batch, sink, show, _transaction_options(sink, checkpoint, number)
            )
        )
    else:
        query = (
            query.format(sink.format)
            .options(**_options(rows, sink))
            .partitionBy(*sink.partition_by)
        )
    return query.start()


def write(
    rows: DataFrame, sink: SinkSpec, show: ShowRows, more: Mapping[str, str] | None = None
) -> None:
    """Write all rows in one batch, with additional options."""
    if sink.format == CONSOLE:
        _show(rows, sink, 0, show)
        return
    mode = {"error": "errorifexists", "overwrite": "overwrite"}.get(sink.mode, "append")
    rows.write.format(sink.format).options(**_options(rows, sink), **(more or {})).mode(
        mode
    ).partitionBy(*sink.partition_by).save()


def _transaction_options(sink: SinkSpec, checkpoint: str, number: int) -> Mapping[str, str]:
    """Return the options that deliver a repeated batch only once, if the sink is exactly-once."""
    wanted = {name.lower(): text.lower() for name, text in sink.options.items()}
    if wanted.get("deliveryguarantee") != "exactly-once":
        return {}
    return {
        "transactionLog": f"{checkpoint}/transactions",
        "transactionId": sink.name,
        "transactionBatch": str(number),
    }


def _show(rows: DataFrame, sink: SinkSpec, number: int, show: ShowRows) -> None:
    """Show the first rows; computes all of them once, so that they are counted."""
    rows.persist()
    try:
        rows.count()
        show(
            sink.name, number, rows.columns, [tuple(row) for row in rows.limit(sink.rows).collect()]
        )
    finally:
        rows.unpersist()


def _options(rows: DataFrame, sink: SinkSpec) -> Mapping[str, str]:
    """Return the sink's options. Reserved properties of messages that were read cannot be sent, so
    they are dropped.
    """
    options = {**sink.options, "path": sink.path} if sink.format == PARQUET else dict(sink.options)
    if (
        sink.format == ROCKETMQ
        and "properties" in rows.columns
        and _RESERVED.lower() not in map(str.lower, options)
    ):
        options[_RESERVED] = "drop"
    return options


def _as_messages(rows: DataFrame, sink: SinkSpec) -> DataFrame:
    """Select the columns of a message; without a body, all other columns become one as JSON."""
    import pyspark.sql.functions as fn

    from orbitmq.spark.sink.columns import TYPES, check_schema

    has_topic = "topic" in map(str.lower, sink.options)
    own = [name for name in rows.columns if name in TYPES and not (has_topic and name == "topic")]
    rest = [name for name in rows.columns if name not in own]
    if "body" in own:
        found = rows.select(*map(_column, own))
    elif rest:
        found = rows.select(
            *map(_column, own), fn.to_json(fn.struct(*map(_column, rest))).alias("body")
        )
    else:
        raise ConfigurationError(
            f"rows have only {', '.join(own)}, and no column for the message body"
        )
    check_schema(found.schema, has_topic=has_topic)
    return found


def _with_date(rows: DataFrame, sink: SinkSpec) -> DataFrame:
    import pyspark.sql.functions as fn

    return rows.withColumn(DATE, fn.to_date(sink.date_of or _time_of(rows)))


def _time_of(rows: DataFrame) -> str:
    """Return the time column if it is unambiguous."""
    times = [field.name for field in rows.schema.fields if field.dataType.typeName() == "timestamp"]
    if len(times) == 1:
        return times[0]
    if STORED in times:
        return STORED
    if not times and "window" in rows.columns:
        return _WINDOW_START
    known = (
        f"there are {', '.join(times)}" if times else f"the columns are {', '.join(rows.columns)}"
    )
    raise ConfigurationError(
        f"partitionBy has {DATE}, but its time column is ambiguous; set dateOf: column ({known})"
    )


def _column(name: str) -> Column:
    """Return a column whose name may contain any characters."""
    import pyspark.sql.functions as fn

    return fn.col("`{}`".format(name.replace("`", "``")))
