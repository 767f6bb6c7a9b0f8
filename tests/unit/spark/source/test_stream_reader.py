"""Tests the offsets of a stream while the cluster changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from orbitmq.spark.cluster import Topology
from orbitmq.spark.failures import DataLossError
from orbitmq.spark.offsets import QueueBounds, QueueName, from_json, to_json
from orbitmq.spark.options import QueueSelection, SourceOptions
from orbitmq.spark.source import stream_reader
from orbitmq.spark.source.stream_reader import StreamReader

A0, A1, B0 = (
    QueueName("a", "broker-a", 0),
    QueueName("a", "broker-a", 1),
    QueueName("b", "broker-a", 0),
)


class Cluster:
    """A fake cluster: the queues of one broker, and the offsets of a group."""

    def __init__(self, bounds: Mapping[QueueName, QueueBounds]) -> None:
        self.queues: dict[QueueName, QueueBounds] = dict(bounds)
        self.left: dict[QueueName, QueueBounds] = {}  # replies for deleted topics
        self.group: dict[QueueName, int] = {}

    def topology(self, selection: QueueSelection, *, must_exist: bool = True) -> Topology:
        return Topology(
            frozenset(queue for queue in self.queues if queue.topic in selection.topics),
            frozenset(),
            frozenset({"broker-a"}),
        )

    def bounds(self, queues: Iterable[QueueName]) -> dict[QueueName, QueueBounds]:
        return {queue: self.queues[queue] for queue in queues}

    def latest_of_reachable(self, queues: Iterable[QueueName]) -> dict[QueueName, int]:
        return {queue: (self.left | self.queues)[queue].end for queue in queues}

    def committed(self, queues: Iterable[QueueName]) -> dict[QueueName, int | None]:
        return {queue: self.group.get(queue) for queue in queues}

    def commit(self, offsets: Mapping[QueueName, int]) -> None:
        self.group |= offsets

    commit_soon = commit

    def has_master(self, queue: QueueName) -> bool:
        return True

    def join(self) -> None: ...


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster({A0: QueueBounds(0, 5), A1: QueueBounds(0, 3), B0: QueueBounds(0, 7)})
    monkeypatch.setattr(stream_reader, "cluster_client", lambda _: found)
    monkeypatch.setattr(stream_reader, "projection", lambda _: ())
    return found


def reader(topics: str = "a", **more: str) -> StreamReader:
    options = {
        "nameServer": "127.0.0.1:1",
        "subscribe": topics,
        "startingOffsets": "earliest",
        **more,
    }
    return StreamReader(SourceOptions.of(options), StructType())


def latest(stream: StreamReader, start: Mapping[QueueName, int]) -> dict[QueueName, int]:
    found: Any = stream.latestOffset(dict(to_json(start)), ReadAllAvailable())
    return from_json(found)


def test_a_queue_that_is_added_before_the_first_batch_is_read_from_its_first_message(
    cluster: Cluster,
) -> None:
    latest_only = {"startingOffsets": "latest", "consumerGroup": "g"}
    assert from_json(reader(**latest_only).initialOffset()) == {A0: 5, A1: 3}
    new = QueueName("a", "broker-a", 2)
    cluster.queues |= {A0: QueueBounds(0, 6), new: QueueBounds(0, 4)}
    assert from_json(reader(**latest_only).initialOffset()) == {A0: 5, A1: 3, new: 0}
    assert cluster.group == {A0: 5, A1: 3, new: 0}


def test_a_topic_that_is_deleted_under_a_query_is_told_as_that(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = reader()
    at = latest(stream, {A0: 0, A1: 0})
    assert at == {A0: 5, A1: 3}
    cluster.left = {A0: QueueBounds(0, 0), A1: QueueBounds(0, 0)}
    del cluster.queues[A0], cluster.queues[A1]
    assert latest(stream, at) == at
    monkeypatch.setattr(stream_reader, "_GONE_S", 0.0)
    with pytest.raises(
        DataLossError,
        match=("messages from 5 on of queue a/broker-a/0 are lost: the queue no longer exists"),
    ):
        latest(stream, at)


def test_a_queue_that_is_shorter_than_it_was_is_told_or_followed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.queues[A0] = QueueBounds(0, 2)
    with pytest.raises(
        DataLossError,
        match="messages 2 to 4 of queue a/broker-a/0 are lost: the queue now ends at 2",
    ):
        latest(reader(), {A0: 5, A1: 3})
    with caplog.at_level(logging.WARNING):
        assert latest(reader(failOnDataLoss="false"), {A0: 5, A1: 3}) == {A0: 2, A1: 3}
    assert caplog.messages[0].startswith("data_lost queue=a/broker-a/0 begin=2 end=5")


def test_a_topic_that_is_not_subscribed_any_more_waits_where_it_is(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    at = latest(reader("a,b"), {A0: 5, A1: 3, B0: 4})
    cluster.queues |= {A0: QueueBounds(0, 9), B0: QueueBounds(0, 8)}
    for more in ({}, {"failOnDataLoss": "false"}):
        stream = reader("b", **more)
        with caplog.at_level(logging.WARNING):
            assert latest(stream, at) == latest(stream, at) == {A0: 5, A1: 3, B0: 8}
        assert caplog.messages == [
            f"queue_set_aside queue={queue} offset={at[queue]} why='it is no longer subscribed'"
            for queue in (A0, A1)
        ]
        caplog.clear()
    assert latest(reader("a,b"), {**at, B0: 8}) == {A0: 9, A1: 3, B0: 8}


def test_a_pattern_and_queues_that_are_listed_say_what_is_chosen() -> None:
    assert [queue in QueueSelection(pattern="b.*") for queue in (A0, B0)] == [False, True]
    assert [queue in QueueSelection(queues=frozenset({A0})) for queue in (A0, A1)] == [True, False]
