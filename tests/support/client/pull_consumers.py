"""What tests of consumers that ask for messages share: a cluster with the topic T, messages with
numbers, and polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from orbitmq import (
    ConsumeFromWhere,
    LitePullConsumer,
    LitePullSettings,
    Message,
    Producer,
    ReceivedMessage,
)
from orbitmq.testing import LocalCluster

FROM_FIRST = LitePullSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
BY_HAND = replace(FROM_FIRST, auto_commit=False)


def run(scenario: Callable[[LocalCluster], Awaitable[None]], queues: int = 4) -> None:
    async def main(mq: LocalCluster) -> None:
        async with asyncio.timeout(100):
            await scenario(mq)

    with LocalCluster(topics={"T": queues}) as mq:
        asyncio.run(main(mq))


def subscribed(
    mq: LocalCluster,
    settings: LitePullSettings = FROM_FIRST,
    expression: str = "*",
    group: str = "g",
) -> LitePullConsumer:
    consumer = LitePullConsumer(mq.name_server, group, settings=settings)
    consumer.subscribe("T", expression)
    return consumer


async def send(
    mq: LocalCluster, numbers: Sequence[int], tags: Sequence[str | None] = (None,)
) -> None:
    async with Producer(mq.name_server) as producer:
        for at, number in enumerate(numbers):
            await producer.send(Message("T", b"%d" % number, tags=tags[at % len(tags)]))


async def polled(
    consumer: LitePullConsumer, count: int, count_max: int = 7
) -> list[ReceivedMessage]:
    """So many messages, by as many polls as that takes."""
    found: list[ReceivedMessage] = []
    while len(found) < count:
        found += await consumer.poll(count_max=min(count_max, count - len(found)))
    return found


def numbers(messages: Sequence[ReceivedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)
