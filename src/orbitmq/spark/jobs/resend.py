"""Sends rows that were read from topics as messages again, with body, keys, tags, sharding key and
application properties only.

Messages of one queue keep their order: one task sends them, the earliest of all its queues first.
The rate limit applies to all tasks together. At least once: if a task fails, Spark sends its rows
again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.message import properties
from orbitmq.spark.cluster import cluster_client
from orbitmq.spark.jobs.expressions import application_properties
from orbitmq.spark.jobs.runner import JobRunner, ProgressMeasure
from orbitmq.spark.jobs.topic_snapshot import FORMAT
from orbitmq.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NEEDED: Final = (
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "keys",
    "tags",
    "body",
    "properties",
    "storeTimestamp",
)
_RATE_OF_TASK_MAX: Final = 20_000  # messages per second


@dataclass(frozen=True, slots=True)
class ResendTotals:
    """The number of messages sent, and the bytes of their bodies."""

    messages: int
    body_bytes: int


def send(
    runner: JobRunner,
    rows: DataFrame,
    target: Column,
    options: Mapping[str, str],
    *,
    rate: int | None = None,
    topics: Collection[str],
    expected: int = 0,
) -> ResendTotals:
    """Send rows to the topics that `target` names, at most `rate` per second; `topics` are all
    possible targets.

    `options` are those of the format for the target cluster; `expected` is the expected number of
    messages, 0 if unknown.
    """
    import pyspark.sql.functions as fn
    from pyspark.sql import Observation

    tasks, rate_of_task = split_rate(rate, runner.spark.sparkContext.defaultParallelism)
    ordered = rows.repartition(tasks, "topic", "brokerName", "queueId").sortWithinPartitions(
        "storeTimestamp", "brokerName", "queueId", "queueOffset"
    )
    observed = Observation()
    messages = (
        ordered.withColumn("topic", target)
        .select("topic", "body", "keys", "tags", *_properties())
        .observe(
            observed,
            fn.count(fn.lit(1)).alias("messages"),
            fn.sum(fn.length("body")).alias("bytes"),
        )
    )
    limits = {} if rate_of_task is None else {"maxMessagesPerSecond": str(rate_of_task)}

    def write() -> ResendTotals:
        messages.write.format(FORMAT).options(**options, **limits).mode("append").save()
        return ResendTotals(observed.get["messages"], observed.get["bytes"] or 0)

    names = ", ".join(sorted(topics))
    return runner.run_step(
        f"sending to {names}",
        write,
        lambda sent: f"{sent.messages} messages, {sent.body_bytes} bytes",
        _growth(options, topics, expected),
    )


def split_rate(rate: int | None, parallelism: int) -> tuple[int, int | None]:
    """Return the number of sending tasks and the rate of each; together they never exceed
    the rate.
    """
    if rate is None:
        return max(1, parallelism), None
    tasks = max(1, min(parallelism, -(-rate // _RATE_OF_TASK_MAX)))
    return tasks, rate // tasks


def _properties() -> tuple[Column, Column]:
    import pyspark.sql.functions as fn

    column = fn.col("properties")
    own = application_properties(column, properties.SHARDING_KEY)
    return own.alias("properties"), fn.element_at(column, properties.SHARDING_KEY).alias(
        "shardingKey"
    )


def _growth(options: Mapping[str, str], topics: Collection[str], expected: int) -> ProgressMeasure:
    """Return a measure of how much the topics have grown: tasks report nothing before they end, and
    other producers rarely write there at the same time.
    """
    parsed = SourceOptions.of({**options, "subscribe": ",".join(topics)})

    def end() -> int:
        cluster = cluster_client(parsed)
        return sum(
            bounds.end
            for bounds in cluster.bounds(
                cluster.topology(parsed.selection, must_exist=False).queues
            ).values()
        )

    begin = end()

    def measure() -> tuple[int, int]:
        grown = end() - begin
        return (min(grown, expected) if expected else grown), expected

    return measure
