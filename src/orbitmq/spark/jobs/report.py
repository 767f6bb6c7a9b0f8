"""Statistics of topics over a time: throughput, sizes and latency from producer to store, by queue,
tag and interval.

Nothing is estimated: percentiles are exact, with linear interpolation. Consumer lag comes from the
brokers and is current.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from orbitmq.blocking import Admin
from orbitmq.spark.jobs.expressions import millis
from orbitmq.spark.jobs.runner import JobRunner
from orbitmq.spark.jobs.topic_snapshot import TopicSnapshot
from orbitmq.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
TAGS_MAX: Final = 20
_INTERVALS_MAX: Final = 120
_S, _M, _H = 1_000, 60_000, 3_600_000
_WIDTHS_MS: Final = (
    *(_S, 2 * _S, 5 * _S, 10 * _S, 30 * _S, _M, 2 * _M, 5 * _M, 10 * _M, 30 * _M),
    *(_H, 2 * _H, 6 * _H, 12 * _H, 24 * _H, 7 * 24 * _H, 30 * 24 * _H, 365 * 24 * _H),
)
_COLUMNS: Final = (
    "topic",
    "brokerName",
    "queueId",
    "tags",
    "body",
    "bornTimestamp",
    "storeTimestamp",
)
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """Figures by topic, queue, tag (the most frequent ones per topic) and interval, and the lag of
    each group.
    """

    since_ms: int | None  # of the first message; None without messages
    until_ms: int | None
    interval_ms: int
    topics: tuple[Figures, ...]
    queues: tuple[Figures, ...]
    tags: tuple[Figures, ...]
    timeline: tuple[Figures, ...]  # every interval of every topic, empty ones included
    groups: tuple[Figures, ...]


def lags(options: Mapping[str, str], topics: Iterable[str]) -> tuple[Figures, ...]:
    """Return how far each consuming group lags behind in the topics."""
    settings = SourceOptions.of(options).client
    found: list[Figures] = []
    with Admin(settings) as admin:
        for topic in topics:
            wire = settings.names.wire(topic)
            for group in admin.topics.groups(wire):
                progress = admin.groups.progress(group, wire, with_owners=False)
                found.append(
                    {
                        "topic": topic,
                        "group": group,
                        "lag": progress.lag,
                        "consumed_per_s": round(progress.consumed_per_s, 3),
                    }
                )
    return tuple(found)


def interval(begin_ms: int, end_ms: int) -> int:
    """Return the interval length that divides a time into few enough parts to chart."""
    return next(
        (width for width in _WIDTHS_MS if end_ms // width - begin_ms // width < _INTERVALS_MAX),
        _WIDTHS_MS[-1],
    )


def measure(
    runner: JobRunner, snapshot: TopicSnapshot, groups: Sequence[Figures] = ()
) -> TopicReport:
    """Compute the report."""
    messages = _messages(snapshot.rows(runner.spark, _COLUMNS)).cache()
    try:
        bounds = runner.run_step(
            f"reading {snapshot.count} messages",
            lambda: _time_bounds(messages),
            lambda bounds: "done" if bounds else "no messages",
        )
        if bounds is None:
            return TopicReport(
                since_ms=None,
                until_ms=None,
                interval_ms=_S,
                topics=(),
                queues=(),
                tags=(),
                timeline=(),
                groups=tuple(groups),
            )
        width_ms = interval(*bounds)
        return TopicReport(
            since_ms=bounds[0],
            until_ms=bounds[1],
            interval_ms=width_ms,
            topics=_figures(runner, messages, "topic"),
            queues=_figures(runner, messages, "topic", "broker", "queue"),
            tags=_figures(runner, messages, "topic", "tag", top=TAGS_MAX),
            timeline=_fill_gaps(
                _figures(runner, _with_interval(messages, width_ms), "topic", "at_ms"), width_ms
            ),
            groups=tuple(groups),
        )
    finally:
        messages.unpersist()


def _messages(rows: DataFrame) -> DataFrame:
    """Select only the fields that the figures need, because they are scanned several times."""
    import pyspark.sql.functions as fn

    stored = millis("storeTimestamp")
    return rows.select(
        "topic",
        fn.col("brokerName").alias("broker"),
        fn.col("queueId").alias("queue"),
        fn.coalesce("tags", fn.lit("")).alias("tag"),
        fn.length("body").alias("size"),
        (stored - millis("bornTimestamp")).alias("latency_ms"),
        stored.alias("stored_ms"),
    )


def _time_bounds(messages: DataFrame) -> tuple[int, int] | None:
    """Return the store times of the first and the last message."""
    import pyspark.sql.functions as fn

    begin_ms, end_ms = messages.agg(fn.min("stored_ms"), fn.max("stored_ms")).collect()[0]
    return None if begin_ms is None else (begin_ms, end_ms)


def _with_interval(messages: DataFrame, width_ms: int) -> DataFrame:
    import pyspark.sql.functions as fn

    return messages.withColumn(
        "at_ms", fn.col("stored_ms") - fn.pmod("stored_ms", fn.lit(width_ms))
    )


def _figures(
    runner: JobRunner, messages: DataFrame, *by: str, top: int | None = None
) -> tuple[Figures, ...]:
    """Return the figures of each group of messages, or only of the `top` largest ones per topic."""
    import pyspark.sql.functions as fn
    from pyspark.sql import Window

    ranks = fn.array(*map(fn.lit, PERCENTILES.values()))
    grouped = messages.groupBy(*by).agg(
        fn.count("*").alias("messages"),
        fn.sum("size").alias("bytes"),
        fn.avg("size").alias("mean"),
        fn.percentile("size", ranks).alias("sizes"),
        fn.percentile("latency_ms", ranks).alias("latencies"),
        fn.min("stored_ms").alias("first_ms"),
        fn.max("stored_ms").alias("last_ms"),
    )
    order: tuple[str | Column, ...] = by
    if top is not None:
        order = (by[0], fn.desc("messages"), *by[1:])
        place = fn.row_number().over(Window.partitionBy(by[0]).orderBy(*order[1:]))
        grouped = grouped.withColumn("place", place).where(fn.col("place") <= top)
    return runner.run_step(
        f"figures by {by[-1].removesuffix('_ms')}",
        lambda: tuple(_row_figures(row, by) for row in grouped.orderBy(*order).collect()),
        lambda found: f"{len(found)} lines",
    )


def _row_figures(row: Row, by: Sequence[str]) -> Figures:
    seconds = max(row["last_ms"] - row["first_ms"], 1) / 1000
    return {
        **{name: row[name] for name in by},
        "messages": row["messages"],
        "bytes": row["bytes"],
        "per_s": round(row["messages"] / seconds, 3) if row["messages"] > 1 else None,
        "first_ms": row["first_ms"],
        "last_ms": row["last_ms"],
        "size_mean": round(row["mean"], 3),
        **{
            f"size_{name}": round(value, 3)
            for name, value in zip(PERCENTILES, row["sizes"], strict=True)
        },
        **{
            f"latency_{name}_ms": round(value, 3)
            for name, value in zip(PERCENTILES, row["latencies"], strict=True)
        },
    }


def _fill_gaps(timeline: Sequence[Figures], width_ms: int) -> tuple[Figures, ...]:
    """Return every interval of every topic, those without messages included, with rates over the
    whole interval.
    """
    known = {(each["topic"], each["at_ms"]): each for each in timeline}
    begin_ms, end_ms = min(at_ms for _, at_ms in known), max(at_ms for _, at_ms in known)
    found = []
    for topic in sorted({topic for topic, _ in known}):
        for at_ms in range(begin_ms, end_ms + 1, width_ms):
            each = known.get((topic, at_ms)) or {
                "topic": topic,
                "at_ms": at_ms,
                "messages": 0,
                "bytes": 0,
            }
            found.append(
                {
                    **each,
                    "per_s": each["messages"] * 1000 / width_ms,
                    "bytes_per_s": each["bytes"] * 1000 / width_ms,
                }
            )
    return tuple(found)
