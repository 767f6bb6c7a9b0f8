"""A cluster in this process, and consumers of it, for tests of the client library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from orbitmq.client.consumer.listeners import Listener
from orbitmq.client.consumer.push_consumer import ConsumerSettings, PushConsumer
from orbitmq.embedded.cluster import ClusterSettings, EmbeddedCluster
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere

FROM_FIRST = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


def run(scenario: Callable[[EmbeddedCluster], Awaitable[None]], **broker: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            cluster = EmbeddedCluster(ClusterSettings(broker=broker))
            await cluster.start()
            try:
                await scenario(cluster)
            finally:
                await cluster.stop()

    asyncio.run(main())


@asynccontextmanager
async def consuming(
    cluster: EmbeddedCluster,
    listener: Listener,
    *topics: tuple[str, str],
    group: str = "g",
    settings: ConsumerSettings = FROM_FIRST,
) -> AsyncIterator[PushConsumer]:
    consumer = PushConsumer(cluster.name_server_address, group, listener, settings=settings)
    for topic, expression in topics or (("T", "*"),):
        consumer.subscribe(topic, expression)
    async with consumer:
        yield consumer
