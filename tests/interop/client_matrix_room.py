"""Clusters that the client library is tried with: the originals 5.5.0 and 4.9.7, and ours; with
`mqadmin` and Java clients beside it.

Invariant: whatever a room started has ended when its `with` block is left. `mqadmin` and Java
clients start when they are first needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from interop.apache import Release
from interop.broker_clients import Cluster, admin, original_cluster, our_cluster
from interop.java_peer import JavaPeer, java_peer
from interop.programs import Admin
from orbitmq import (
    ClientSettings,
    ConsumeFromWhere,
    ConsumerSettings,
    LitePullSettings,
    Message,
    MessageQueue,
    Producer,
    ProducerSettings,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from orbitmq.client.consumer.listeners import Listener
from support.common.waiting import until

ORIGINALS = ("5.5.0", "4.9.7")
OURS = "ours"
EVERY = (*ORIGINALS, OURS)
JAVA_CLIENTS = ("5.5.0", "4.9.8")
BESIDE_JAVA = (
    *((version, version) for version in ORIGINALS),
    *((OURS, version) for version in JAVA_CLIENTS),
)  # a broker, a client
SETTINGS: Mapping[str, object] = {
    "traceTopicEnable": "true",
    "enablePropertyFilter": "true",
    "messageDelayLevel": " ".join(["1s"] * 18),  # so that what comes again comes soon
    "timerWheelEnable": "true",
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
    "transactionCheckMax": 1000,
}
TIMEOUT_MS = 15_000  # a machine that is busy must not make a call fail
UNICODE = "Größe 日本語 𝄞"
FROM_FIRST = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
PULLS_FROM_FIRST = LitePullSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


class Room:
    """One cluster, and whatever else is needed there."""

    def __init__(self, name: str, cluster: Cluster, home: Path, opened: ExitStack) -> None:
        self.name = name
        self.cluster = cluster
        self.home = home
        self.client = ClientSettings(
            name_servers=cluster.name_server.address, timeout_ms=TIMEOUT_MS
        )
        self._opened = opened
        self._admin: Admin | None = None
        self._peers: dict[str, JavaPeer] = {}

    @property
    def address(self) -> str:
        """That of the name server."""
        return self.cluster.name_server.address

    def topic(self, name: str, queues: int = 4) -> str:
        """A new topic with so many queues."""
        self.cluster.make_topics({name: queues})
        return name

    async def mqadmin(self, *words: str) -> str:
        """What the cluster's own `mqadmin` prints, that of 5.5.0 for ours."""
        if self._admin is None:
            self._admin = self._opened.enter_context(
                admin(tools_of(self.name), self.home / "admin")
            )
        return await asyncio.to_thread(self._admin, *words, "-n", self.cluster.name_server.address)

    def peer(self, version: str) -> JavaPeer:
        """The Java client of a release."""
        if version not in self._peers:
            peer = java_peer(
                Release(version).fetch(),
                self.home / f"peer-{version}",
                self.cluster.name_server.address,
            )
            self._peers[version] = self._opened.enter_context(peer)
        return self._peers[version]

    def restart_broker(self) -> None:
        """Stop the broker in order, and start it again; it comes back with all it had."""
        broker = self.cluster.broker
        broker.stop()
        broker.start()
        broker.wait_ready()
        self.cluster.wait_registered()

    def producer(self, settings: ProducerSettings | None = None) -> Producer:
        return Producer(
            self.client, settings=replace(settings or ProducerSettings(), timeout_ms=TIMEOUT_MS)
        )

    def consumer(
        self,
        topic: str,
        listener: Listener,
        expression: str = "*",
        *,
        settings: ConsumerSettings = FROM_FIRST,
    ) -> PushConsumer:
        """One that subscribes a topic, in the group that is called after it."""
        consumer = PushConsumer(self.client, f"consumers-of-{topic}", listener, settings=settings)
        consumer.subscribe(topic, expression)
        return consumer

    async def stored(self, topic: str, count: int) -> list[ReceivedMessage]:
        """All that the queues of a topic have, queue by queue, once that is so many: originals
        answer before a message is in its queue.
        """
        async with PullConsumer(self.client, "readers") as reader:

            async def found() -> list[ReceivedMessage] | None:
                if not self.cluster.has_route(topic):  # some come with their first message
                    return None
                messages = [
                    message
                    for queue in await reader.queues(topic)
                    async for message in _all_of(reader, queue)
                ]
                return messages if len(messages) >= count else None

            return await until(found, f"{count} messages in {topic}")


async def _all_of(reader: PullConsumer, queue: MessageQueue) -> AsyncIterator[ReceivedMessage]:
    at, end = await reader.min_offset(queue), await reader.max_offset(queue)
    while at < end:
        found = await reader.pull(queue, at)
        at = found.next_offset
        for message in found.messages:
            yield message


def cluster_of(
    name: str, home: Path, settings: Mapping[str, object] | None = None
) -> AbstractContextManager[Cluster]:
    """A name server and a broker: ours, or those of the release of that name."""
    return (
        our_cluster(home, settings)
        if name == OURS
        else original_cluster(Release(name).fetch(), home, settings)
    )


def tools_of(name: str) -> Release:
    """The release whose `mqadmin` and clients are used there: that of 5.5.0 for ours."""
    return Release(ORIGINALS[0] if name == OURS else name).fetch()


@contextmanager
def opened_room(name: str, home: Path) -> Iterator[Room]:
    """The cluster of that name."""
    with ExitStack() as opened:
        yield Room(name, opened.enter_context(cluster_of(name, home, SETTINGS)), home, opened)


def run(scenario: Callable[[], Awaitable[None]], within_s: float = 60.0) -> None:
    async def main() -> None:
        async with asyncio.timeout(within_s):
            await scenario()

    asyncio.run(main())


async def fill(producer: Producer, topic: str, *texts: str) -> None:
    """Send these, one after the other."""
    for text in texts:
        await producer.send(Message(topic, text.encode()))


def bodies(messages: Iterable[ReceivedMessage]) -> list[str]:
    """In order, so that none is missed that came twice."""
    return sorted(message.body.decode() for message in messages)


def names(prefix: str, numbers: Iterable[int]) -> list[str]:
    """`prefix 007` and so on: in the order of their numbers, also as texts."""
    return [f"{prefix} {number:03d}" for number in numbers]
