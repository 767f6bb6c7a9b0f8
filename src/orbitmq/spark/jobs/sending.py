"""Rows that were messages once become messages again: with body, keys, tags, sharding key and the application's properties, and no more.

Messages of one queue go out in their order, by one task, the earliest of all queues of a task first. A rate is that of all tasks together.
At least once: when a task fails, Spark sends what it had sent before again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.message import properties
from orbitmq.spark.cluster import cluster_of
from orbitmq.spark.jobs.contents import application_properties
from orbitmq.spark.jobs.reading import FORMAT
from orbitmq.spark.jobs.steps import Measure, Steps
from orbitmq.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NEEDED: Final = ("topic", "brokerName", "queueId", "queueOffset", "keys", "tags", "body", "properties", "storeTimestamp")
_RATE_OF_TASK_MAX: Final = 20_000  # messages a second; for more there is another task


@dataclass(frozen=True, slots=True)
class Sent:
    """What went out: messages, and the bytes of their bodies."""

    messages: int
    body_bytes: int


def send(
    steps: Steps,
    rows: DataFrame,
    target: Column,
    options: Mapping[str, str],
    *,
    rate: int | None = None,
    topics: Collection[str],
    expected: int = 0,
) -> Sent:
    """Send rows to the topics that `target` names, at most `rate` a second; `topics` are all that it may name.

    `options` are those of the format, for the cluster that gets them; `expected` is how many there may be, 0 for unknown.
    """
    import pyspark.sql.functions as fn
    from pyspark.sql import Observation

    tasks, rate_of_task = shares(rate, steps.spark.sparkContext.defaultParallelism)
    ordered = rows.repartition(tasks, "topic", "brokerName", "queueId").sortWithinPartitions(
        "storeTimestamp", "brokerName", "queueId", "queueOffset"
    )
    told = Observation()
    messages = (
        ordered.withColumn("topic", target)
        .select("topic", "body", "keys", "tags", *_properties())
        .observe(told, fn.count(fn.lit(1)).alias("messages"), fn.sum(fn.length("body")).alias("bytes"))
    )
    limits = {} if rate_of_task is None else {"maxMessagesPerSecond": str(rate_of_task)}

    def write() -> Sent:
        messages.write.format(FORMAT).options(**options, **limits).mode("append").save()
        return Sent(told.get["messages"], told.get["bytes"] or 0)

    names = ", ".join(sorted(topics))
    return steps.do(
        f"sending to {names}", write, lambda sent: f"{sent.messages} messages, {sent.body_bytes} bytes", _growth(options, topics, expected)
    )


def shares(rate: int | None, parallelism: int) -> tuple[int, int | None]:
    """How many tasks send, and how many messages a second each may; all together never more than the rate."""
    if rate is None:
        return max(1, parallelism), None
    tasks = max(1, min(parallelism, -(-rate // _RATE_OF_TASK_MAX)))
    return tasks, rate // tasks


def _properties() -> tuple[Column, Column]:
    import pyspark.sql.functions as fn

    column = fn.col("properties")
    own = application_properties(column, properties.SHARDING_KEY)
    return own.alias("properties"), fn.element_at(column, properties.SHARDING_KEY).alias("shardingKey")


def _growth(options: Mapping[str, str], topics: Collection[str], expected: int) -> Measure:
    """By how much the topics have grown: tasks say nothing before they end, and others rarely write there at the same time."""
    parsed = SourceOptions.of({**options, "subscribe": ",".join(topics)})

    def end() -> int:
        cluster = cluster_of(parsed)
        return sum(ends.end for ends in cluster.ends(cluster.topology(parsed.choice, is_sure=False).queues).values())

    begin = end()

    def measure() -> tuple[int, int]:
        grown = end() - begin
        return (min(grown, expected) if expected else grown), expected

    return measure
