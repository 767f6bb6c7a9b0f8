"""Tests streaming reads: every message is read once, whatever the limits, the start position and
the restarts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.blocking.consumers import PullConsumer
from orbitmq.testing import LocalCluster
from support.spark.messages import (
    PATIENCE_S,
    Collected,
    expected,
    group_offsets,
    messages_in,
    read_stream,
    sent,
    spark_until,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def topic(mq: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Create a topic for the test."""
    name = request.node.name[:100]
    mq.create_topic(name, 3)
    return str(name)


@pytest.fixture
def collected(spark: SparkSession, tmp_path: Path) -> Collected:
    return Collected(spark, tmp_path)


def batch_sizes(query: StreamingQuery) -> list[int]:
    return [
        progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]
    ]


def test_what_is_there_is_read_and_the_query_ends(
    spark: SparkSession, mq: LocalCluster, topic: str, collected: Collected
) -> None:
    sent(mq.name_server, topic, 500)
    collected.run(read_stream(spark, mq.name_server, subscribe=topic, startingOffsets="earliest"))
    assert collected.rows() == expected(mq.name_server, topic)


def test_a_limit_makes_many_batches_of_the_same_rows(
    spark: SparkSession, mq: LocalCluster, topic: str, collected: Collected
) -> None:
    sent(mq.name_server, topic, 300)
    query = collected.run(
        read_stream(
            spark,
            mq.name_server,
            subscribe=topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=70,
        )
    )
    assert batch_sizes(query) == [70, 70, 70, 70, 20]
    assert collected.rows() == expected(mq.name_server, topic)


@pytest.mark.short
def test_a_query_goes_on_where_it_was_and_reads_nothing_twice(
    spark: SparkSession, mq: LocalCluster, topic: str, collected: Collected
) -> None:
    frame = read_stream(spark, mq.name_server, subscribe=topic, startingOffsets="earliest")
    for round_number in range(3):
        sent(mq.name_server, topic, 40, first=40 * round_number)
        collected.run(frame)
        assert collected.rows() == expected(mq.name_server, topic)


def test_messages_come_while_the_query_runs(
    spark: SparkSession, mq: LocalCluster, topic: str, collected: Collected
) -> None:
    query = collected.start(
        read_stream(spark, mq.name_server, subscribe=topic, startingOffsets="earliest")
    )
    try:
        for number in range(4):
            sent(mq.name_server, topic, 5, first=5 * number)
            spark_until(lambda count=5 * (number + 1): len(collected.rows()) == count, query)  # type: ignore[misc]
        assert query.lastProgress is not None
        assert json.loads(query.lastProgress["sources"][0]["latestOffset"]) == {
            topic: {"broker-a": {"0": 7, "1": 7, "2": 6}}
        }
    finally:
        query.stop()
    assert collected.rows() == expected(mq.name_server, topic)


def test_a_small_batch_waits_for_more_or_until_its_time_is_over(
    spark: SparkSession, mq: LocalCluster, topic: str, collected: Collected
) -> None:
    sent(mq.name_server, topic, 10)
    frame = read_stream(
        spark,
        mq.name_server,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger=30,
        maxTriggerDelay="1h",
    )
    query = collected.start(frame)
    try:
        spark_until(lambda: query.status["message"] == "Waiting for data to arrive", query)
        assert collected.rows() == []
        sent(mq.name_server, topic, 20, first=10)
        spark_until(
            lambda: len(collected.rows()) == 30 and bool(batch_sizes(query)), query
        )  # Spark reports it at the end
        assert batch_sizes(query) == [30]
    finally:
        query.stop()
    sent(mq.name_server, topic, 1, first=30)
    options: dict[str, Any] = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "minOffsetsPerTrigger": 30,
    }
    query = collected.start(read_stream(spark, mq.name_server, maxTriggerDelay="1s", **options))
    try:
        spark_until(lambda: len(collected.rows()) == 31, query)
    finally:
        query.stop()


