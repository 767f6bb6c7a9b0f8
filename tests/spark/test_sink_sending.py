"""Tests how a task sends its rows: all arrive unchanged, in batches or alone, or one sentence says
why not.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.client.producer.producer import by_sharding_key
from orbitmq.common.errors import InvalidMessageError, RequestRefusedError, SendFailedError
from orbitmq.message import flags
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.sink.sender import SendStats
from orbitmq.spark.sink.task_sender import send_rows
from orbitmq.testing import LocalCluster
from support.spark.messages import messages_in

MAP = pa.map_(pa.string(), pa.string())
PLACE = "of partition 0"


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, broker={"autoCreateTopicEnable": "false"}) as cluster:
        yield cluster


@pytest.fixture
def topic(mq: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Create a topic for the test, with 3 queues per broker."""
    name = request.node.name.replace("[", "-").replace("]", "")[:100]
    mq.create_topic(name, 3)
    return str(name)


def sent(mq: LocalCluster, *batches: pa.RecordBatch, **options: object) -> SendStats:
    texts = {"nameServer": mq.name_server, **{name: str(value) for name, value in options.items()}}
    return send_rows(SinkOptions.of(texts), batches, PLACE).sent


def numbered(count: int, first: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"body": [f"{number}" for number in range(first, first + count)]})


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


WAYS = [
    {},
    {"batchMessages": 1},
    {"batchMessages": 2},
    {"batchBytes": 200},
    {"maxInFlightBytes": 1},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: next(iter(way), "default"))
def test_every_column_arrives_in_batches_and_alone(
    mq: LocalCluster, topic: str, way: dict[str, object]
) -> None:
    text = "größer 東京 🚀"
    batch = pa.record_batch(
        {
            "body": pa.array([b"\0\1\2", text.encode(), b"plain"]),
            "keys": pa.array([["a", "b"], [text], None]),
            "tags": pa.array(["t", text, None]),
            "properties": pa.array([[("x", "1"), (text, text)], [("y", None)], None], MAP),
            "shardingKey": pa.array(["s", None, text]),
            "delayLevel": pa.array([0, None, 0], pa.int32()),
        }
    )
    assert sent(mq, batch, topic=topic, **way).messages == 3
    found = {message.body: message for message in messages_in(mq.name_server, topic)}
    assert found.keys() == {b"\0\1\2", text.encode(), b"plain"}
    first, second, third = found[b"\0\1\2"], found[text.encode()], found[b"plain"]
    assert (first.keys, first.tags, first.properties["x"], first.properties[text]) == (
        ("a", "b"),
        "t",
        "1",
        text,
    )
    assert (second.keys, second.tags, second.properties.get("y")) == (
        tuple(text.split()),
        text,
        None,
    )
    assert (third.keys, third.tags) == ((), None)
    assert [message.properties.get("__SHARDINGKEY") for message in (first, second, third)] == [
        "s",
        None,
        text,
    ]
    assert len({message.msg_id for message in found.values()}) == 3


def test_rows_go_to_the_topic_that_each_names(mq: LocalCluster, topic: str) -> None:
    mq.create_topic("other", 1)
    batch = pa.record_batch({"topic": [topic, "other", topic], "body": ["1", "2", "3"]})
    sent(mq, batch)
    assert numbers(messages_in(mq.name_server, topic)) == [1, 3]
    sent(mq, batch, topic=topic)  # the option is for all rows
    assert numbers(messages_in(mq.name_server, "other")) == [2]
    assert numbers(messages_in(mq.name_server, topic)) == [1, 1, 2, 3, 3]


def test_many_rows_need_few_requests_and_reach_all_queues(mq: LocalCluster, topic: str) -> None:
    done = sent(
        mq, *(numbered(5_000, 5_000 * part) for part in range(4)), topic=topic, batchMessages=1_000
    )
    assert done == SendStats(messages=20_000, requests=20)
    found = messages_in(mq.name_server, topic)
    assert numbers(found) == list(range(20_000))
    assert len({message.queue for message in found}) == 6


def test_large_bodies_arrive_compressed_or_not(mq: LocalCluster, topic: str) -> None:
    noise = random.Random(5).randbytes(4 << 20)
    soft = b"compressible " * 10_000
    batch = pa.record_batch({"body": pa.array([noise, b"small", soft, noise[: 1 << 20]])})
    sent(mq, batch, topic=topic)
    assert all(
        message.stored.size > len(message.body) for message in messages_in(mq.name_server, topic)
    )
    for kind in ("zlib", "lz4", "zstd"):
        sent(
            mq, pa.record_batch({"body": pa.array([b"small", soft])}), topic=topic, compression=kind
        )
    found = messages_in(mq.name_server, topic)
    assert sorted(message.body for message in found) == sorted(
        [noise, noise[: 1 << 20], *[b"small", soft] * 4]
    )
    packed = [message.stored for message in found if message.stored.size < len(message.body)]
    assert sorted(stored.sys_flag for stored in packed) == sorted(flags.CompressionType)


