"""Where a stream is, and what it makes of a cluster that changes under it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from pyspark.sql.types import StructType

from orbitmq.spark import stream_reader
from orbitmq.spark.cluster import Topology
from orbitmq.spark.offsets import Ends, QueueKey, from_json
from orbitmq.spark.options import SourceOptions, TopicChoice
from orbitmq.spark.stream_reader import StreamReader

A0, A1, B0 = QueueKey("a", "broker-a", 0), QueueKey("a", "broker-a", 1), QueueKey("b", "broker-a", 0)


class Cluster:
    """Queues of one broker, and how far a group is in them."""

    def __init__(self, ends: Mapping[QueueKey, Ends]) -> None:
        self.queues: dict[QueueKey, Ends] = dict(ends)
        self.left: dict[QueueKey, Ends] = {}  # what the broker says of topics that it has not any more
        self.group: dict[QueueKey, int] = {}

    def topology(self, choice: TopicChoice, *, is_sure: bool = True) -> Topology:
        return Topology(frozenset(queue for queue in self.queues if queue.topic in choice.topics), frozenset(), frozenset({"broker-a"}))

    def ends(self, queues: Iterable[QueueKey]) -> dict[QueueKey, Ends]:
        return {queue: self.queues[queue] for queue in queues}

    def latest_of_reachable(self, queues: Iterable[QueueKey]) -> dict[QueueKey, int]:
        return {queue: (self.left | self.queues)[queue].end for queue in queues}

    def committed(self, queues: Iterable[QueueKey]) -> dict[QueueKey, int | None]:
        return {queue: self.group.get(queue) for queue in queues}

    def commit(self, offsets: Mapping[QueueKey, int]) -> None:
        self.group |= offsets

    commit_soon = commit

    def has_master(self, queue: QueueKey) -> bool:
        return True

    def join(self) -> None: ...


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster({A0: Ends(0, 5), A1: Ends(0, 3), B0: Ends(0, 7)})
    monkeypatch.setattr(stream_reader, "cluster_of", lambda _: found)
    monkeypatch.setattr(stream_reader, "projection", lambda _: ())
    return found


def reader(topics: str = "a", **more: str) -> StreamReader:
    options = {"nameServer": "127.0.0.1:1", "subscribe": topics, "startingOffsets": "earliest", **more}
    return StreamReader(SourceOptions.of(options), StructType())


def test_a_queue_that_is_added_before_the_first_batch_is_read_from_its_first_message(cluster: Cluster) -> None:
    latest_only = {"startingOffsets": "latest", "consumerGroup": "g"}
    assert from_json(reader(**latest_only).initialOffset()) == {A0: 5, A1: 3}
    new = QueueKey("a", "broker-a", 2)
    cluster.queues |= {A0: Ends(0, 6), new: Ends(0, 4)}
    assert from_json(reader(**latest_only).initialOffset()) == {A0: 5, A1: 3, new: 0}
    assert cluster.group == {A0: 5, A1: 3, new: 0}
