"""Membership in a consumer group: subscriptions, the queues assigned to this member, and where it
starts to read them.

Knows nothing of how messages are read or consumed. The consumer is notified of assigned and revoked
queues by `queues_changed`, and handles the requests of brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from orbitmq.client.checks import check_topic
from orbitmq.client.consumer.broker_requests import BrokerRequestHandler, ManagedConsumer
from orbitmq.client.consumer.offset_store import OffsetStore
from orbitmq.client.consumer.pulling import check_expression, subscription
from orbitmq.client.consumer.queue_offsets import max_offset, offset_at
from orbitmq.client.consumer.rebalance import Averagely, Strategy, allocate
from orbitmq.client.session.client_session import ClientSession, MemberHandler
from orbitmq.client.session.routes import TopicRoute, broker_addresses
from orbitmq.common.errors import NotFoundError, OrbitError, RemoteError, RequestRefusedError
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.protocol.bodies.clients import ConsumerData, MessageQueue, decode_consumer_ids
from orbitmq.protocol.bodies.subscriptions import (
    TAG,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.clients import GetConsumerListByGroupRequestHeader

REBALANCE_PERIOD_S: Final = 20.0
_HALF_AN_HOUR_MS: Final = 30 * 60_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How a group shares its queues and where it starts; all members must use the same."""

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    # Where to start in queues without a committed offset.
    consume_from: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_from_ms: int | None = None  # for CONSUME_FROM_TIMESTAMP; default: half an hour ago
    strategy: Strategy = field(default_factory=Averagely)
    # Offset files of broadcast groups.
    offsets_folder: Path = field(default_factory=lambda: Path.home() / ".rocketmq_offsets")


class GroupConsumer(ManagedConsumer, Protocol):
    """The consumer behind a membership."""

    async def queues_changed(self, queues: frozenset[MessageQueue]) -> None:
        """Consume these queues, and no others, from now on."""
        ...

    def refused(self, problem: RequestRefusedError) -> None:
        """A broker refused a pull or the list of members; both are retried."""
        ...


