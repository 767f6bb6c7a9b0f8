"""A member of a consumer group: what it subscribes, which queues are its own, and where it begins to read them.

Knows nothing of how messages are read or consumed. Whoever consumes is told of queues that come and go by `queues_changed`, and answers
what brokers ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from orbitmq.client.name_checks import check_topic
from orbitmq.client.offset_store import OffsetStore
from orbitmq.client.pulling import check_expression, subscription
from orbitmq.client.queue_offsets import max_offset, offset_at
from orbitmq.client.rebalance import Averagely, Strategy, allocate
from orbitmq.client.routes import TopicRoute, broker_addresses
from orbitmq.client.served import AskedConsumer, ConsumerAnswers
from orbitmq.client.session import ClientSession, MemberHandler
from orbitmq.common.errors import NotFound, OrbitError, RemoteError
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.protocol.bodies.clients import ConsumerData, MessageQueue, decode_consumer_ids
from orbitmq.protocol.bodies.subscriptions import TAG, ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.clients import GetConsumerListByGroupRequestHeader

REBALANCE_PERIOD_S: Final = 20.0
_HALF_AN_HOUR_MS: Final = 30 * 60_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How a group shares and begins its queues; all its members must say the same."""

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    consume_from: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET  # where it has no offsets yet
    consume_from_ms: int | None = None  # for CONSUME_FROM_TIMESTAMP; half an hour ago when it is not set
    strategy: Strategy = field(default_factory=Averagely)
    offsets_folder: Path = field(default_factory=lambda: Path.home() / ".rocketmq_offsets")  # of broadcasting


class GroupConsumer(AskedConsumer, Protocol):
    """Whoever consumes for a membership."""

    async def queues_changed(self, queues: frozenset[MessageQueue]) -> None:
        """These are its own from now on."""
        ...


