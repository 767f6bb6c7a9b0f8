"""Fixes which messages of topics a job reads before Spark starts, so that every pass sees the same.

Problems with the cluster, the topics or the options are raised here as OrbitMQ errors, not later by
a Spark worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.common.errors import NotFoundError
from orbitmq.spark.cluster import ClusterClient, Topology, cluster_client
from orbitmq.spark.offsets import Offsets, backlog, to_json
from orbitmq.spark.options import EdgePosition, SourceOptions
from orbitmq.spark.schema import COLUMNS
from orbitmq.spark.source.positions import clamp, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "rocketmq"
_STARTS = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
_ENDS = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """Messages between two offsets of each queue; `options` are those of the format, with both
    ends.
    """

    options: Mapping[str, str]
    start: Offsets
    end: Offsets

    @property
    def count(self) -> int:
        """The number of messages between the offsets; fewer are read if options filter them."""
        return backlog(self.start, self.end)

    def rows(self, spark: SparkSession, columns: Iterable[str] = tuple(COLUMNS)) -> DataFrame:
        """Return the messages with the given columns."""
        schema = ", ".join(f"{name} {COLUMNS[name].spark}" for name in columns)
        return spark.read.format(FORMAT).options(**self.options).schema(schema).load()


def topic_options(
    name_servers: str,
    topics: Iterable[str],
    more: Mapping[str, str],
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> dict[str, str]:
    """Return the options of a read of topics; `more` are further options of the user."""
    options = {"nameServer": name_servers, "subscribe": ",".join(topics), **more}
    if since_ms is not None:
        options["startingTimestamp"] = str(since_ms)
    if until_ms is not None:
        options["endingTimestamp"] = str(until_ms)
    return options


def take_snapshot(options: Mapping[str, str]) -> TopicSnapshot:
    """Resolve options to the messages that exist now; raises NotFoundError or another OrbitMQ error
    if that fails.
    """
    parsed = SourceOptions.of(options)
    parsed.check_batch()
    cluster = cluster_client(parsed)
    start, end = _resolve_range(parsed, cluster)
    others = {
        name: text for name, text in options.items() if name.lower() not in (*_STARTS, *_ENDS)
    }
    both = {
        "startingOffsets": json.dumps(to_json(start)),
        "endingOffsets": json.dumps(to_json(end)),
    }
    return TopicSnapshot(options={**others, **both}, start=start, end=end)


def check_topics(options: Mapping[str, str]) -> None:
    """Check that the selected topics exist, for a job that reads them as a stream."""
    parsed = SourceOptions.of(options)
    _topology(parsed, cluster_client(parsed))


def _topology(options: SourceOptions, cluster: ClusterClient) -> Topology:
    topology = cluster.topology(options.selection)
    topology.check_complete()
    for topic in options.selection.topics:
        if not any(queue.topic == topic for queue in topology.queues):
            raise NotFoundError(
                f"topic {topic} has no readable queue; allow reads with: orbitmq topic update"
                f" {topic} --permission rw"
            )
    return topology


def _resolve_range(options: SourceOptions, cluster: ClusterClient) -> tuple[Offsets, Offsets]:
    topology = _topology(options, cluster)
    bounds = cluster.bounds(topology.queues)
    start = clamp(
        resolve(
            options.start or EdgePosition.EARLIEST, bounds, cluster, otherwise=EdgePosition.EARLIEST
        ),
        bounds,
    )
    end = clamp(
        resolve(options.end or EdgePosition.LATEST, bounds, cluster, otherwise=EdgePosition.LATEST),
        bounds,
    )
    return start, {queue: max(offset, start[queue]) for queue, offset in end.items()}
