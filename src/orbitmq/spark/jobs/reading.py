"""What a job reads of topics: which messages, fixed before Spark starts, so that every pass over them sees the same.

Whatever is wrong with the cluster, the topics or the options is told here, by an error of ours, and not by a worker of Spark's later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.common.errors import NotFound
from orbitmq.spark.cluster import Cluster, Topology, cluster_of
from orbitmq.spark.offsets import Offsets, backlog, to_json
from orbitmq.spark.options import Edge, SourceOptions
from orbitmq.spark.places import inside, resolve
from orbitmq.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "rocketmq"
_STARTS = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
_ENDS = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Messages between two offsets of each queue of some topics; `options` are those of the format, both ends among them."""

    options: Mapping[str, str]
    start: Offsets
    end: Offsets

    @property
    def count(self) -> int:
        """How many messages there are between the ends; fewer are read when options choose among them."""
        return backlog(self.start, self.end)

    def rows(self, spark: SparkSession, columns: Iterable[str] = tuple(COLUMNS)) -> DataFrame:
        """The messages, with these columns of them."""
        schema = ", ".join(f"{name} {COLUMNS[name].spark}" for name in columns)
        return spark.read.format(FORMAT).options(**self.options).schema(schema).load()


def topic_options(
    name_servers: str, topics: Iterable[str], more: Mapping[str, str], *, since_ms: int | None = None, until_ms: int | None = None
) -> dict[str, str]:
    """The options of a read of topics; `more` are further ones, as the user gave them."""
    options = {"nameServer": name_servers, "subscribe": ",".join(topics), **more}
    if since_ms is not None:
        options["startingTimestamp"] = str(since_ms)
    if until_ms is not None:
        options["endingTimestamp"] = str(until_ms)
    return options


def fixed(options: Mapping[str, str]) -> Reading:
    """What options mean now; NotFound or another error of ours when they mean nothing."""
    parsed = SourceOptions.of(options)
    parsed.check_batch()
    cluster = cluster_of(parsed)
    start, end = _bounds(parsed, cluster)
    others = {name: text for name, text in options.items() if name.lower() not in (*_STARTS, *_ENDS)}
    both = {"startingOffsets": json.dumps(to_json(start)), "endingOffsets": json.dumps(to_json(end))}
    return Reading(options={**others, **both}, start=start, end=end)


def check(options: Mapping[str, str]) -> None:
    """See that there is what options mean, for a job that reads as a stream."""
    parsed = SourceOptions.of(options)
    _topology(parsed, cluster_of(parsed))


def _topology(options: SourceOptions, cluster: Cluster) -> Topology:
    topology = cluster.topology(options.choice)
    topology.check_whole()
    for topic in options.choice.topics:
        if not any(queue.topic == topic for queue in topology.queues):
            raise NotFound(f"topic {topic} has no queue that may be read; allow it with: orbitmq topic update {topic} --permission rw")
    return topology


def _bounds(options: SourceOptions, cluster: Cluster) -> tuple[Offsets, Offsets]:
    topology = _topology(options, cluster)
    ends = cluster.ends(topology.queues)
    start = inside(resolve(options.start or Edge.EARLIEST, ends, cluster, otherwise=Edge.EARLIEST), ends)
    end = inside(resolve(options.end or Edge.LATEST, ends, cluster, otherwise=Edge.LATEST), ends)
    return start, {queue: max(offset, start[queue]) for queue, offset in end.items()}
