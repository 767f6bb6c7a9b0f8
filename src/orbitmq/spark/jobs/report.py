"""What a time of some topics was like: throughput, sizes, how long messages took from producer to store, by queue, by tag, over time.

Everything is counted, nothing is estimated: percentiles are exact, with straight lines between values. How far groups are behind is asked
of the brokers, and is of now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from orbitmq.blocking import Admin
from orbitmq.spark.jobs.contents import millis
from orbitmq.spark.jobs.reading import Reading
from orbitmq.spark.jobs.steps import Steps
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
_COLUMNS: Final = ("topic", "brokerName", "queueId", "tags", "body", "bornTimestamp", "storeTimestamp")
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Figures by topic, by queue, by tag (the most frequent ones of each topic) and by interval; and the lag of each group."""

    since_ms: int | None  # of the first message, and of the last; None when there is none
    until_ms: int | None
    interval_ms: int
    topics: tuple[Figures, ...]
    queues: tuple[Figures, ...]
    tags: tuple[Figures, ...]
    timeline: tuple[Figures, ...]  # every interval of every topic, those without messages too
    groups: tuple[Figures, ...]


def lags(options: Mapping[str, str], topics: Iterable[str]) -> tuple[Figures, ...]:
    """How far each group that consumes the topics is behind in them."""
    settings = SourceOptions.of(options).client
    found: list[Figures] = []
    with Admin(settings) as admin:
        for topic in topics:
            wire = settings.names.wire(topic)
            for group in admin.topics.groups(wire):
                progress = admin.groups.progress(group, wire, with_owners=False)
                found.append({"topic": topic, "group": group, "lag": progress.lag, "consumed_per_s": round(progress.consumed_per_s, 3)})
    return tuple(found)


def interval(begin_ms: int, end_ms: int) -> int:
    """How long the parts are into which that time is divided, so that they can be looked at together."""
    return next((width for width in _WIDTHS_MS if end_ms // width - begin_ms // width < _INTERVALS_MAX), _WIDTHS_MS[-1])


def measure(steps: Steps, reading: Reading, groups: Sequence[Figures] = ()) -> Report:
    """Go over the messages."""
    messages = _messages(reading.rows(steps.spark, _COLUMNS)).cache()
    try:
        ends = steps.do(f"reading {reading.count} messages", lambda: _ends(messages), lambda ends: "done" if ends else "there are none")
        if ends is None:
            return Report(since_ms=None, until_ms=None, interval_ms=_S, topics=(), queues=(), tags=(), timeline=(), groups=tuple(groups))
        width_ms = interval(*ends)
        return Report(
            since_ms=ends[0],
            until_ms=ends[1],
            interval_ms=width_ms,
            topics=_figures(steps, messages, "topic"),
            queues=_figures(steps, messages, "topic", "broker", "queue"),
            tags=_figures(steps, messages, "topic", "tag", top=TAGS_MAX),
            timeline=_filled(_figures(steps, _in_intervals(messages, width_ms), "topic", "at_ms"), width_ms),
            groups=tuple(groups),
        )
    finally:
        messages.unpersist()


def _messages(rows: DataFrame) -> DataFrame:
    """What is needed of each message, and no more: it is gone over several times."""
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


def _ends(messages: DataFrame) -> tuple[int, int] | None:
    """When the first message was stored, and the last."""
    import pyspark.sql.functions as fn

    begin_ms, end_ms = messages.agg(fn.min("stored_ms"), fn.max("stored_ms")).collect()[0]
    return None if begin_ms is None else (begin_ms, end_ms)


def _in_intervals(messages: DataFrame, width_ms: int) -> DataFrame:
    import pyspark.sql.functions as fn

    return messages.withColumn("at_ms", fn.col("stored_ms") - fn.pmod("stored_ms", fn.lit(width_ms)))


def _figures(steps: Steps, messages: DataFrame, *by: str, top: int | None = None) -> tuple[Figures, ...]:
    """What is told of the messages of each kind; or only of so many kinds of each topic that are the most frequent ones."""
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
    return steps.do(
        f"figures by {by[-1].removesuffix('_ms')}",
        lambda: tuple(_told(row, by) for row in grouped.orderBy(*order).collect()),
        lambda found: f"{len(found)} lines",
    )


def _told(row: Row, by: Sequence[str]) -> Figures:
    seconds = max(row["last_ms"] - row["first_ms"], 1) / 1000
    return {
        **{name: row[name] for name in by},
        "messages": row["messages"],
        "bytes": row["bytes"],
        "per_s": round(row["messages"] / seconds, 3) if row["messages"] > 1 else None,
        "first_ms": row["first_ms"],
        "last_ms": row["last_ms"],
        "size_mean": round(row["mean"], 3),
        **{f"size_{name}": round(value, 3) for name, value in zip(PERCENTILES, row["sizes"], strict=True)},
        **{f"latency_{name}_ms": round(value, 3) for name, value in zip(PERCENTILES, row["latencies"], strict=True)},
    }


def _filled(timeline: Sequence[Figures], width_ms: int) -> tuple[Figures, ...]:
    """Every interval of every topic from the first to the last of all; the rate is that of the whole interval."""
    known = {(each["topic"], each["at_ms"]): each for each in timeline}
    begin_ms, end_ms = min(at_ms for _, at_ms in known), max(at_ms for _, at_ms in known)
    found = []
    for topic in sorted({topic for topic, _ in known}):
        for at_ms in range(begin_ms, end_ms + 1, width_ms):
            each = known.get((topic, at_ms)) or {"topic": topic, "at_ms": at_ms, "messages": 0, "bytes": 0}
            found.append({**each, "per_s": each["messages"] * 1000 / width_ms, "bytes_per_s": each["bytes"] * 1000 / width_ms})
    return tuple(found)
