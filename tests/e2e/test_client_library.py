"""Producers and consumers of the client library, with a name server and a broker in this
process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from orbitmq.client.consumer.push_consumer import Listener, PushConsumer
from orbitmq.client.messages import Message, ReceivedMessage, SendStatus
from orbitmq.client.producer.outbox import ProducerSettings
from orbitmq.client.producer.producer import Producer
from orbitmq.client.session.client_session import ClientSession
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import (
    InvalidMessageError,
    InvalidStateError,
    NotFoundError,
    RemoteUnavailableError,
    RequestRefusedError,
)
from orbitmq.embedded.cluster import EmbeddedCluster
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.subscriptions import MessageModel
from support.client.library import FROM_FIRST, consuming, run
from support.common.free_ports import free_port
from support.common.waiting import until


def test_what_is_sent_is_received_with_everything_that_was_said_of_it() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        received: list[ReceivedMessage] = []

        async def listen(message: ReceivedMessage) -> None:
            received.append(message)

        async with Producer(cluster.name_server_address) as producer:
            message = Message(
                "T",
                "grüß".encode() * 2000,
                tags="a",
                keys=["k1", "k2"],
                properties={"colour": "blau"},
            )
            result = await producer.send(message)
            assert result.status is SendStatus.SEND_OK
            async with consuming(cluster, listen):
                await until(lambda: len(received) == 1)
        (found,) = received
        assert (found.topic, found.body, found.tags, found.keys) == (
            "T",
            message.body,
            "a",
            ("k1", "k2"),
        )
        assert found.properties["colour"] == "blau"
        assert (found.msg_id, found.offset_msg_id) == (result.msg_id, result.offset_msg_id)
        assert (found.queue, found.queue_offset) == (result.queue, result.queue_offset)

    run(scenario)


def test_a_plain_function_listens_in_a_thread_and_only_to_its_tags() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        received: list[bytes] = []
        async with Producer(cluster.name_server_address) as producer:
            for number, tags in enumerate(["a", "b", "c", None, "a"]):
                await producer.send(Message("T", b"%d" % number, tags=tags))
            async with consuming(
                cluster, lambda message: received.append(message.body), ("T", "a || b")
            ):
                await until(lambda: len(received) == 3)
                await producer.send(Message("T", b"5", tags="b"))
                await until(lambda: len(received) == 4)
        assert sorted(received) == [b"0", b"1", b"4", b"5"]

    run(scenario)


def test_members_of_a_group_share_the_queues_and_go_on_where_others_stopped() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        received: Counter[bytes] = Counter()
        listeners: Counter[str] = Counter()

        def named(name: str) -> Listener:
            async def listen(message: ReceivedMessage) -> None:
                received[message.body] += 1
                listeners[name] += 1

            return listen

        async with Producer(cluster.name_server_address) as producer:

            async def send(numbers: range) -> None:
                await asyncio.gather(
                    *(producer.send(Message("T", b"%d" % number)) for number in numbers)
                )

            await producer.send(Message("T", b"0"))
            async with (
                consuming(cluster, named("first")) as first,
                consuming(cluster, named("second")) as second,
            ):
                await until(lambda: len(queues_of(first)) == len(queues_of(second)) == 2)
                assert not queues_of(first) & queues_of(second)
                await send(range(1, 200))
                await until(lambda: len(received) == 200)
            assert listeners["first"] > 0 < listeners["second"]
            await send(range(200, 300))
            async with consuming(cluster, named("third")):
                await until(lambda: len(received) == 300)
        del received[b"0"]  # which both may have got while they shared the queues
        assert set(received.values()) == {1}
        assert listeners["third"] == 100

    run(scenario)


def queues_of(consumer: PushConsumer) -> frozenset[MessageQueue]:
    return frozenset(queue for queue in consumer.membership.queues if queue.topic == "T")


def test_everybody_gets_everything_when_a_group_broadcasts(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        received: list[list[bytes]] = [[], []]
        async with Producer(cluster.name_server_address) as producer:
            await producer.send_batch([Message("T", b"%d" % number) for number in range(10)])
        consumers = [
            PushConsumer(
                cluster.name_server_address,
                "g",
                lambda message, bodies=bodies: bodies.append(message.body),
                settings=replace(
                    FROM_FIRST,
                    message_model=MessageModel.BROADCASTING,
                    offsets_folder=tmp_path_factory.mktemp("offsets"),
                ),
            )
            for bodies in received
        ]
        for consumer in consumers:
            consumer.subscribe("T")
            await consumer.start()
        await until(lambda: [len(bodies) for bodies in received] == [10, 10])
        for consumer in consumers:
            await consumer.close()

    run(scenario)


def test_two_members_of_a_broadcasting_group_need_a_file_each(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        folder = tmp_path_factory.mktemp("offsets")
        settings = replace(
            FROM_FIRST, message_model=MessageModel.BROADCASTING, offsets_folder=folder
        )
        received: list[bytes] = []

        def member(instance_name: str) -> PushConsumer:
            client = ClientSettings(
                name_servers=cluster.name_server_address, instance_name=instance_name
            )
            consumer = PushConsumer(
                client, "g", lambda message: received.append(message.body), settings=settings
            )
            consumer.subscribe("T")
            return consumer

        async with Producer(cluster.name_server_address) as producer:
            await producer.send(Message("T", b"1"))
        async with member("a"), member("b"):
            with pytest.raises(InvalidStateError, match="instance_name"):
                await member("a").__aenter__()
            await until(lambda: received == [b"1", b"1"])
        assert len(list(folder.glob("*/g/offsets.json"))) == 2
        async with member("a"):
            pass

    run(scenario)


def test_messages_of_one_sharding_key_are_in_one_queue_and_a_selector_may_choose_otherwise() -> (
    None
):
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(cluster.name_server_address) as producer:
            keyed = [
                await producer.send(Message("T", b"x", sharding_key="order-7")) for _ in range(3)
            ]
            assert len({result.queue for result in keyed}) == 1
            chosen = await producer.send(
                Message("T", b"x"), selector=lambda queues, _message: queues[2]
            )
            assert chosen.queue.queue_id == 2
            taking_turns = [await producer.send(Message("T", b"x")) for _ in range(4)]
            assert {result.queue.queue_id for result in taking_turns} == {0, 1, 2, 3}

    run(scenario)


def test_a_batch_is_cut_where_it_would_be_too_long_and_keeps_its_order() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        settings = ProducerSettings(size_max=10_000)
        async with Producer(cluster.name_server_address, settings=settings) as producer:
            await producer.send(Message("T", b"first"))
            queue, *_ = await producer.queues("T")
            results = await producer.send_batch(
                [Message("T", b"%d" % number * 2000) for number in range(10)], queue=queue
            )
            assert len(results) == 3
            assert sum(len(result.offset_msg_id.split(",")) for result in results) == 10
            with pytest.raises(InvalidMessageError, match="one topic, not of 2"):
                await producer.send_batch([Message("T", b"x"), Message("U", b"x")])

    run(scenario)


@pytest.mark.parametrize(
    ("message", "error", "words"),
    [
        (Message("T", b""), InvalidMessageError, "the body of a message to T is empty"),
        (Message("", b"x"), InvalidMessageError, "needs a topic"),
        (
            Message("T", bytes(5 << 20)),
            InvalidMessageError,
            "has 5242880 bytes, the limit is 4194304",
        ),
        (
            Message("T", b"x", properties={"KEYS": "k"}),
            InvalidMessageError,
            "property KEYS is reserved by RocketMQ",
        ),
        (Message("T", b"x", delay_level=3, delay_ms=5), InvalidMessageError, "set one of them"),
        (Message("T", b"x", properties={"a\x01b": "c"}), InvalidMessageError, "holds a separator"),
        (Message("not a topic", b"x"), RequestRefusedError, "contains illegal characters"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_reason(
    message: Message, error: type[Exception], words: str
) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(cluster.name_server_address) as producer:
            with pytest.raises(error, match=words):
                await producer.send(message)

    run(scenario)


def test_a_topic_that_nobody_has_and_nobody_makes_is_said_to_be_so() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(cluster.name_server_address) as producer:
            with pytest.raises(
                NotFoundError,
                match=r"none of the brokers \(broker-a\) has it.*autoCreateTopicEnable=true",
            ):
                await producer.send(Message("T", b"x"))

    run(scenario, autoCreateTopicEnable="false")


def test_a_name_server_that_is_not_there_is_said_to_be_so() -> None:
    async def main() -> None:
        async with Producer(f"127.0.0.1:{free_port('127.0.0.1')}") as producer:
            with pytest.raises(
                RemoteUnavailableError,
                match=(
                    r"no name server answers: cannot connect to 127\.0\.0\.1:\d+: Connection"
                    r" refused"
                ),
            ):
                await producer.send(Message("T", b"x"))

    asyncio.run(main())


def test_a_group_has_one_consumer_in_a_session() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        session = ClientSession(ClientSettings(name_servers=cluster.name_server_address))
        async with PushConsumer(session, "g", print) as first:
            with pytest.raises(
                InvalidStateError, match="group g already has a consumer in this session"
            ):
                await PushConsumer(session, "g", print).__aenter__()
            assert session.members == [first.membership]
        await session.close()

    run(scenario)


def test_many_sends_to_a_topic_that_they_make_ask_for_its_route_once() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(
            cluster.name_server_address, settings=ProducerSettings(timeout_ms=30_000)
        ) as producer:
            results = await asyncio.gather(
                *(producer.send(Message("T", b"x")) for _ in range(2_000))
            )
            assert {result.status for result in results} == {SendStatus.SEND_OK}
            assert "T" in producer.topics()
            await producer.session.refresh_routes()
            assert "T" not in producer.topics()
            assert producer.session.known_route("T") is not None

    run(scenario)
