"""Producers: batches, time that is over, routes that change, many messages at once, and calls at
the wrong time.
"""

from __future__ import annotations

import asyncio
import socket

import pytest

from orbitmq import (
    Admin,
    ClientSession,
    ClientSettings,
    InvalidMessageError,
    InvalidStateError,
    Message,
    MessageQueue,
    NotFoundError,
    Producer,
    ProducerSettings,
    PushConsumer,
    ReceivedMessage,
    SendFailedError,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from orbitmq.client.producer.producer import by_sharding_key
from orbitmq.embedded.cluster import EmbeddedCluster
from orbitmq.protocol.bodies.nameserver import PERM_READ, PERM_WRITE
from orbitmq.remoting.client import ClientConfig
from orbitmq.testing import LocalCluster
from support.client.library import FROM_FIRST, run
from support.common.waiting import until


async def stored_count(producer: Producer, topic: str) -> int:
    """How many messages the queues of a topic had before those that this sends."""
    places = [
        await producer.send(Message(topic, b"last"), queue=queue)
        for queue in await producer.queues(topic)
    ]
    return sum(place.queue_offset for place in places)


def test_a_batch_with_a_message_that_cannot_be_sent_sends_nothing() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(
            cluster.name_server_address, settings=ProducerSettings(size_max=1_000)
        ) as producer:
            await producer.send(Message("T", b"first"))
            with pytest.raises(InvalidMessageError, match="has 1001 bytes"):
                await producer.send_batch(
                    [*(Message("T", bytes(900)) for _ in range(3)), Message("T", bytes(1_001))]
                )
            assert await stored_count(producer, "T") == 1

    run(scenario)


def test_a_batch_that_fails_after_its_first_request_says_what_was_sent() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(
            cluster.name_server_address, settings=ProducerSettings(size_max=2_000)
        ) as producer:
            await producer.send(Message("T", b"first"))
            messages = [Message("T", bytes(size)) for size in (1_100, 1_100, 1_900)]
            with pytest.raises(
                SendFailedError,
                match="2 of the 3 requests of a batch to topic T were accepted, then one failed",
            ) as failed:
                await producer.send_batch(messages)
            assert [result.queue.topic for result in failed.value.sent] == ["T", "T"]
            assert await stored_count(producer, "T") == 3
            with pytest.raises(InvalidMessageError, match="one topic, not of 0"):
                await producer.send_batch([])

    run(scenario, maxMessageSize="1500")


def test_messages_of_a_sharding_key_are_in_its_queue_also_when_they_are_sent_in_a_batch() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(cluster.name_server_address) as producer:
            messages = [
                Message("T", b"%d" % number, sharding_key=key)
                for number, key in enumerate("abcabc")
            ]
            await producer.send(Message("T", b"first"))
            queues = await producer.queues("T")
            results = await producer.send_batch(messages)
            assert [result.queue for result in results] == [
                by_sharding_key(queues, message) for message in messages[:3]
            ]
            assert [len(result.msg_id.split(",")) for result in results] == [2, 2, 2]
            (together,) = await producer.send_batch(messages, queue=queues[1])
            assert (together.queue, len(together.msg_id.split(","))) == (queues[1], 6)

    run(scenario)


def test_members_are_known_to_a_broker_as_soon_as_they_reach_it_after_its_restart() -> None:
    async def main() -> None:
        with LocalCluster(topics={"T": 4}, broker={"flushDiskType": "SYNC_FLUSH"}) as mq:
            settings = ClientSettings(
                name_servers=mq.name_server, heartbeat_ms=600_000
            )  # no round of heartbeats helps
            first, second = (PushConsumer(settings, "g", lambda _: None) for _ in range(2))
            for consumer in (first, second):
                consumer.subscribe("T")
            async with first:
                await asyncio.to_thread(mq.restart)
                async with second, asyncio.timeout(60):
                    await until(
                        lambda: bool(queues_of(first)) and not queues_of(first) & queues_of(second)
                    )
                    assert len(queues_of(first) | queues_of(second)) == 4

    asyncio.run(main())


def queues_of(consumer: PushConsumer) -> set[MessageQueue]:
    return {queue for queue in consumer.queues if queue.topic == "T"}


def test_the_first_request_after_a_restart_of_the_broker_gets_its_reply() -> None:
    async def main() -> None:
        with LocalCluster(topics={"T": 1}) as mq:
            async with Producer(mq.name_server) as asker, Producer(mq.name_server) as answerer:

                async def answer(message: ReceivedMessage) -> None:
                    await answerer.reply(message, b"reply to " + message.body)

                consumer = PushConsumer(mq.name_server, "g", answer, settings=FROM_FIRST)
                consumer.subscribe("T")
                async with consumer:
                    assert (
                        await asker.request(Message("T", b"1"), timeout_ms=60_000)
                    ).body == b"reply to 1"
                    await asyncio.to_thread(mq.restart)
                    assert (
                        await asker.request(Message("T", b"2"), timeout_ms=60_000)
                    ).body == b"reply to 2"

    asyncio.run(main())


def test_a_broker_that_is_away_is_told_as_that_and_not_as_a_timeout() -> None:
    async def main() -> None:
        with LocalCluster(topics={"T": 1}) as mq:
            async with Producer(
                ClientSettings(name_servers=mq.name_server, timeout_ms=60_000)
            ) as producer:
                await producer.send(Message("T", b"x"))
                mq.stop_broker()
                with pytest.raises(
                    SendFailedError,
                    match=r"message to topic T was not sent: broker-a: .*Connection refused",
                ):
                    await producer.send(Message("T", b"x"))

    asyncio.run(main())


def test_a_name_server_that_says_nothing_takes_no_more_time_than_the_message_has() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            settings = ClientSettings(name_servers=address, timeout_ms=600_000)
            async with asyncio.timeout(60), Producer(settings) as producer:
                with pytest.raises(
                    SendFailedError,
                    match=(
                        "not sent within 200 ms: the name servers did not return its route in time"
                    ),
                ):
                    await producer.send(Message("T", b"x"), timeout_ms=200)
            transactions = TransactionProducer(
                settings,
                group="g",
                execute=lambda *_: TransactionState.COMMIT,
                check=print,  # type: ignore[arg-type]
            )
            async with (
                asyncio.timeout(60),
                transactions,
            ):  # whose end does not wait for an answer either
                with pytest.raises(SendFailedError, match="not sent within 200 ms"):
                    await transactions.send_in_transaction(Message("T", b"x"), timeout_ms=200)

    asyncio.run(main())


def test_a_limit_for_each_try_leaves_time_for_another_broker() -> None:
    async def main() -> None:
        with LocalCluster(partitions=True, brokers=2, topics={"T": 1}) as mq:
            settings = ProducerSettings(timeout_ms=20_000, try_timeout_ms=300)
            async with Producer(mq.name_server, settings=settings) as producer:
                await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(4)))
                with mq.partition("broker-a"):
                    results = [await producer.send(Message("T", b"x")) for _ in range(2)]
                assert {result.queue.broker_name for result in results} == {"broker-b"}

    asyncio.run(main())


