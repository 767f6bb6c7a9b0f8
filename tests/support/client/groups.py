"""Members of a consumer group without sockets: real memberships, and brokers that are dictionaries
of who sent a heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from orbitmq.client.consumer.membership import GroupConsumer, GroupSettings, Membership
from orbitmq.client.consumer.offset_store import OffsetStore
from orbitmq.client.consumer.rebalance import Averagely, Strategy
from orbitmq.client.session.client_session import ClientSession
from orbitmq.client.session.routes import TopicRoute
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import NotFoundError, RemoteUnavailableError
from orbitmq.common.slices import finish
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.protocol.bodies.clients import MessageQueue, encode_consumer_ids
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.testing.manual_clock import ManualClock

TOPIC, GROUP = "T", "g"


class Brokers:
    """Who is known where, and how many queues of the topic are there."""

    def __init__(self, names: tuple[str, ...] = ("broker-a", "broker-b")) -> None:
        self.known: dict[str, set[str]] = {name: set() for name in names}
        self.queue_counts = dict.fromkeys(names, 2)
        self.away: set[str] = set()
        self.cut: set[tuple[str, str]] = set()  # a member whose heartbeats do not reach a broker

    def route(self, topic: str) -> TopicRoute:
        counts: Mapping[str, int] = (
            dict.fromkeys(self.known, 1) if topic.startswith(RETRY_PREFIX) else self.queue_counts
        )
        queues = tuple(
            MessageQueue(topic, name, number)
            for name, count in counts.items()
            for number in range(count)
        )
        return TopicRoute(topic, queues, queues, {name: {0: name} for name in self.known})

    def reach(self, member: str) -> list[set[str]]:
        """What the brokers know that hear a member now."""
        return [
            known
            for name, known in self.known.items()
            if name not in self.away and (member, name) not in self.cut
        ]


class Session:
    """What a session is to a membership."""

    def __init__(self, brokers: Brokers, client_id: str) -> None:
        self.settings = ClientSettings()
        self.clock = ManualClock()
        self.names = self.settings.names
        self.client_id = client_id
        self._brokers = brokers
        self._has_member = False

    async def route(self, topic: str) -> TopicRoute:
        if topic not in (TOPIC, RETRY_PREFIX + GROUP):
            raise NotFoundError(f"no route to topic {topic}")
        return self._brokers.route(topic)

    async def join(self, _: object) -> None:
        self._has_member = True

    async def leave(self, _: object) -> None:
        self._has_member = False
        for known in self._brokers.reach(self.client_id):
            known.discard(self.client_id)

    async def heartbeat(self) -> None:
        if self._has_member:
            for known in self._brokers.reach(self.client_id):
                known.add(self.client_id)

    announce = heartbeat

    async def ask(
        self, address: str, request: RemotingCommand, _timeout_ms: int | None = None
    ) -> RemotingCommand:
        assert request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP
        await asyncio.sleep(0)
        if address in self._brokers.away:
            raise RemoteUnavailableError(f"{address} is away")
        return request.reply(
            ResponseCode.SUCCESS,
            body=finish(encode_consumer_ids(sorted(self._brokers.known[address]))),
        )


class Consumer:
    """Remembers which queues it was told that are its own."""

    def __init__(self) -> None:
        self.queues: frozenset[MessageQueue] = frozenset()

    async def queues_changed(self, queues: frozenset[MessageQueue]) -> None:
        await asyncio.sleep(0)
        self.queues = queues


class Offsets:
    """Of nobody."""

    def open(self) -> None: ...

    async def close(self) -> None: ...


class Member:
    """A membership and whoever consumes for it."""

    def __init__(self, brokers: Brokers, client_id: str, strategy: Strategy | None = None) -> None:
        self.client_id = client_id
        self.consumer = Consumer()
        self.session = Session(brokers, client_id)
        self.membership = Membership(
            cast("ClientSession", self.session),
            GROUP,
            GroupSettings(strategy=strategy or Averagely()),
            cast("OffsetStore", Offsets()),
            cast("GroupConsumer", self.consumer),
        )
        self.membership.subscribe(TOPIC)

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """Those of the topic."""
        return frozenset(queue for queue in self.consumer.queues if queue.topic == TOPIC)