class Membership:
    """See above."""

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
        self.assigned: frozenset[MessageQueue] | None = None  # given to it by `assign`; None: the group shares
        self._consumer = consumer
        self._handlers = ConsumerAnswers(consumer, session.names).handlers()
        self._wake = asyncio.Event()
        self._rebalancing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._has_news = False  # what is subscribed changed, and brokers have not heard of it

    @property
    def is_clustering(self) -> bool:
        return self.settings.message_model is MessageModel.CLUSTERING

    def subscribe(self, topic: str, expression: str = "*", kind: str = TAG) -> None:
        """Want messages of a topic; WrongCall when none can have that name."""
        topic = self.session.names.wire(topic)
        check_topic(topic)
        self.subscriptions[topic] = subscription(topic, expression, kind, self.session.clock.now_ms())
        self._has_news = True
        self.rebalance_soon()

    def unsubscribe(self, topic: str) -> None:
        """Want none of its messages any more."""
        self.subscriptions.pop(self.session.names.wire(topic), None)
        self._has_news = True
        self.rebalance_soon()

    async def assign(self, queues: Iterable[MessageQueue], expression: str = "*", kind: str = TAG) -> None:
        """Have these queues and no others, whoever else of the group has them."""
        self.assigned = frozenset(queues)
        self.subscriptions = {queue.topic: subscription(queue.topic, expression, kind) for queue in self.assigned}
        if self._task is not None:
            await self.rebalance()

    async def start(self) -> None:
        """Join the group, and share its queues from now on."""
        self.offsets.open()
        if self.is_clustering and self.settings.consume_type is not ConsumeType.CONSUME_ACTIVELY:  # who pulls, sends nothing back
            self.subscribe(RETRY_PREFIX + self.group)
        for topic, wanted in tuple(self.subscriptions.items()):
            try:
                route = await self.session.route(topic)
            except NotFound:
                if not topic.startswith(RETRY_PREFIX):  # that one the broker makes when it hears of the group
                    log.warning("topic_not_there topic=%s group=%s; it is read once it exists", topic, self.group)
            else:
                for address in broker_addresses([route], masters_only=False):
                    with contextlib.suppress(RemoteError):  # it is asked again before the first pull
                        await check_expression(self.session, address, self.group, wanted)
        await self.session.join(self)
        self._has_news = False
        await self.session.heartbeat()
        await self.rebalance()
        self._task = asyncio.create_task(self._rebalance_forever())

    async def stop(self) -> None:
        """Give the queues up, and leave."""
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
        shared = tuple(self.subscriptions.values()) if self.assigned is None else ()  # what others of the group need not agree with
        return ConsumerData(self.group, settings.consume_type, settings.message_model, settings.consume_from, shared)

    def topics(self) -> Iterable[str]:
        return tuple(self.subscriptions)

    async def routes_changed(self) -> None:
        self.rebalance_soon()

    def serves(self) -> Mapping[int, MemberHandler]:
        return self._handlers

    # -- sharing

    def rebalance_soon(self) -> None:
        """Somebody came or went."""
        self._wake.set()

    async def rebalance(self) -> None:
        """Work out anew which queues are this member's; where that cannot be told, it keeps those of the topic."""
        async with self._rebalancing:
            await self._rebalance()

    async def _rebalance(self) -> None:
        found: set[MessageQueue] = set()
        for topic in tuple(self.subscriptions):
            try:
                found |= await self._share(topic)
            except OrbitError as problem:
                log.info("not_rebalanced group=%s topic=%s why='%s'", self.group, topic, problem)
                found |= {queue for queue in self.queues if queue.topic == topic}
        if found != self.queues:
            log.info("queues_changed group=%s client=%s from=%d to=%d", self.group, self.session.client_id, len(self.queues), len(found))
            self.queues = frozenset(found)
            await self._consumer.queues_changed(self.queues)
            now_ms = self.session.clock.now_ms()
            self.subscriptions = {topic: replace(wanted, sub_version=now_ms) for topic, wanted in self.subscriptions.items()}
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
        await self.session.introduce()  # a topic that was subscribed just now may have brokers that know nothing of this member
        return set(allocate(self.settings.strategy, route.read_queues, await self.members(route), self.session.client_id))

    async def members(self, route: TopicRoute) -> set[str]:
        """The ids of all members of the group, as the first broker of a topic knows them that answers."""
        request = RemotingCommand.request(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(consumer_group=self.group)
        )
        last: OrbitError = NotFound(f"no broker of topic {route.topic} is registered now")
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
        """Why this member has no queue of a topic that it wants; None when it has one."""
        if any(queue.topic == topic for queue in self.queues):
            return None
        try:
            route = await self.session.route(topic)
            if not route.read_queues:
                return f"topic {topic} may not be read: none of its queues has the permission, which an operator can give (perm 6)"
            if not self.is_clustering:
                return f"topic {topic}: its queues are taken up at the next look, one every {REBALANCE_PERIOD_S:.0f} s"
            members = sorted(await self.members(route))
        except OrbitError as problem:
            return str(problem)
        if self.session.client_id not in members:
            period_ms = self.session.settings.heartbeat_ms
            return f"topic {topic}: its broker does not know this member yet; a heartbeat goes out every {period_ms} ms"
        if len(members) > len(route.read_queues):
            return f"topic {topic} has {len(route.read_queues)} queues for {len(members)} members: some get none; add queues"
        return f"topic {topic}: the strategy gave its queues to other members: {', '.join(members)}"

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
        """Where to begin reading a queue: where the group is, else where it wants to begin; OrbitError when nobody can tell now."""
        known = await self.offsets.read(queue)
        if known is not None:
            return known
        where, is_retry = self.settings.consume_from, queue.topic.startswith(RETRY_PREFIX)
        if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET or is_retry:  # what comes again is the group's own, whenever it came
            return 0
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            begin_ms = self.settings.consume_from_ms
            if begin_ms is None:
                begin_ms = self.session.clock.now_ms() - _HALF_AN_HOUR_MS
            return await offset_at(self.session, queue, begin_ms)
        end = await max_offset(self.session, queue)
        if end == 0:
            return 0
        known = await self.offsets.read(queue)  # 5.5 tells no offset of an empty queue: its first message may have come since
        return end if known is None else known