def test_more_messages_than_connections_take_at_once_wait_their_turn() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        settings = ClientSettings(
            name_servers=cluster.name_server_address, remoting=ClientConfig(invoke_max=100)
        )
        async with Producer(settings, settings=ProducerSettings(timeout_ms=20_000)) as producer:
            results = await asyncio.gather(
                *(producer.send(Message("T", b"x")) for _ in range(1_000))
            )
            assert {result.status for result in results} == {SendStatus.SEND_OK}
            producer.session.in_flight.free = 0
            with pytest.raises(
                SendFailedError,
                match=(
                    r"88 other messages were in flight all the time: send fewer at once, or raise"
                    r" invoke_max"
                ),
            ):
                await producer.send(Message("T", b"x"), timeout_ms=50)

    run(scenario)


def test_a_topic_that_cannot_be_written_to_says_why_and_is_asked_about_again() -> None:
    async def main() -> None:
        with LocalCluster(topics={"T": 1}) as mq:
            async with Admin(mq.name_server) as admin, Producer(mq.name_server) as producer:
                await admin.topics.update("T", lambda topic: topic._replace(perm=PERM_READ))
                with pytest.raises(
                    NotFoundError,
                    match=(
                        r"no writable queue: its permission on its brokers"
                        r" \(broker-a\)"
                    ),
                ):
                    await producer.send(Message("T", b"x"))
                await admin.topics.update(
                    "T", lambda topic: topic._replace(perm=PERM_READ | PERM_WRITE)
                )
                assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK
                await asyncio.to_thread(mq.stop_broker)
                async with Producer(mq.name_server) as other:
                    with pytest.raises(
                        NotFoundError,
                        match=r"no broker is registered; start one with namesrvAddr set",
                    ) as missing:
                        await other.send(Message("U", b"x"))
                assert "autoCreateTopicEnable" not in str(missing.value)

    asyncio.run(main())


def test_a_queue_of_another_topic_is_refused() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(
            ClientSettings(name_servers=cluster.name_server_address, namespace="shop")
        ) as producer:
            queue = (await producer.send(Message("T", b"x"))).queue
            own = queue._replace(topic="T")
            assert (
                await producer.send(Message("T", b"x"), queue=own)
            ).queue.queue_id == queue.queue_id
            for send in (producer.send, producer.send_oneway):
                with pytest.raises(
                    InvalidMessageError,
                    match=r"a message to topic shop%U cannot be sent to .*choose a queue of its topic",
                ):
                    await send(Message("U", b"x"), queue=queue)

    run(scenario)


def test_calls_at_the_wrong_time_say_what_to_do() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        producer = Producer(cluster.name_server_address)
        with pytest.raises(InvalidStateError, match="is not started: use it in `async with`"):
            await producer.send(Message("T", b"x"))
        await producer.start()
        with pytest.raises(InvalidStateError, match="this client is already started"):
            await producer.start()
        await producer.send(Message("T", b"x"))
        await producer.close()
        await producer.close()
        for call in (
            producer.send(Message("T", b"x")),
            producer.send_oneway(Message("T", b"x")),
            producer.send_batch([Message("T", b"x")]),
            producer.request(Message("T", b"x")),
            producer.recall("T", "handle"),
            producer.queues("T"),
            producer.start(),
        ):
            with pytest.raises(
                InvalidStateError, match="this producer is closed: create a new one"
            ):
                await call
        session = ClientSession(ClientSettings(name_servers=cluster.name_server_address))
        await session.start()
        await session.close()
        with pytest.raises(InvalidStateError, match="this session is closed: create a new one"):
            await Producer(session).start()

    run(scenario)


def test_a_client_is_not_for_a_second_event_loop() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(cluster.name_server_address) as producer:
            session = producer.session
            await producer.send(Message("T", b"x"))
            for call in (
                lambda: producer.send(Message("T", b"x")),
                producer.close,
                session.close,
                lambda: session.route("U"),
            ):
                with pytest.raises(
                    InvalidStateError,
                    match=r"another event loop.*: start, use and close a client within one asyncio\.run",
                ):
                    await asyncio.to_thread(lambda call=call: asyncio.run(call()))  # type: ignore[misc]
            await producer.send(Message("T", b"y"))

    run(scenario)
