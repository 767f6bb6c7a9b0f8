"""Tests batch reads: all rows with all columns, once, within the positions of the options."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.blocking.producers import Producer
from orbitmq.client.messages import Message
from orbitmq.spark.schema import COLUMNS
from orbitmq.testing import LocalCluster
from support.spark.messages import Rows, expected, group_offsets, messages_in, read, rows_of, sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def orders(mq: LocalCluster) -> str:
    """Create a topic with 1,000 messages in 2 x 3 queues; return the store times in its middle."""
    mq.create_topic("orders", 3)
    sent(mq.name_server, "orders", 1_000)
    return "orders"


@pytest.mark.short
def test_all_columns_of_all_kinds_of_messages_are_those_that_the_client_reads(
    spark: SparkSession, mq: LocalCluster
) -> None:
    mq.create_topic("kinds", 2)
    noise = random.Random(5)
    with Producer(mq.name_server) as producer:
        queues = sorted(producer.queues("kinds"))
        producer.send(Message("kinds", b"plain"), queue=queues[0])
        producer.send(Message("kinds", b"\0", tags="t", keys="a b c", flag=7), queue=queues[0])
        text = "größer 東京 🚀"
        producer.send(
            Message(
                "kinds",
                text.encode(),
                tags=text,
                keys=["é", "ñ"],
                properties={"город": "Київ", "x": text},
            ),
            queue=queues[1],
        )
        producer.send(Message("kinds", b"compressible " * 10_000), queue=queues[1])
        producer.send(Message("kinds", noise.randbytes(4 * 1024 * 1024 - 4096)), queue=queues[2])
        producer.send_batch(
            [
                Message("kinds", f"in batch {number}".encode(), keys=str(number))
                for number in range(40)
            ],
            queue=queues[3],
        )
    found = rows_of(read(spark, mq.name_server, subscribe="kinds"))
    wanted = expected(mq.name_server, "kinds")
    assert len(wanted) == 45
    assert found == wanted
    assert max(len(row["body"]) for row in found) == 4 * 1024 * 1024 - 4096


def test_every_message_of_all_queues_of_all_brokers_comes_once(
    spark: SparkSession, mq: LocalCluster, orders: str
) -> None:
    frame = read(spark, mq.name_server, subscribe=orders)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        (name, each.spark) for name, each in COLUMNS.items()
    ]
    assert rows_of(frame) == expected(mq.name_server, orders)
    assert {row["brokerName"] for row in rows_of(frame)} == {"broker-a", "broker-b"}


def test_a_schema_chooses_columns_and_their_order(
    spark: SparkSession, mq: LocalCluster, orders: str
) -> None:
    frame = read(
        spark,
        mq.name_server,
        subscribe=orders,
        schema="queueOffset bigint, body binary, keys string",
    )
    assert frame.columns == ["queueOffset", "body", "keys"]
    wanted = sorted(
        (row["queueOffset"], row["body"], row["keys"]) for row in expected(mq.name_server, orders)
    )
    assert sorted((row[0], bytes(row[1]), row[2]) for row in frame.collect()) == wanted


def test_topics_are_chosen_by_list_by_pattern_or_queue_by_queue(
    spark: SparkSession, mq: LocalCluster, orders: str
) -> None:
    for topic in ("orders-eu", "orders-us", "other"):
        mq.create_topic(topic, 1)
        sent(mq.name_server, topic, 4)

    def topics(**options: Any) -> dict[str, int]:
        return {
            row["topic"]: row["count"]
            for row in read(spark, mq.name_server, **options).groupBy("topic").count().collect()
        }

    assert topics(subscribe="orders-eu, other") == {"orders-eu": 4, "other": 4}
    assert topics(subscribePattern="orders-.*") == {"orders-eu": 4, "orders-us": 4}
    assert topics(subscribePattern="orders") == {"orders": 1_000}
    assert topics(subscribePattern="nobody-.*") == {}
    assert set(topics(subscribePattern=".*")) >= {"orders", "orders-eu", "orders-us", "other"}
    assert not [
        name
        for name in topics(subscribePattern=".*")
        if name.startswith(("%", "rmq_sys", "broker-"))
    ]
    assigned = read(spark, mq.name_server, assign='{"orders":{"broker-a":[0,2]}}')
    wanted = [
        row
        for row in expected(mq.name_server, orders)
        if row["brokerName"] == "broker-a" and row["queueId"] in (0, 2)
    ]
    assert rows_of(assigned) == wanted


def test_offsets_of_both_ends_are_kept_exactly(
    spark: SparkSession, mq: LocalCluster, orders: str
) -> None:
    start = {orders: {"broker-a": {"0": 10, "1": -2}, "broker-b": {"2": 100}}}
    end = {orders: {"broker-a": {"0": 12, "1": 50}, "broker-b": {"0": 0, "2": -1}}}
    frame = read(
        spark,
        mq.name_server,
        subscribe=orders,
        startingOffsets=json.dumps(start),
        endingOffsets=json.dumps(end),
    )
    bounds = {
        ("broker-a", 0): (10, 12),
        ("broker-a", 1): (0, 50),
        ("broker-b", 0): (0, 0),
        ("broker-b", 2): (100, 10**9),
    }
    wanted = [
        row
        for row in expected(mq.name_server, orders)
        for low, high in [bounds.get((row["brokerName"], row["queueId"]), (0, 10**9))]
        if low <= row["queueOffset"] < high
    ]
    assert rows_of(frame) == wanted


def between(rows: Rows, low_ms: int, high_ms: int) -> Rows:
    return [
        row
        for row in rows
        if low_ms <= round(row["storeTimestamp"].replace(tzinfo=UTC).timestamp() * 1000) < high_ms
    ]


def test_times_of_both_ends_are_kept_to_the_millisecond(
    spark: SparkSession, mq: LocalCluster, orders: str
) -> None:
    rows = expected(mq.name_server, orders)
    times = sorted(message.stored_at_ms for message in messages_in(mq.name_server, orders))
    low, high = times[300], times[700]
    frame = read(
        spark, mq.name_server, subscribe=orders, startingTimestamp=low, endingTimestamp=high
    )
    assert rows_of(frame) == between(rows, low, high)
    iso = datetime.fromtimestamp(low / 1000, UTC).isoformat(timespec="milliseconds")
    assert rows_of(read(spark, mq.name_server, subscribe=orders, startingTimestamp=iso)) == between(
        rows, low, 1 << 60
    )
    assert read(spark, mq.name_server, subscribe=orders, endingTimestamp=times[0]).count() == 0
    assert (
        read(spark, mq.name_server, subscribe=orders, startingTimestamp=times[-1] + 1).count() == 0
    )
    assert read(
        spark, mq.name_server, subscribe=orders, startingTimestamp=0, endingTimestamp=1 << 50
    ).count() == len(rows)


def test_each_queue_may_have_its_own_times(
    spark: SparkSession, mq: LocalCluster, orders: str
) -> None:
    rows = [
        row
        for row in expected(mq.name_server, orders)
        if (row["brokerName"], row["queueId"]) == ("broker-b", 1)
    ]
    moment = round(rows[50]["storeTimestamp"].replace(tzinfo=UTC).timestamp() * 1000)
    times = json.dumps({orders: {"broker-b": {"1": moment}}})
    choice = json.dumps({orders: {"broker-b": [1]}})
    assert rows_of(
        read(spark, mq.name_server, assign=choice, startingOffsetsByTimestamp=times)
    ) == between(rows, moment, 1 << 60)
    assert rows_of(
        read(spark, mq.name_server, assign=choice, endingOffsetsByTimestamp=times)
    ) == between(rows, 0, moment)


def test_a_queue_is_split_into_parts_that_have_every_row_once(
    spark: SparkSession, mq: LocalCluster, orders: str
) -> None:
    assert (
        read(spark, mq.name_server, subscribe=orders).rdd.getNumPartitions() == 1
    )  # small queues share a task
    wishes: list[tuple[dict[str, Any], int]] = [
        ({"minPartitions": 16}, 16),
        ({"maxRecordsPerPartition": 60}, 18),
    ]
    for options, parts in wishes:
        frame = read(spark, mq.name_server, subscribe=orders, **options)
        assert frame.rdd.getNumPartitions() >= parts
        assert rows_of(frame) == expected(mq.name_server, orders)


def test_tags_are_chosen_by_the_broker_and_those_of_the_same_code_are_left_out(
    spark: SparkSession, mq: LocalCluster
) -> None:
    mq.create_topic("tagged", 1)
    with Producer(mq.name_server) as producer:
        queue = next(
            queue for queue in producer.queues("tagged") if queue.broker_name == "broker-a"
        )
        for number in range(400):
            tags = ("Aa", "BB", "other", None)[number % 4]  # the first two have the same hash code
            producer.send(Message("tagged", str(number).encode(), tags=tags), queue=queue)
    wanted = expected(mq.name_server, "tagged")
    assert rows_of(read(spark, mq.name_server, subscribe="tagged", tags="Aa")) == [
        row for row in wanted if row["tags"] == "Aa"
    ]
    both = [row for row in wanted if row["tags"] in ("BB", "other")]
    assert rows_of(read(spark, mq.name_server, subscribe="tagged", tags="BB || other")) == both
    assert rows_of(read(spark, mq.name_server, subscribe="tagged", tags="*")) == wanted
    numbers = read(
        spark, mq.name_server, subscribe="tagged", tags="Aa", schema="queueOffset bigint"
    ).collect()
    assert sorted(row[0] for row in numbers) == list(range(0, 400, 4))
    assert read(spark, mq.name_server, subscribe="tagged", tags="nobody").count() == 0


def test_an_expression_is_worked_out_by_the_broker(spark: SparkSession, mq: LocalCluster) -> None:
    mq.create_topic("priced", 1)
    with Producer(mq.name_server) as producer:
        queue = next(
            queue for queue in producer.queues("priced") if queue.broker_name == "broker-a"
        )
        for number in range(1000):
            producer.send(
                Message("priced", str(number).encode(), properties={"amount": str(number)}),
                queue=queue,
            )
    chosen = read(
        spark,
        mq.name_server,
        subscribe="priced",
        sql92="amount < 5 OR amount >= 995",
        schema="queueOffset bigint",
    ).collect()
    assert sorted(row[0] for row in chosen) == [*range(5), *range(995, 1000)]
    assert read(spark, mq.name_server, subscribe="priced", sql92="amount IS NULL").count() == 0


def test_empty_queues_and_empty_topics_are_no_rows(spark: SparkSession, mq: LocalCluster) -> None:
    mq.create_topic("empty", 3)
    assert read(spark, mq.name_server, subscribe="empty").count() == 0
    sent(mq.name_server, "empty", 5, queue=4)
    assert rows_of(read(spark, mq.name_server, subscribe="empty")) == expected(
        mq.name_server, "empty"
    )


def test_a_read_without_a_group_leaves_no_group_behind_and_one_with_it_commits_nothing(
    spark: SparkSession, mq: LocalCluster
) -> None:
    mq.create_topic("untouched", 1)
    sent(mq.name_server, "untouched", 3)
    assert read(spark, mq.name_server, subscribe="untouched", consumerGroup="readers").count() == 3
    queues = [message.queue for message in messages_in(mq.name_server, "untouched")]
    assert set(group_offsets(mq.name_server, "readers", queues).values()) == {None}


def test_a_read_may_be_signed_and_encrypted(
    spark: SparkSession, mq: LocalCluster, orders: str
) -> None:
    wanted = expected(mq.name_server, orders)
    assert (
        rows_of(
            read(
                spark,
                mq.name_server,
                subscribe=orders,
                tlsEnable="true",
                accessKey="me",
                secretKey="secret",
            )
        )
        == wanted
    )


def test_names_of_a_namespace_are_those_of_the_application(
    spark: SparkSession, mq: LocalCluster
) -> None:
    mq.create_topic("shop%inside", 1)
    sent(mq.name_server, "shop%inside", 6)
    frame = read(spark, mq.name_server, subscribe="inside", namespace="shop")
    wanted = [{**row, "topic": "inside"} for row in expected(mq.name_server, "shop%inside")]
    assert rows_of(frame) == wanted
    assert read(spark, mq.name_server, subscribePattern="in.*", namespace="shop").count() == 6
    assert read(spark, mq.name_server, subscribePattern="in.*").count() == 0


def test_a_long_queue_comes_whole_and_in_order(spark: SparkSession, mq: LocalCluster) -> None:
    mq.create_topic("many", 1)
    with Producer(mq.name_server) as producer:
        queue = next(queue for queue in producer.queues("many") if queue.broker_name == "broker-b")
        for first in range(0, 25_000, 500):
            producer.send_batch(
                [Message("many", str(number).encode()) for number in range(first, first + 500)],
                queue=queue,
            )
    frame = read(spark, mq.name_server, subscribe="many", schema="queueOffset bigint, body binary")
    assert [(row[0], bytes(row[1])) for row in frame.collect()] == [
        (number, str(number).encode()) for number in range(25_000)
    ]
