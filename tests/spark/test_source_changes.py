"""Tests queries while the cluster changes: queues and brokers come, restart and go, messages are
deleted, topics are recreated.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.admin import Admin
from orbitmq.blocking.consumers import PullConsumer
from orbitmq.client.messages import Message
from orbitmq.testing import LocalCluster
from support.spark.messages import (
    Collected,
    expected,
    first_line,
    read,
    read_stream,
    rows_of,
    sent,
    spark_until,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_S = 3600
SMALL_FILES = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "fileReservedTime": "2",
}


@pytest.fixture
def collected(spark: SparkSession, tmp_path: Path) -> Collected:
    return Collected(spark, tmp_path)


def administer(mq: LocalCluster, work: Callable[[Admin], Awaitable[Any]]) -> None:
    async def run() -> None:
        async with Admin(mq.name_server) as admin:
            await work(admin)

    asyncio.run(run())


def test_a_queue_that_is_added_is_read_from_its_first_message(
    spark: SparkSession, collected: Collected
) -> None:
    with LocalCluster(topics={"growing": 1}) as mq:
        sent(mq.name_server, "growing", 5)
        query = collected.start(
            read_stream(spark, mq.name_server, subscribe="growing", startingOffsets="earliest")
        )
        try:
            spark_until(lambda: len(collected.rows()) == 5, query)
            administer(
                mq,
                lambda admin: admin.topics.update(
                    "growing", lambda config: config._replace(read_queue_nums=3, write_queue_nums=3)
                ),
            )
            sent(mq.name_server, "growing", 30, first=5)
            spark_until(lambda: len(collected.rows()) == 35, query)
        finally:
            query.stop()
        assert collected.rows() == expected(mq.name_server, "growing")
        assert {row["queueId"] for row in collected.rows()} == {0, 1, 2}


def test_a_broker_that_is_added_is_read_from_its_first_message(
    spark: SparkSession, collected: Collected
) -> None:
    with LocalCluster(brokers=2) as mq:
        mq.stop_broker("broker-b")
        mq.create_topic("growing", 2)
        sent(mq.name_server, "growing", 5)
        query = collected.start(
            read_stream(
                spark, mq.name_server, subscribePattern="grow.*", startingOffsets="earliest"
            )
        )
        try:
            spark_until(lambda: len(collected.rows()) == 5, query)
            mq.restart("broker-b")
            mq.create_topic("growing", 2)
            mq.create_topic("growing-too", 1)
            sent(mq.name_server, "growing", 20, first=5)
            sent(mq.name_server, "growing-too", 3)
            spark_until(lambda: len(collected.rows()) == 28, query)
        finally:
            query.stop()
        assert collected.rows() == expected(mq.name_server, "growing", "growing-too")


def test_what_was_added_between_two_runs_is_read_by_a_run_that_ends_by_itself(
    spark: SparkSession, collected: Collected
) -> None:
    with LocalCluster(topics={"growing": 1}) as mq:
        frame = read_stream(
            spark,
            mq.name_server,
            subscribe="growing",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=7,
        )
        sent(mq.name_server, "growing", 5)
        collected.run(frame)
        administer(
            mq,
            lambda admin: admin.topics.update(
                "growing", lambda config: config._replace(read_queue_nums=2, write_queue_nums=2)
            ),
        )
        sent(mq.name_server, "growing", 20, first=5)
        collected.run(frame)
        assert collected.rows() == expected(mq.name_server, "growing")


def test_a_broker_restarts_and_the_query_goes_on(spark: SparkSession, collected: Collected) -> None:
    with LocalCluster(topics={"lasting": 2}) as mq:
        sent(mq.name_server, "lasting", 10)
        options = {
            "subscribe": "lasting",
            "startingOffsets": "earliest",
            "consumerGroup": "lasting",
        }
        query = collected.start(read_stream(spark, mq.name_server, **options))
        try:
            spark_until(lambda: len(collected.rows()) == 10, query)
            mq.stop_broker()
            spark_until(lambda: query.status["message"] == "Waiting for data to arrive", query)
            mq.restart()
            sent(mq.name_server, "lasting", 10, first=10)
            spark_until(lambda: len(collected.rows()) == 20, query)
        finally:
            query.stop()
        assert collected.rows() == expected(mq.name_server, "lasting")


def test_one_broker_of_two_is_away_and_the_other_is_read_meanwhile(
    spark: SparkSession, collected: Collected
) -> None:
    with LocalCluster(brokers=2, topics={"halved": 1}) as mq:
        sent(mq.name_server, "halved", 10)
        query = collected.start(
            read_stream(spark, mq.name_server, subscribe="halved", startingOffsets="earliest")
        )
        try:
            spark_until(lambda: len(collected.rows()) == 10, query)
            mq.stop_broker("broker-b")
            sent(mq.name_server, "halved", 6, first=10)  # all to the remaining broker
            spark_until(lambda: len(collected.rows()) == 16, query)
            mq.restart("broker-b")
            sent(mq.name_server, "halved", 6, first=16)
            spark_until(lambda: len(collected.rows()) == 22, query)
        finally:
            query.stop()
        assert collected.rows() == expected(mq.name_server, "halved")


# -- lost messages


def fill(mq: LocalCluster, first: int, count: int = 300) -> None:
    from orbitmq.blocking.producers import Producer

    with Producer(mq.name_server) as producer:
        queue = producer.queues("old")[0]
        for number in range(first, first + count):
            producer.send(Message("old", f"{number} ".encode() * 60), queue=queue)


def let_old_files_go(mq: LocalCluster) -> int:
    """Expire old messages and return the first remaining offset."""
    mq.advance(HOUR_S)
    fill(mq, 9_000, 1)
    mq.advance(30 * HOUR_S)

    def first() -> int:
        with PullConsumer(mq.name_server, "TOOLS_CONSUMER") as consumer:
            return consumer.min_offset(consumer.queues("old")[0])

    spark_until(lambda: first() > 0)
    return first()


def test_deleted_messages_fail_a_batch_or_are_left_out_as_the_user_wants(
    spark: SparkSession,
) -> None:
    with LocalCluster(virtual_clock=True, broker=SMALL_FILES, topics={"old": 1}) as mq:
        fill(mq, 0)
        first = let_old_files_go(mq)
        start = json.dumps({"old": {"broker-a": {"0": 0}}})
        options = {"subscribe": "old", "startingOffsets": start}
        with pytest.raises(Exception, match="are lost") as refused:
            read(spark, mq.name_server, **options).count()
        assert first_line(refused.value).endswith(
            f"DataLossError: messages 0 to {first - 1} of queue old/broker-a/0 are lost: the"
            f" broker has deleted messages before {first}; set failOnDataLoss=false to continue"
            f" without them"
        )
        left = rows_of(read(spark, mq.name_server, failOnDataLoss="false", **options))
        assert left == expected(mq.name_server, "old")
        assert left[0]["queueOffset"] == first
        assert rows_of(read(spark, mq.name_server, subscribe="old")) == left


def test_deleted_messages_fail_a_stream_or_are_left_out_as_the_user_wants(
    spark: SparkSession, collected: Collected
) -> None:
    with LocalCluster(virtual_clock=True, broker=SMALL_FILES, topics={"old": 1}) as mq:
        fill(mq, 0, 20)
        options = {"subscribe": "old", "startingOffsets": "earliest"}
        collected.run(read_stream(spark, mq.name_server, **options))
        assert len(collected.rows()) == 20
        fill(mq, 20)
        first = let_old_files_go(mq)
        with pytest.raises(
            Exception, match=f"messages 20 to {first - 1} of queue old/broker-a/0 are lost"
        ):
            collected.run(read_stream(spark, mq.name_server, **options))
        collected.run(read_stream(spark, mq.name_server, failOnDataLoss="false", **options))
        assert collected.rows()[20:] == expected(mq.name_server, "old")


def test_a_topic_that_was_made_anew_fails_a_stream_or_is_followed_as_the_user_wants(
    spark: SparkSession, collected: Collected
) -> None:
    with LocalCluster(topics={"anew": 1}) as mq:
        sent(mq.name_server, "anew", 20)
        options = {"subscribe": "anew", "startingOffsets": "earliest"}
        collected.run(read_stream(spark, mq.name_server, **options))
        administer(mq, lambda admin: admin.topics.delete("anew"))
        with pytest.raises(
            Exception,
            match=(
                "messages from 20 on of queue anew/broker-a/0 are lost: the queue no longer exists"
            ),
        ):
            collected.run(read_stream(spark, mq.name_server, **options))
        mq.create_topic("anew", 1)
        sent(mq.name_server, "anew", 3, first=100)
        with pytest.raises(
            Exception,
            match="messages 3 to 19 of queue anew/broker-a/0 are lost: the queue now ends at 3",
        ):
            collected.run(read_stream(spark, mq.name_server, **options))
        lenient = read_stream(spark, mq.name_server, failOnDataLoss="false", **options)
        collected.run(lenient)
        sent(mq.name_server, "anew", 4, first=103)
        collected.run(lenient)
        assert sorted(int(row["body"]) for row in collected.rows()) == [
            *range(20),
            *range(103, 107),
        ]


def test_a_topic_that_is_deleted_under_a_query_ends_it_or_is_left_out_as_the_user_wants(
    spark: SparkSession, tmp_path: Path
) -> None:
    strict, lenient = Collected(spark, tmp_path / "strict"), Collected(spark, tmp_path / "lenient")
    with LocalCluster(topics={"doomed": 1, "lasting": 1}) as mq:
        for topic in ("doomed", "lasting"):
            sent(mq.name_server, topic, 5)
        options = {"subscribe": "doomed,lasting", "startingOffsets": "earliest"}
        ends = strict.start(read_stream(spark, mq.name_server, **options))
        goes_on = lenient.start(
            read_stream(spark, mq.name_server, failOnDataLoss="false", **options)
        )
        try:
            spark_until(lambda: len(strict.rows()) == len(lenient.rows()) == 10)
            administer(mq, lambda admin: admin.topics.delete("doomed"))
            sent(mq.name_server, "lasting", 5, first=5)
            spark_until(lambda: not ends.isActive)
            assert (
                "messages from 5 on of queue doomed/broker-a/0 are lost: the queue no longer"
                " exists" in str(ends.exception())
            )
            spark_until(lambda: len(lenient.rows()) == 15, goes_on)
        finally:
            ends.stop()
            goes_on.stop()
        assert [row for row in lenient.rows() if row["topic"] == "lasting"] == expected(
            mq.name_server, "lasting"
        )
