"""The Spark source with brokers of Apache, 5.5.0 and 4.9.7, and ours: the same rows as the client
reads, and offsets that tools show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.errors import PySparkException

from interop.broker_clients import admin
from interop.client_matrix_room import EVERY, OURS, cluster_of, tools_of
from interop.programs import Admin
from orbitmq.access.credentials import Credentials
from orbitmq.blocking.consumers import PullConsumer
from orbitmq.blocking.producers import Producer
from orbitmq.client.messages import Message
from orbitmq.client.settings import ClientSettings
from orbitmq.spark import runtime
from support.spark.messages import (
    Collected,
    as_row,
    expected,
    first_line,
    group_offsets,
    messages_in,
    read,
    read_stream,
    rows_of,
    sent,
    spark_until,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.clients,
    pytest.mark.spark,
    pytest.mark.needs("java", "maven"),
    pytest.mark.timeout(400),
]

PLAIN_ACL = """globalWhiteRemoteAddresses: []
accounts:
- accessKey: operator
  secretKey: operator-secret
  admin: true
- accessKey: reader-key
  secretKey: reader-secret
  admin: false
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
TOPICS = {"Kinds": 2, "Dense": 1, "Times": 1, "Latest": 2, "Followed": 2}


class Room(NamedTuple):
    """A broker, and an `mqadmin`."""

    name_server: str
    admin: Admin


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = runtime.session(
        "local[2]",
        "interop",
        {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"},
    )
    yield session
    session.stop()


@pytest.fixture(scope="module", params=EVERY)
def room(request: pytest.FixtureRequest, module_home: Path) -> Iterator[Room]:
    name, home = request.param, module_home / request.param
    with (
        cluster_of(name, home, {"enablePropertyFilter": "true"}) as cluster,
        admin(tools_of(name), home / "admin") as mqadmin,
    ):
        cluster.make_topics(TOPICS)
        yield Room(cluster.name_server.address, mqadmin)


def test_every_column_of_every_kind_of_message_is_the_clients(
    spark: SparkSession, room: Room
) -> None:
    with Producer(room.name_server) as producer:
        queues = sorted(producer.queues("Kinds"))
        text = "größer 東京 🚀"
        producer.send(
            Message(
                "Kinds",
                text.encode(),
                tags="a",
                keys=["é", "ñ"],
                properties={"город": text, "amount": "7"},
            ),
            queue=queues[0],
        )
        producer.send(
            Message("Kinds", b"compressible " * 10_000, tags="b", properties={"amount": "3"}),
            queue=queues[0],
        )
        producer.send_batch(
            [
                Message("Kinds", f"in batch {number}".encode(), keys=str(number))
                for number in range(40)
            ],
            queue=queues[1],
        )
    assert rows_of(read(spark, room.name_server, subscribe="Kinds")) == expected(
        room.name_server, "Kinds"
    )
    assert [
        row["tags"]
        for row in rows_of(read(spark, room.name_server, subscribe="Kinds", tags="a || c"))
    ] == ["a"]
    assert [
        row["tags"]
        for row in rows_of(read(spark, room.name_server, subscribe="Kinds", sql92="amount < 5"))
    ] == ["b"]
    assert "Kinds" in {
        row["topic"] for row in rows_of(read(spark, room.name_server, subscribePattern=".*"))
    }


def test_a_long_queue_is_read_ahead_and_comes_whole(spark: SparkSession, room: Room) -> None:
    with Producer(room.name_server) as producer:
        queue = producer.queues("Dense")[0]
        for first in range(0, 20_000, 500):
            producer.send_batch(
                [Message("Dense", str(number).encode()) for number in range(first, first + 500)],
                queue=queue,
            )
    frame = read(
        spark,
        room.name_server,
        subscribe="Dense",
        schema="queueOffset bigint, body binary",
        minPartitions=3,
    )
    assert sorted((row[0], int(bytes(row[1]))) for row in frame.collect()) == [
        (number, number) for number in range(20_000)
    ]


def test_times_are_kept_to_the_millisecond_though_brokers_tell_the_nearest(
    spark: SparkSession, room: Room
) -> None:
    sent(room.name_server, "Times", 200)
    messages = messages_in(room.name_server, "Times")
    times = sorted({message.stored_at_ms for message in messages})
    for moment in (
        times[0],
        times[len(times) // 2],
        times[len(times) // 2] + 1,
        times[-1],
        times[-1] + 1,
    ):
        later = [as_row(message) for message in messages if message.stored_at_ms >= moment]
        earlier = [as_row(message) for message in messages if message.stored_at_ms < moment]
        assert (
            rows_of(read(spark, room.name_server, subscribe="Times", startingTimestamp=moment))
            == later
        )
        assert (
            rows_of(read(spark, room.name_server, subscribe="Times", endingTimestamp=moment))
            == earlier
        )


def test_latest_is_the_end_for_a_group_that_is_new_and_is_kept_for_it(
    spark: SparkSession, room: Room, tmp_path: Path
) -> None:
    sent(room.name_server, "Latest", 20)
    frame = read_stream(spark, room.name_server, subscribe="Latest", consumerGroup="latest-group")
    first = Collected(spark, tmp_path / "first")
    first.run(frame)
    assert first.rows() == []
    sent(room.name_server, "Latest", 10, first=20)
    second = Collected(spark, tmp_path / "second")
    second.run(frame)
    assert sorted(int(row["body"]) for row in second.rows()) == list(range(20, 30))


def test_how_far_a_query_is_shows_in_the_tools(
    spark: SparkSession, room: Room, tmp_path: Path
) -> None:
    sent(room.name_server, "Followed", 25)
    options: dict[str, Any] = {
        "subscribe": "Followed",
        "startingOffsets": "earliest",
        "consumerGroup": "followed",
        "maxOffsetsPerTrigger": 10,
    }
    collected = Collected(spark, tmp_path)
    collected.run(read_stream(spark, room.name_server, **options))
    assert collected.rows() == expected(room.name_server, "Followed")
    with PullConsumer(room.name_server, "followed") as consumer:
        ends = {queue: consumer.max_offset(queue) for queue in consumer.queues("Followed")}
    spark_until(lambda: group_offsets(room.name_server, "followed", list(ends)) == ends)
    said = room.admin("consumerProgress", "-n", room.name_server, "-g", "followed")
    assert "Diff Total: 0" in said, said


@pytest.mark.parametrize("name", ["4.9.7", OURS])
def test_a_broker_that_lets_in_only_who_signs_is_read_with_the_right_key(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "original" / "conf"
    folder.mkdir(parents=True)
    (folder / "plain_acl.yml").write_text(PLAIN_ACL)
    operator = ClientSettings(credentials=Credentials("operator", "operator-secret"))
    settings = {"aclEnable": "true", **({"aclFolder": folder} if name == OURS else {})}
    with cluster_of(name, tmp_path, settings) as cluster:
        address = cluster.name_server.address
        with Producer(replace(operator, name_servers=address)) as producer:
            producer.send(Message("Guarded", b"one"))
            spark_until(lambda: cluster.has_route("Guarded"))
            for _ in range(99):
                producer.send(Message("Guarded", b"more"))
        assert (
            read(
                spark,
                address,
                subscribe="Guarded",
                accessKey="reader-key",
                secretKey="reader-secret",
            ).count()
            == 100
        )
        with pytest.raises(PySparkException) as refused:
            read(
                spark, address, subscribe="Guarded", accessKey="reader-key", secretKey="guessed"
            ).count()
        assert "signature" in first_line(refused.value)
