"""Producers: batches, time that is over, routes that change, many messages at once, and calls at the wrong time."""

from __future__ import annotations

import asyncio

import pytest

from client_library_room import FROM_FIRST, run, until
from orbitmq import Message, MessageIllegal, MessageQueue, Producer, ProducerSettings, PushConsumer, ReceivedMessage, SendFailed
from orbitmq.client.producer import by_sharding_key
from orbitmq.embedded.cluster import EmbeddedCluster
from orbitmq.testing import LocalCluster


async def stored_count(producer: Producer, topic: str) -> int:
    """How many messages the queues of a topic had before those that this sends."""
    places = [await producer.send(Message(topic, b"last"), queue=queue) for queue in await producer.queues(topic)]
    return sum(place.queue_offset for place in places)


def test_a_batch_with_a_message_that_cannot_be_sent_sends_nothing() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(cluster.name_server_address, settings=ProducerSettings(size_max=1_000)) as producer:
            await producer.send(Message("T", b"first"))
            with pytest.raises(MessageIllegal, match="has 1001 bytes"):
                await producer.send_batch([*(Message("T", bytes(900)) for _ in range(3)), Message("T", bytes(1_001))])
            assert await stored_count(producer, "T") == 1

    run(scenario)


def test_a_batch_that_fails_after_its_first_request_says_what_was_sent() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(cluster.name_server_address, settings=ProducerSettings(size_max=2_000)) as producer:
            await producer.send(Message("T", b"first"))
            messages = [Message("T", bytes(size)) for size in (1_100, 1_100, 1_900)]
            with pytest.raises(SendFailed, match="2 of the 3 requests of a batch to topic T were taken, then one failed") as failed:
                await producer.send_batch(messages)
            assert [result.queue.topic for result in failed.value.sent] == ["T", "T"]
            assert await stored_count(producer, "T") == 3
            with pytest.raises(MessageIllegal, match="one topic, not of 0"):
                await producer.send_batch([])

    run(scenario, maxMessageSize="1500")


def test_messages_of_a_sharding_key_are_in_its_queue_also_when_they_are_sent_in_a_batch() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(cluster.name_server_address) as producer:
            messages = [Message("T", b"%d" % number, sharding_key=key) for number, key in enumerate("abcabc")]
            await producer.send(Message("T", b"first"))
            queues = await producer.queues("T")
            results = await producer.send_batch(messages)
            assert [result.queue for result in results] == [by_sharding_key(queues, message) for message in messages[:3]]
            assert [len(result.msg_id.split(",")) for result in results] == [2, 2, 2]
            (together,) = await producer.send_batch(messages, queue=queues[1])
            assert (together.queue, len(together.msg_id.split(","))) == (queues[1], 6)

    run(scenario)


def test_members_are_known_to_a_broker_as_soon_as_they_reach_it_after_its_restart() -> None:
    async def main() -> None:
        with LocalCluster(topics={"T": 4}, broker={"flushDiskType": "SYNC_FLUSH"}) as mq:
            first, second = (PushConsumer(mq.name_server, "g", lambda _: None) for _ in range(2))
            for consumer in (first, second):
                consumer.subscribe("T")
            async with first:
                await asyncio.to_thread(mq.restart)
                async with second, asyncio.timeout(15):  # the next round of heartbeats is in 30 seconds
                    await until(lambda: bool(queues_of(first)) and not queues_of(first) & queues_of(second))
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
                    assert (await asker.request(Message("T", b"1"), timeout_ms=10_000)).body == b"reply to 1"
                    await asyncio.to_thread(mq.restart)
                    assert (await asker.request(Message("T", b"2"), timeout_ms=10_000)).body == b"reply to 2"

    asyncio.run(main())
