"""Consumers that ask for messages, in use: wrong calls, operators, brokers that come back,
observers, namespaces; and the plain one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from orbitmq import (
    Admin,
    ClientSettings,
    ConfigurationError,
    InvalidStateError,
    LitePullConsumer,
    LitePullSettings,
    Message,
    Producer,
    PullConsumer,
    PullStatus,
    ReceivedMessage,
    RequestRefusedError,
)
from orbitmq.admin.positions import QueueEdge
from orbitmq.client.observers import ConsumeOutcome
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.admin_topics import read_offset, read_queue_table
from orbitmq.protocol.bodies.running_info import ConsumerRunningInfo
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.base import Header
from orbitmq.protocol.headers.clients import GetConsumerRunningInfoRequestHeader
from orbitmq.protocol.headers.offsets import GetConsumerStatusRequestHeader
from orbitmq.testing import LocalCluster
from support.client.pull_consumers import FROM_FIRST, numbers, polled, run, send, subscribed

# -- wrong calls


def test_calls_at_the_wrong_time_say_what_to_do() -> None:
    async def scenario(mq: LocalCluster) -> None:
        consumer = subscribed(mq)
        with pytest.raises(InvalidStateError, match="not started or is closed"):
            await consumer.poll()
        async with consumer:
            waiting = asyncio.create_task(consumer.poll(timeout_ms=60_000))
            await asyncio.sleep(0)
            with pytest.raises(InvalidStateError, match="another task is polling"):
                await consumer.poll()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert await consumer.poll(timeout_ms=0) == []
        with pytest.raises(InvalidStateError, match="not started or is closed"):
            await consumer.poll()
        assert [message async for message in consumer] == []

    run(scenario)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="auto_commit_ms is 10: set at least 1000"):
        LitePullSettings(auto_commit_ms=10)
    with pytest.raises(ConfigurationError, match="timeout_ms is 20000"):
        LitePullSettings(timeout_ms=20_000)


# -- operators, brokers and namespaces


def test_operators_see_it_and_send_it_elsewhere() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(20))
        soon = replace(FROM_FIRST, suspend_ms=500)  # a reset waits for the next pull
        async with subscribed(mq, soon) as consumer, Admin(mq.name_server) as admin:
            messages = await polled(consumer, 20)
            await consumer.commit()
            connections = await admin.groups.connections("g")
            (member,) = connections.members
            info = await admin.groups.running_info("g", member.client_id)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
            assert set(info.queues) == consumer.assignment
            header = GetConsumerStatusRequestHeader(topic="T", group="g")
            answer = await consumer.session.ask(
                mq.broker_address(),
                RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header),
            )
            told = fastjson.loads(answer.body or b"{}")["consumerTable"][member.client_id]
            assert read_queue_table(told, read_offset) == dict.fromkeys(consumer.assignment, 5)
            with pytest.raises(
                RequestRefusedError, match="group g pulls its messages and has no listener"
            ):
                await admin.messages.consume_directly("g", member.client_id, messages[0])
            await admin.offsets.reset("g", "T", QueueEdge.FIRST)
            assert numbers(await polled(consumer, 20)) == list(range(20))

    run(scenario)


def test_it_goes_on_when_a_broker_comes_back() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(10))
        async with subscribed(mq) as consumer:
            assert numbers(await polled(consumer, 10)) == list(range(10))
            await asyncio.to_thread(mq.restart)
            await send(mq, range(10, 20))
            assert numbers(await polled(consumer, 10)) == list(range(10, 20))

    run(scenario)


def test_observers_hear_of_every_message_when_it_is_handed_out_and_when_it_counts_as_consumed() -> (
    None
):
    class Log:
        def __init__(self) -> None:
            self.told: list[tuple[str, int]] = []

        def consuming(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
            self.told.append((group, len(messages)))

        def consumed(
            self,
            group: str,
            messages: Sequence[ReceivedMessage],
            outcome: ConsumeOutcome,
            cost_ms: int,
        ) -> None:
            self.told.append((outcome.name, len(messages)))

    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(3))
        log = Log()
        async with subscribed(mq) as consumer:
            consumer.observers.append(log)
            await polled(consumer, 3, 1)
            await consumer.commit()
        assert log.told == [("g", 1), ("SUCCESS", 1)] * 3

    run(scenario, queues=1)


def test_a_namespace_stands_before_the_names_that_brokers_see() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await asyncio.to_thread(mq.create_topic, "shop%orders")
        settings = ClientSettings(name_servers=mq.name_server, namespace="shop")
        async with Producer(settings) as producer:
            await producer.send(Message("orders", b"1"))
        consumer = LitePullConsumer(settings, "g", settings=FROM_FIRST)
        consumer.subscribe("orders")
        async with consumer:
            (found,) = await polled(consumer, 1)
            assert (found.topic, found.queue.topic) == ("orders", "shop%orders")
            await consumer.commit()
        async with PullConsumer(mq.name_server, "shop%g") as plain:
            assert await plain.fetch_offset(found.queue) == 1

    run(scenario)


# -- the plain one


def test_the_plain_consumer_asks_one_thing_at_a_time() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(10), tags=["a", "b"])
        async with PullConsumer(mq.name_server, "g") as consumer:
            (queue,) = await consumer.queues("T")
            found = await consumer.pull(queue, 2, count_max=3)
            assert (found.status, numbers(found.messages)) == (PullStatus.FOUND, [2, 3, 4])
            assert (found.next_offset, found.min_offset, found.max_offset) == (5, 0, 10)
            assert numbers((await consumer.pull(queue, 0, "b")).messages) == [1, 3, 5, 7, 9]
            assert (await consumer.pull(queue, 10)).status is PullStatus.NO_NEW_MESSAGE
            assert (await consumer.pull(queue, 77)).status is PullStatus.OFFSET_ILLEGAL
            assert await consumer.fetch_offset(queue) is None
            await consumer.update_offset(queue, 4)
            assert await consumer.fetch_offset(queue) == 4
            assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 10)
            assert await consumer.offset_at(queue, 0) == 0
            assert await consumer.offset_at(queue, found.messages[1].stored_at_ms) <= 3
            waiting = asyncio.create_task(consumer.pull(queue, 10, timeout_ms=30_000))
            await send(mq, [10])
            assert numbers((await waiting).messages) == [10]

    run(scenario, queues=1)


def test_brokers_know_the_group_of_a_plain_consumer_while_it_is_there() -> None:
    async def scenario(mq: LocalCluster) -> None:
        async with Admin(mq.name_server) as admin:
            async with PullConsumer(mq.name_server, "g") as consumer:
                await consumer.queues("T")
                assert len((await admin.groups.connections("g")).members) == 1
            assert not (await admin.groups.connections("g")).members

    run(scenario)


def test_operators_see_a_plain_consumer_and_what_it_committed() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, range(4))
        async with Admin(mq.name_server) as admin, PullConsumer(mq.name_server, "g") as consumer:
            (queue,) = await consumer.queues("T")
            await consumer.update_offset(queue, 3)

            async def ask(code: int, header: Header) -> bytes:
                return (
                    await consumer.session.ask(
                        mq.broker_address(), RemotingCommand.request(code, header)
                    )
                ).body or b""

            client_id = consumer.session.client_id
            running = GetConsumerRunningInfoRequestHeader(consumer_group="g", client_id=client_id)
            info = ConsumerRunningInfo.decode(
                await ask(RequestCode.GET_CONSUMER_RUNNING_INFO, running)
            )
            assert (info.properties["PROP_CONSUME_TYPE"], dict(info.queues)) == (
                "CONSUME_ACTIVELY",
                {},
            )
            status = GetConsumerStatusRequestHeader(topic="T", group="g")
            told = fastjson.loads(
                await ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status)
            )["consumerTable"][client_id]
            assert read_queue_table(told, read_offset) == {queue: 3}
            found = await consumer.pull(queue, 0)
            with pytest.raises(RequestRefusedError, match="has no listener"):
                await admin.messages.consume_directly("g", client_id, found.messages[0])
            await admin.offsets.reset("g", "T", QueueEdge.FIRST)
            assert await consumer.fetch_offset(queue) == 0

    run(scenario, queues=1)
