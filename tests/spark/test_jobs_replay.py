"""Tests `orbitmq spark replay`: selected messages are sent once, unchanged, and no faster than the
rate.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.blocking.producers import Producer
from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.message import properties
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.spark.jobs.runner import JobStoppedError
from orbitmq.spark.pipeline.stopping import StopRequest
from orbitmq.testing import LocalCluster
from support.cli.commands import Shell
from support.spark.jobs import Recorder, content, steps_of
from support.spark.messages import messages_in, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def orders(mq: LocalCluster) -> str:
    """Send messages with everything that an application may set."""
    mq.create_topic("orders", 2)
    with Producer(mq.name_server) as producer:
        for number in range(60):
            message = Message(
                "orders",
                f"größer 東京 {number}".encode() + bytes([0, number]),
                tags=("new", "paid", None)[number % 3],
                keys=[f"k{number}", f"shop-{number % 2}"],
                properties={"source": "shop", "город": "Київ"} if number % 2 else {},
                sharding_key=f"customer-{number % 5}" if number % 4 else None,
            )
            producer.send(message)
    return "orders"


@pytest.fixture(scope="module")
def archive(
    spark: SparkSession, mq: LocalCluster, orders: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("archive") / "orders"
    read(spark, mq.name_server, subscribe=orders).selectExpr(
        "*", "to_date(storeTimestamp) as date"
    ).write.partitionBy("date").parquet(str(folder))
    return folder


def contents(mq: LocalCluster, topic: str) -> Counter[object]:
    return Counter(map(content, messages_in(mq.name_server, topic)))


def test_a_topic_is_sent_again_as_it_was_but_for_what_is_rocketmqs_own(
    spark: SparkSession, mq: LocalCluster, orders: str
) -> None:
    mq.create_topic("again", 3)
    told = Shell(mq.name_server).json("spark", "replay", "--from", orders, "--to", "again")
    size = sum(len(message.body) for message in messages_in(mq.name_server, orders))
    assert told == [{"from": "orders", "to": "again", "sent": 60, "body_bytes": size}]
    assert contents(mq, "again") == contents(mq, orders)
    plain = {name for message in messages_in(mq.name_server, orders) for name in message.properties}
    assert {
        name for message in messages_in(mq.name_server, "again") for name in message.properties
    } <= plain
    again: dict[str, list[ReceivedMessage]] = {}
    for message in messages_in(mq.name_server, "again"):
        if key := message.properties.get(properties.SHARDING_KEY):
            again.setdefault(key, []).append(message)
    assert [len({message.queue for message in of_key}) for of_key in again.values()] == [1] * 5
    before: dict[tuple[str | None, MessageQueue], list[bytes]] = {}
    for message in messages_in(mq.name_server, orders):
        before.setdefault(
            (message.properties.get(properties.SHARDING_KEY), message.queue), []
        ).append(message.body)
    for (key, _), bodies in before.items():  # those of one queue keep their order
        if key is not None:
            assert [message.body for message in again[key] if message.body in bodies] == bodies


def test_times_keys_and_a_condition_choose_from_topic_and_archive_alike(
    mq: LocalCluster, orders: str, archive: Path
) -> None:
    shell = Shell(mq.name_server)
    messages = messages_in(mq.name_server, orders)
    times = sorted(message.stored_at_ms for message in messages)
    low, high = times[10], times[50]
    limits = (
        "--since",
        f"@{low}",
        "--until",
        f"@{high}",
        "--keys",
        "shop-1",
        "--keys",
        "k8",
        "--filter",
        "tags = 'new' or tags is null",
    )
    chosen = [
        message
        for message in messages
        if low <= message.stored_at_ms < high
        and {"shop-1", "k8"} & set(message.keys)
        and message.tags in ("new", None)
    ]
    assert 3 < len(chosen) < 30
    for topic, source in (("from-topic", orders), ("from-archive", str(archive))):
        mq.create_topic(topic, 1)
        planned = shell.json(
            "spark", "replay", "--from", source, "--to", topic, *limits, "--dry-run"
        )
        assert planned == [
            {
                "topic": orders,
                "messages": len(chosen),
                "body_bytes": sum(len(message.body) for message in chosen),
                "first_stored_ms": min(message.stored_at_ms for message in chosen),
                "last_stored_ms": max(message.stored_at_ms for message in chosen),
                "to": topic,
            }
        ]
        assert messages_in(mq.name_server, topic) == []
        assert shell.json("spark", "replay", "--from", source, "--to", topic, *limits)[0][
            "sent"
        ] == len(chosen)
        assert contents(mq, topic) == Counter(map(content, chosen))


def test_another_cluster_may_get_them_and_no_faster_than_the_rate(
    mq: LocalCluster, orders: str
) -> None:
    with LocalCluster(topics={"there": 2}) as other:
        began_s = time.monotonic()
        result = Shell(mq.name_server).run(
            "spark",
            "replay",
            "--from",
            orders,
            "--to",
            f"{other.name_server}/there",
            "--rate",
            "30/s",
        )
        took_s = time.monotonic() - began_s
        assert result.exit_code == 0, result.stderr
        assert contents(other, "there") == contents(mq, orders)
    assert took_s >= (60 - 3) / 30  # the first portion is sent at once
    assert "sending to there: 60 messages" in result.stderr


def test_what_cannot_be_replayed_is_said_in_one_sentence(
    mq: LocalCluster, orders: str, tmp_path: Path, spark: SparkSession
) -> None:
    shell = Shell(mq.name_server)
    to = ("--to", "again")
    assert shell.fails("spark", "replay", "--from", "nobody", *to).startswith(
        "orbitmq: no route to topic nobody"
    )
    missing = shell.fails("spark", "replay", "--from", str(tmp_path / "nothing"), *to)
    assert "Path does not exist" in missing
    assert "\tat " not in missing
    spark.range(3).write.parquet(str(tmp_path / "other"))
    assert "missing column topic, brokerName" in shell.fails(
        "spark", "replay", "--from", str(tmp_path / "other"), *to
    )
    wrong = shell.fails(
        "spark", "replay", "--from", orders, *to, "--filter", "amount > 7"
    ).splitlines()[-1]
    assert wrong.startswith("orbitmq: --filter: amount > 7: A column")
    assert "Did you mean" in wrong
    assert "is no rate" in shell.fails(
        "spark", "replay", "--from", orders, *to, "--rate", "fast", code=2
    )
    assert "is neither a TOPIC" in shell.fails(
        "spark", "replay", "--from", orders, "--to", "a/b", code=2
    )
    unknown = shell.fails(
        "spark", "replay", "--from", orders, *to, "--to-option", "maxMessageSise=1"
    )
    assert unknown == "orbitmq: unknown option maxmessagesise; did you mean maxMessageSize?\n"


def test_a_step_that_is_stopped_is_cancelled_and_says_so(spark: SparkSession) -> None:
    recorder, stop = Recorder(), StopRequest()
    steps = steps_of(spark, recorder, stop)
    slow = spark.range(0, 1 << 40, 1, 2).selectExpr("sum(hash(id) % 7)")

    def work() -> object:
        stop.request()
        return slow.collect()

    with pytest.raises(JobStoppedError, match="stopped while counting"):
        steps.run_step("counting", work, str)
    assert recorder.results == []
    assert spark.range(3).count() == 3