def test_a_query_that_ends_by_itself_waits_for_no_minimum(
    spark: SparkSession, mq: LocalCluster, topic: str, collected: Collected
) -> None:
    sent(mq.name_server, topic, 10)
    collected.run(
        read_stream(
            spark,
            mq.name_server,
            subscribe=topic,
            startingOffsets="earliest",
            minOffsetsPerTrigger=1_000,
        )
    )
    assert len(collected.rows()) == 10


def test_latest_begins_at_the_end_and_the_group_keeps_that_for_a_query_that_failed_before_its_first_batch(
    spark: SparkSession, mq: LocalCluster, topic: str, tmp_path: Path
) -> None:
    sent(mq.name_server, topic, 30)
    frame = read_stream(
        spark, mq.name_server, subscribe=topic, consumerGroup="pinned", startingOffsets="latest"
    )
    first = Collected(spark, tmp_path / "first")
    first.run(frame)
    assert first.rows() == []
    sent(mq.name_server, topic, 9, first=30)
    second = Collected(
        spark, tmp_path / "second"
    )  # an empty checkpoint, as after a crash in batch 0
    second.run(frame)
    assert sorted(int(row["body"]) for row in second.rows()) == list(range(30, 39))


def test_a_stream_may_begin_at_a_time_or_at_offsets(
    spark: SparkSession, mq: LocalCluster, topic: str, tmp_path: Path
) -> None:
    sent(mq.name_server, topic, 60)
    rows = expected(mq.name_server, topic)
    moment = sorted(message.stored_at_ms for message in messages_in(mq.name_server, topic))[30]
    by_time = Collected(spark, tmp_path / "time")
    by_time.run(read_stream(spark, mq.name_server, subscribe=topic, startingTimestamp=moment))
    times = {
        id(row): message.stored_at_ms
        for row, message in zip(rows, messages_in(mq.name_server, topic), strict=True)
    }
    assert by_time.rows() == [row for row in rows if times[id(row)] >= moment]
    by_offset = Collected(spark, tmp_path / "offset")
    start = json.dumps({topic: {"broker-a": {"0": 19, "2": -2}}})
    by_offset.run(read_stream(spark, mq.name_server, subscribe=topic, startingOffsets=start))
    assert by_offset.rows() == [
        row for row in rows if row["queueId"] != 0 or row["queueOffset"] >= 19
    ]


def test_the_group_is_told_how_far_the_query_is_to_the_last_batch(
    spark: SparkSession, mq: LocalCluster, topic: str, collected: Collected
) -> None:
    sent(mq.name_server, topic, 25)
    options: dict[str, Any] = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "consumerGroup": "followed",
        "maxOffsetsPerTrigger": 10,
    }
    collected.run(read_stream(spark, mq.name_server, **options))
    with PullConsumer(mq.name_server, "followed") as consumer:
        queues = consumer.queues(topic)
        ends = {queue: consumer.max_offset(queue) for queue in queues}
    assert sum(ends.values()) == 25
    spark_until(lambda: group_offsets(mq.name_server, "followed", queues) == ends)


def test_only_the_columns_of_a_schema_are_read(
    spark: SparkSession, mq: LocalCluster, topic: str, tmp_path: Path
) -> None:
    sent(mq.name_server, topic, 12)
    frame = read_stream(
        spark,
        mq.name_server,
        subscribe=topic,
        startingOffsets="earliest",
        schema="keys string, queueOffset bigint",
    )
    query = (
        frame.writeStream.format("memory")
        .queryName("narrow")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
    )
    assert query.start().awaitTermination(PATIENCE_S)
    found = spark.sql("select * from narrow").collect()
    assert sorted(tuple(row) for row in found) == sorted(
        (row["keys"], row["queueOffset"]) for row in expected(mq.name_server, topic)
    )


def test_tags_of_a_stream_are_chosen_too(
    spark: SparkSession, mq: LocalCluster, topic: str, collected: Collected
) -> None:
    sent(mq.name_server, topic, 30, tags="wanted")
    sent(mq.name_server, topic, 30, first=30, tags="other")
    collected.run(
        read_stream(
            spark,
            mq.name_server,
            subscribe=topic,
            startingOffsets="earliest",
            tags="wanted",
            maxOffsetsPerTrigger=11,
        )
    )
    assert sorted(int(row["body"]) for row in collected.rows()) == list(range(30))