class Membership:
    """Joins a group, subscribes topics, and keeps the member's share of queues up to date."""

    def __init__(
        self,
        session: ClientSession,
        group: str,
        settings: GroupSettings,
        offsets: OffsetStore,
        consumer: GroupConsumer,
    ) -> None:
        self.session = session
        self.group = session.names.wire(group)
        self.settings = settings
        self.offsets = offsets
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.queues: frozenset[MessageQueue] = frozenset()
        # Queues given by `assign`; None: the group shares the queues.
        self.assigned: frozenset[MessageQueue] | None = None
        self._consumer = consumer
        self._handlers = BrokerRequestHandler(consumer, session.names).handlers()
        self._wake = asyncio.Event()
        self._rebalancing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._has_news = False  # subscriptions changed since the last heartbeat

    @property
    def is_clustering(self) -> bool:
        """Whether the members share the queues (as opposed to broadcast)."""
        return self.settings.message_model is MessageModel.CLUSTERING

    def subscribe(self, topic: str, expression: str = "*", kind: str = TAG) -> None:
        """Subscribe to a topic; raise InvalidStateError if its name is invalid."""
        topic = self.session.names.wire(topic)
        check_topic(topic)
        self.subscriptions[topic] = subscription(
            topic, expression, kind, self.session.clock.now_ms()
        )
        self._has_news = True
        self.rebalance_soon()

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic."""
        self.subscriptions.pop(self.session.names.wire(topic), None)
        self._has_news = True
        self.rebalance_soon()

    async def assign(
        self, queues: Iterable[MessageQueue], expression: str = "*", kind: str = TAG
    ) -> None:
        """Read exactly these queues, regardless of other members."""
        self.assigned = frozenset(queues)
        self.subscriptions = {
            queue.topic: subscription(queue.topic, expression, kind) for queue in self.assigned
        }
        if self._task is not None:
            await self.rebalance()

    async def start(self) -> None:
        """Join the group, and take part in sharing its queues."""
        self.offsets.open()
        # Pull consumers send no messages back for redelivery.
        if self.is_clustering and self.settings.consume_type is not ConsumeType.CONSUME_ACTIVELY:
            self.subscribe(RETRY_PREFIX + self.group)
        for topic, wanted in tuple(self.subscriptions.items()):
            try:
                route = await self.session.route(topic)
            except NotFoundError:
                # The broker creates the retry topic with the group's first heartbeat.
                if not topic.startswith(RETRY_PREFIX):
                    log.warning(
                        "topic_not_there topic=%s group=%s; it will be consumed once it exists",
                        topic,
                        self.group,
                    )
            else:
                for address in broker_addresses([route], masters_only=False):
                    # Checked again before the first pull.
                    with contextlib.suppress(RemoteError):
                        await check_expression(self.session, address, self.group, wanted)
        await self.session.join(self)
        self._has_news = False
        await self.session.heartbeat()
        await self.rebalance()
        self._task = asyncio.create_task(self._rebalance_forever())

    async def stop(self) -> None:
        """Release the queues, and leave the group."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.queues = frozenset()
        await self._consumer.queues_changed(self.queues)
        await self.offsets.close()
        await self.session.leave(self)

    # -- as a member of its session

    @property
    def producer_group(self) -> str | None:
        return None

    def consumer_data(self) -> ConsumerData:
        settings = self.settings
        # Other members need not agree with the subscriptions of assigned queues.
        shared = tuple(self.subscriptions.values()) if self.assigned is None else ()
        return ConsumerData(
            self.group, settings.consume_type, settings.message_model, settings.consume_from, shared
        )

    def topics(self) -> Iterable[str]:
        return tuple(self.subscriptions)

    async def routes_changed(self) -> None:
        self.rebalance_soon()

    def serves(self) -> Mapping[int, MemberHandler]:
        return self._handlers

    # -- sharing

    def refused(self, problem: RequestRefusedError) -> None:
        """Report a refused pull to the consumer."""
        self._consumer.refused(problem)

    def rebalance_soon(self) -> None:
        """Rebalance at the next opportunity: members or routes changed."""
        self._wake.set()

    async def rebalance(self) -> None:
        """Recompute which queues this member owns; if that fails for a topic, it keeps those it
        has.
        """
        async with self._rebalancing:
            await self._rebalance()

    async def _rebalance(self) -> None:
        found: set[MessageQueue] = set()
        for topic in tuple(self.subscriptions):
            try:
                found |= await self._share(topic)
            except OrbitError as problem:
                if isinstance(problem, RequestRefusedError):
                    self._consumer.refused(problem)
                log.info("not_rebalanced group=%s topic=%s why='%s'", self.group, topic, problem)
                found |= {queue for queue in self.queues if queue.topic == topic}
        if found != self.queues:
            log.info(
                "queues_changed group=%s client=%s from=%d to=%d",
                self.group,
                self.session.client_id,
                len(self.queues),
                len(found),
            )
            self.queues = frozenset(found)
            await self._consumer.queues_changed(self.queues)
            now_ms = self.session.clock.now_ms()
            self.subscriptions = {
                topic: replace(wanted, sub_version=now_ms)
                for topic, wanted in self.subscriptions.items()
            }
            self._has_news = True
        if self._has_news:
            self._has_news = False
            await self.session.heartbeat()

    async def _share(self, topic: str) -> set[MessageQueue]:
        if self.assigned is not None:
            return {queue for queue in self.assigned if queue.topic == topic}
        route = await self.session.route(topic)
        if not self.is_clustering:
            return set(route.read_queues)
        # Brokers of a newly subscribed topic may not know this member yet.
        await self.session.announce()
        return set(
            allocate(
                self.settings.strategy,
                route.read_queues,
                await self.members(route),
                self.session.client_id,
            )
        )

    async def members(self, route: TopicRoute) -> set[str]:
        """Return the ids of all group members, from the first broker of a topic that replies."""
        request = RemotingCommand.request(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            GetConsumerListByGroupRequestHeader(consumer_group=self.group),
        )
        last: OrbitError = NotFoundError(
            f"no broker of topic {route.topic} is registered at the moment"
        )
        for name in route.addresses:
            found = route.reader(name, 0)
            if found is not None:
                try:
                    response = await self.session.ask(found[0], request)
                except OrbitError as problem:
                    last = problem
                else:
                    return set(decode_consumer_ids(response.body or b"{}"))
        raise last

    async def why_no_queue(self, topic: str) -> str | None:
        """Explain why this member has no queue of a subscribed topic; return None if it has one."""
        if any(queue.topic == topic for queue in self.queues):
            return None
        try:
            route = await self.session.route(topic)
            if not route.read_queues:
                return (
                    f"topic {topic} is not readable: none of its queues has read permission; an"
                    " operator can grant it (perm 6)"
                )
            if not self.is_clustering:
                return (
                    f"topic {topic}: its queues will be assigned at the next rebalance, every"
                    f" {REBALANCE_PERIOD_S:.0f} s"
                )
            members = sorted(await self.members(route))
        except OrbitError as problem:
            return str(problem)
        if self.session.client_id not in members:
            period_ms = self.session.settings.heartbeat_ms
            return (
                f"topic {topic}: its broker does not know this member yet; heartbeats are sent"
                f" every {period_ms} ms"
            )
        if len(members) > len(route.read_queues):
            return (
                f"topic {topic} has {len(route.read_queues)} queues for {len(members)} members, so"
                " some get none: add queues"
            )
        return (
            f"topic {topic}: the strategy assigned its queues to other members:"
            f" {', '.join(members)}"
        )

    async def _rebalance_forever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(REBALANCE_PERIOD_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self.rebalance()
            except Exception:
                log.exception("rebalance_failed group=%s", self.group)

    # -- where to begin

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return where to start reading a queue: the group's offset, else the configured start.

        Raises OrbitError if it cannot be determined at the moment.
        """
        known = await self.offsets.read(queue)
        if known is not None:
            return known
        where, is_retry = self.settings.consume_from, queue.topic.startswith(RETRY_PREFIX)
        # All messages in a retry topic belong to the group, however old they are.
        if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET or is_retry:
            return 0
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            begin_ms = self.settings.consume_from_ms
            if begin_ms is None:
                begin_ms = self.session.clock.now_ms() - _HALF_AN_HOUR_MS
            return await offset_at(self.session, queue, begin_ms)
        end = await max_offset(self.session, queue)
        if end == 0:
            return 0
        # RocketMQ 5.5 returns no offset for an empty queue, whose first message may have arrived
        # since.
        known = await self.offsets.read(queue)
        return end if known is None else known
