"""Where rows go, as Spark does it: what each sink takes of a row, and the query or the write that brings it there.

A sink of a stream is a query of its own, with its own checkpoint: so each has the guarantee of its format, and none waits for another.
Parquet files are exactly-once for readers that heed Spark's log beside them. With `mode: update` windows that are still open go out with
every change, by batches that are written again after a failure: at least once, unless the sink is asked for more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.spark.pipeline.model import CONSOLE, DATE, PARQUET, ROCKETMQ, STORED, Sink
from orbitmq.spark.pipeline.problems import told_at
from orbitmq.spark.pipeline.progress import OUT, ROWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation
    from pyspark.sql.streaming.query import StreamingQuery

Show = Callable[[str, int, list[str], list[tuple[Any, ...]]], None]  # sink, batch, columns, rows
_RESERVED: Final = "reservedProperties"
_WINDOW_START: Final = "window.start"


def fitted(rows: DataFrame, sink: Sink) -> DataFrame:
    """The rows as the sink takes them; ConfigurationError when it cannot."""
    with told_at(sink.place, f"sink {sink.name}"):
        if sink.format == ROCKETMQ:
            return _messages(rows, sink)
        if DATE in sink.partition_by and DATE not in rows.columns:
            rows = _dated(rows, sink)
        for column in sink.partition_by:
            if column not in rows.columns:
                raise ConfigurationError(f"partitionBy has {column}, and rows have no such column; they have {', '.join(rows.columns)}")
        return rows


def counted(rows: DataFrame, observation: Observation | None = None) -> DataFrame:
    """The same rows, and their number is told with each batch."""
    import pyspark.sql.functions as fn

    return rows.observe(observation or OUT, fn.count(fn.lit(1)).alias(ROWS))


def start(rows: DataFrame, sink: Sink, checkpoint: str, interval_ms: int | None, show: Show) -> StreamingQuery:
    """Start the query that brings rows to the sink."""
    query = rows.writeStream.queryName(sink.name).outputMode(sink.mode).option("checkpointLocation", checkpoint)
    query = query.trigger(availableNow=True) if interval_ms is None else query.trigger(processingTime=f"{interval_ms} milliseconds")
    if sink.format == CONSOLE:
        query = query.foreachBatch(lambda batch, number: _show(batch, sink, number, show))
    elif sink.mode == "update":  # Spark has no updates for sinks in Python
        query = query.foreachBatch(lambda batch, number: write(batch, sink, show, _as_batch_of(sink, checkpoint, number)))
    else:
        query = query.format(sink.format).options(**_options(rows, sink)).partitionBy(*sink.partition_by)
    return query.start()


def write(rows: DataFrame, sink: Sink, show: Show, more: Mapping[str, str] | None = None) -> None:
    """Write everything at once, with some more options."""
    if sink.format == CONSOLE:
        _show(rows, sink, 0, show)
        return
    mode = {"error": "errorifexists", "overwrite": "overwrite"}.get(sink.mode, "append")
    rows.write.format(sink.format).options(**_options(rows, sink), **(more or {})).mode(mode).partitionBy(*sink.partition_by).save()


def _as_batch_of(sink: Sink, checkpoint: str, number: int) -> Mapping[str, str]:
    """What has a batch delivered once that is written again after a failure, where that is asked for."""
    wanted = {name.lower(): text.lower() for name, text in sink.options.items()}
    if wanted.get("deliveryguarantee") != "exactly-once":
        return {}
    return {"transactionLog": f"{checkpoint}/transactions", "transactionId": sink.name, "transactionBatch": str(number)}


def _show(rows: DataFrame, sink: Sink, number: int, show: Show) -> None:
    """Hand on the first rows; all are made, once, so that they are counted."""
    rows.persist()
    try:
        rows.count()
        show(sink.name, number, rows.columns, [tuple(row) for row in rows.limit(sink.rows).collect()])
    finally:
        rows.unpersist()


def _options(rows: DataFrame, sink: Sink) -> Mapping[str, str]:
    """The sink's options; those properties of a message that was read that are RocketMQ's own cannot be sent, and are left out."""
    options = {**sink.options, "path": sink.path} if sink.format == PARQUET else dict(sink.options)
    if sink.format == ROCKETMQ and "properties" in rows.columns and _RESERVED.lower() not in map(str.lower, options):
        options[_RESERVED] = "drop"
    return options


def _messages(rows: DataFrame, sink: Sink) -> DataFrame:
    """A row that has a body goes out with what a message has; one without, as JSON of all that a message has not."""
    import pyspark.sql.functions as fn

    from orbitmq.spark.sink_columns import TYPES, check_schema

    has_topic = "topic" in map(str.lower, sink.options)
    own = [name for name in rows.columns if name in TYPES and not (has_topic and name == "topic")]
    rest = [name for name in rows.columns if name not in own]
    if "body" in own:
        found = rows.select(*map(_column, own))
    elif rest:
        found = rows.select(*map(_column, own), fn.to_json(fn.struct(*map(_column, rest))).alias("body"))
    else:
        raise ConfigurationError(f"rows have {', '.join(own)} only, and nothing that could be a message's body")
    check_schema(found.schema, has_topic=has_topic)
    return found


def _dated(rows: DataFrame, sink: Sink) -> DataFrame:
    import pyspark.sql.functions as fn

    return rows.withColumn(DATE, fn.to_date(sink.date_of or _time_of(rows)))


def _time_of(rows: DataFrame) -> str:
    """The column of time, where it is clear which one that is."""
    times = [field.name for field in rows.schema.fields if field.dataType.typeName() == "timestamp"]
    if len(times) == 1:
        return times[0]
    if STORED in times:
        return STORED
    if not times and "window" in rows.columns:
        return _WINDOW_START
    known = f"there are {', '.join(times)}" if times else f"the columns are {', '.join(rows.columns)}"
    raise ConfigurationError(f"partitionBy has {DATE}, and it is not clear of which time; say dateOf: column ({known})")


def _column(name: str) -> Column:
    """A column whatever its name is made of."""
    import pyspark.sql.functions as fn

    return fn.col("`{}`".format(name.replace("`", "``")))
