"""Where a stream is, and what it makes of a cluster that changes under it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from orbitmq.spark import stream_reader
from orbitmq.spark.cluster import Topology
from orbitmq.spark.failures import DataLost
from orbitmq.spark.offsets import Ends, QueueKey, from_json, to_json
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


def latest(stream: StreamReader, start: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
    found: Any = stream.latestOffset(dict(to_json(start)), ReadAllAvailable())
    return from_json(found)


def test_a_queue_that_is_added_before_the_first_batch_is_read_from_its_first_message(cluster: Cluster) -> None:
    latest_only = {"startingOffsets": "latest", "consumerGroup": "g"}
    assert from_json(reader(**latest_only).initialOffset()) == {A0: 5, A1: 3}
    new = QueueKey("a", "broker-a", 2)
    cluster.queues |= {A0: Ends(0, 6), new: Ends(0, 4)}
    assert from_json(reader(**latest_only).initialOffset()) == {A0: 5, A1: 3, new: 0}
    assert cluster.group == {A0: 5, A1: 3, new: 0}


def test_a_topic_that_is_deleted_under_a_query_is_told_as_that(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = reader()
    at = latest(stream, {A0: 0, A1: 0})
    assert at == {A0: 5, A1: 3}
    cluster.left = {A0: Ends(0, 0), A1: Ends(0, 0)}
    del cluster.queues[A0], cluster.queues[A1]
    assert latest(stream, at) == at
    monkeypatch.setattr(stream_reader, "_GONE_S", 0.0)
    with pytest.raises(DataLost, match="messages from 5 on of queue a/broker-a/0 are lost: the queue does not exist any more"):
        latest(stream, at)


def test_a_queue_that_is_shorter_than_it_was_is_told_or_followed(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.queues[A0] = Ends(0, 2)
    with pytest.raises(DataLost, match="messages 2 to 4 of queue a/broker-a/0 are lost: the queue ends at 2 now"):
        latest(reader(), {A0: 5, A1: 3})
    with caplog.at_level(logging.WARNING):
        assert latest(reader(failOnDataLoss="false"), {A0: 5, A1: 3}) == {A0: 2, A1: 3}
    assert caplog.messages[0].startswith("data_lost queue=a/broker-a/0 begin=2 end=5")


def test_a_topic_that_is_not_subscribed_any_more_waits_where_it_is(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    at = latest(reader("a,b"), {A0: 5, A1: 3, B0: 4})
    cluster.queues |= {A0: Ends(0, 9), B0: Ends(0, 8)}
    for more in ({}, {"failOnDataLoss": "false"}):
        stream = reader("b", **more)
        with caplog.at_level(logging.WARNING):
            assert latest(stream, at) == latest(stream, at) == {A0: 5, A1: 3, B0: 8}
        assert caplog.messages == [
            f"queue_set_aside queue={queue} offset={at[queue]} why='it is not subscribed any more'" for queue in (A0, A1)
        ]
        caplog.clear()
    assert latest(reader("a,b"), {**at, B0: 8}) == {A0: 9, A1: 3, B0: 8}


def test_a_pattern_and_queues_that_are_listed_say_what_is_chosen() -> None:
    assert [queue in TopicChoice(pattern="b.*") for queue in (A0, B0)] == [False, True]
    assert [queue in TopicChoice(queues=frozenset({A0})) for queue in (A0, A1)] == [True, False]
