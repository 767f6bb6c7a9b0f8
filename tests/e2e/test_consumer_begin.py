"""Where consumers begin that never consumed a queue: at its first message while it is young, as the
Java client does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from orbitmq import (
    ClientSettings,
    ConsumeFromWhere,
    ConsumerSettings,
    LitePullConsumer,
    LitePullSettings,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
)
from orbitmq.message.record import decode_all
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import RemotingClient
from orbitmq.testing import LocalCluster
from support.broker.process import pull_request, send_request
from support.common.waiting import until
from support.embedded.local_cluster import asked


def run(scenario: Callable[[LocalCluster], Awaitable[None]]) -> None:
    async def main(mq: LocalCluster) -> None:
        async with asyncio.timeout(60):
            await scenario(mq)

    with LocalCluster(topics={"T": 2}) as mq:
        asyncio.run(main(mq))


async def send(mq: LocalCluster, topic: str, count: int) -> None:
    async with Producer(mq.name_server) as producer:
        for number in range(count):
            await producer.send(Message(topic, b"%d" % number))


def quick(mq: LocalCluster) -> ClientSettings:
    return ClientSettings(name_servers=mq.name_server, route_refresh_ms=200)


def test_nothing_is_lost_that_came_into_new_queues_before_an_online_group_knew_of_them() -> None:
    async def scenario(mq: LocalCluster) -> None:
        received: list[bytes] = []
        consumer = PushConsumer(
            ClientSettings(name_servers=mq.name_server),
            "g",
            lambda message: received.append(message.body),
        )
        consumer.subscribe("T")
        async with consumer:
            mq.create_topic("T", 8)
            await send(mq, "T", 80)
            await consumer.session.refresh_routes()
            await until(lambda: len(received) == 80)
        assert sorted(map(int, received)) == list(range(80))

    run(scenario)


def test_nothing_is_lost_that_came_into_a_topic_that_an_online_group_waited_for() -> None:
    async def scenario(mq: LocalCluster) -> None:
        received: list[bytes] = []
        consumer = PushConsumer(quick(mq), "g", lambda message: received.append(message.body))
        consumer.subscribe("late")
        async with consumer:
            await send(mq, "late", 10)
            await until(lambda: len(received) == 10)

    run(scenario)


def test_a_new_group_reads_a_young_queue_from_its_first_message_also_when_it_wants_to_begin_at_the_end() -> (
    None
):
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, "T", 10)
        received: list[bytes] = []
        settings = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
        consumer = PushConsumer(
            mq.name_server, "g", lambda message: received.append(message.body), settings=settings
        )
        consumer.subscribe("T")
        async with consumer:
            await until(lambda: len(received) == 10)

    run(scenario)


def test_a_group_that_never_consumed_a_young_queue_has_no_offset_there() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, "T", 10)
        async with PullConsumer(mq.name_server, "plain") as plain:
            assert [await plain.fetch_offset(queue) for queue in await plain.queues("T")] == [
                None,
                None,
            ]
        lite = LitePullConsumer(
            mq.name_server, "lite", settings=LitePullSettings(auto_commit=False)
        )
        lite.subscribe("T")
        async with lite:
            assert await lite.poll()
            assert [await lite.committed(queue) for queue in lite.assignment] == [None, None]

    run(scenario)


def test_where_it_began_in_a_young_queue_is_kept_although_nothing_was_consumed_there() -> None:
    async def scenario(mq: LocalCluster) -> None:
        await send(mq, "T", 10)

        async def refuse(_: object) -> None:
            await asyncio.sleep(60)

        consumer = PushConsumer(
            mq.name_server, "g", refuse, settings=ConsumerSettings(close_timeout_ms=1)
        )
        consumer.subscribe("T")
        async with consumer:
            await until(lambda: sum(report.cached_count for report in consumer.reports()) == 10)
        async with PullConsumer(mq.name_server, "g") as plain:
            assert [await plain.fetch_offset(queue) for queue in await plain.queues("T")] == [0, 0]

    run(scenario)


def test_a_first_message_that_comes_between_two_questions_of_a_new_group_is_read() -> None:
    """As clients of Apache ask: how far the group is, and if nobody knows, where the queue ends."""

    async def scenario(client: RemotingClient, mq: LocalCluster) -> None:
        fields = {"consumerGroup": "new", "topic": "T", "queueId": "0"}
        told = await client.invoke(
            mq.broker_address(),
            RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields),
        )
        await client.invoke(mq.broker_address(), send_request("T", b"first"))
        end = await client.invoke(
            mq.broker_address(), RemotingCommand(RequestCode.GET_MAX_OFFSET, ext_fields=fields)
        )
        begin = (told if told.code == ResponseCode.SUCCESS else end).ext_fields or {}
        pulled = await client.invoke(mq.broker_address(), pull_request("T", int(begin["offset"])))
        assert [message.body for message in decode_all(pulled.body or b"")] == [b"first"]

    with LocalCluster(topics={"T": 2}) as mq:
        asked(lambda client: scenario(client, mq))