def test_rows_of_a_key_are_in_one_queue_in_their_order(mq: LocalCluster, topic: str) -> None:
    chance = random.Random(7)
    keys = [f"key-{chance.randrange(40)}" for _ in range(3_000)]
    sizes = [chance.choice([1, 1, 1, 900]) for _ in keys]  # some are sent alone
    bodies = [b"%05d" % number + bytes(size) for number, size in enumerate(sizes)]
    parts = [slice(begin, begin + 500) for begin in range(0, 3_000, 500)]
    sent(
        mq,
        *(
            pa.record_batch({"body": pa.array(bodies[part]), "shardingKey": pa.array(keys[part])})
            for part in parts
        ),
        **{"topic": topic, "batchMessages": 10, "compression": "zlib", "compressOver": 500},
    )
    found = messages_in(mq.name_server, topic)
    queues = sorted({message.queue for message in found})
    assert len(queues) == 6
    by_key = defaultdict(list)
    for message in found:
        key = message.properties["__SHARDINGKEY"]
        assert message.queue == by_sharding_key(queues, Message(topic, b"x", sharding_key=key))
        by_key[key].append(message.body)
    assert {
        key: [body for body, other in zip(bodies, keys, strict=True) if other == key]
        for key in set(keys)
    } == by_key


def test_a_namespace_stands_before_topics_at_the_brokers_only(mq: LocalCluster) -> None:
    mq.create_topic("shop%orders", 1)
    sent(mq, numbered(3), topic="orders", namespace="shop")
    sent(mq, numbered(1, 3), topic="orders", namespace="shop", batchMessages=1)
    found = messages_in(mq.name_server, "shop%orders")
    assert numbers(found) == [0, 1, 2, 3]
    assert {message.properties["INSTANCE_ID"] for message in found} == {"shop"}


def test_nobody_is_connected_to_for_no_rows() -> None:
    assert (
        send_rows(
            SinkOptions.of({"nameServer": "127.0.0.1:1", "topic": "T"}), [numbered(0)], PLACE
        ).sent
        == SendStats()
    )


def test_a_topic_that_does_not_exist_is_told_with_the_reason(mq: LocalCluster) -> None:
    with pytest.raises(
        SendFailedError,
        match=(
            r"a message to topic nowhere was not sent: no route to topic nowhere: none of the"
            r" brokers"
        ),
    ):
        sent(mq, numbered(3), topic="nowhere", requestTimeout="300ms")
    with pytest.raises(SendFailedError, match=r"topic nowhere .*no route"):
        sent(
            mq,
            pa.record_batch({"body": ["x"], "shardingKey": ["k"]}),
            topic="nowhere",
            requestTimeout="300ms",
        )


def test_a_name_server_that_is_not_there_is_told_soon() -> None:
    options = {"nameServer": "127.0.0.1:1", "topic": "T", "requestTimeout": "300ms"}
    with pytest.raises(
        SendFailedError,
        match=(
            r"a message to topic T was not sent: no name server answers: cannot connect to"
            r" 127.0.0.1:1"
        ),
    ):
        send_rows(SinkOptions.of(options), [numbered(3)], PLACE)


def test_what_a_broker_refuses_is_told_with_its_name(mq: LocalCluster, topic: str) -> None:
    with pytest.raises(
        RequestRefusedError, match=rf"broker-[ab] refused a message to topic {topic}: .*"
    ):
        sent(mq, pa.record_batch({"body": [bytes(5 << 20)]}), topic=topic, maxMessageSize=6 << 20)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"body": ["x", None]}, "row 1 of partition 0 cannot be sent: its body is null"),
        (
            {"body": ["x", "y"], "delayLevel": [0, -2]},
            "row 1 of partition 0 cannot be sent: its delayLevel is -2",
        ),
        (
            {"body": ["x", "y"], "topic": ["T", None]},
            "row 1 of partition 0 cannot be sent: its topic is null or empty",
        ),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(
    mq: LocalCluster, columns: dict[str, Any], said: str
) -> None:
    options = {} if "topic" in columns else {"topic": "T"}
    with pytest.raises(InvalidMessageError, match=said):
        sent(mq, pa.record_batch(columns), **options)
