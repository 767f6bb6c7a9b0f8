"""What the producers and consumers of one client share: connections, routes, heartbeats.

Routes are asked for when they are first needed and kept up to date until the session ends; a heartbeat tells every broker of those routes
who is here. Who they are, members say themselves. Thread rule: the loop of whoever started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

from orbitmq.client.routes import MASTER_ID, TopicRoute, broker_addresses
from orbitmq.client.settings import ClientSettings
from orbitmq.common.clock import Clock, SystemClock
from orbitmq.common.errors import NotFound, OrbitError, RemoteError, RemoteUnavailable, RequestRefused
from orbitmq.protocol.bodies.clients import ConsumerData, HeartbeatData, MessageQueue
from orbitmq.protocol.bodies.nameserver import ClusterInfo, TopicRouteData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.clients import UnregisterClientRequestHeader
from orbitmq.protocol.headers.nameserver import GetRouteInfoRequestHeader
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.dispatch import Dispatcher
from orbitmq.remoting.name_servers import NameServerList, look_up, split_address

LOOK_UP_PERIOD_S: Final = 120.0
_VIP_DISTANCE: Final = 2

log = logging.getLogger(__name__)


class Member(Protocol):
    """A producer or consumer of a session."""

    @property
    def producer_group(self) -> str | None: ...

    def consumer_data(self) -> ConsumerData | None: ...

    def topics(self) -> Iterable[str]:
        """The topics whose routes it wants kept up to date."""
        ...

    async def routes_changed(self) -> None: ...


class ClientSession:
    """From `start` to `close`."""

    def __init__(self, settings: ClientSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.client_id = settings.client_id()
        self.dispatcher = Dispatcher(self.clock)
        self.client = RemotingClient(
            settings.remoting_config(), self.clock, dispatcher=self.dispatcher, name_servers=NameServerList(settings.known_name_servers())
        )
        self.members: list[Member] = []
        self._routes: dict[str, TopicRoute] = {}
        self._fetches: dict[str, asyncio.Task[TopicRoute]] = {}
        self._timers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Find the name servers, and keep everything up to date from now on."""
        if self._timers:
            return
        settings = self.settings
        if settings.address_server and not settings.known_name_servers():
            await self._look_up()
            self._timers.append(asyncio.create_task(_repeat(LOOK_UP_PERIOD_S, self._look_up)))
        self._timers += [
            asyncio.create_task(_repeat(settings.route_refresh_ms / 1000, self.refresh_routes)),
            asyncio.create_task(_repeat(settings.heartbeat_ms / 1000, self.heartbeat)),
        ]

    async def close(self) -> None:
        """Tell the brokers that the members leave, and close every connection."""
        for task in self._timers:
            task.cancel()
        await asyncio.gather(*self._timers, *self._fetches.values(), return_exceptions=True)
        self._timers = []
        for member in list(self.members):
            await self.leave(member)
        await self.client.close()

    async def join(self, member: Member) -> None:
        """Have heartbeats tell of a member."""
        self.members.append(member)
        await self.start()

    async def leave(self, member: Member) -> None:
        """Tell every broker that a member is gone, so that others take over at once."""
        self.members.remove(member)
        consumer = member.consumer_data()
        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=member.producer_group,
            consumer_group=None if consumer is None else consumer.group,
        )
        addresses = self.broker_addresses()
        await asyncio.gather(*(self._try(address, RequestCode.UNREGISTER_CLIENT, header) for address in addresses))

    # -- routes

    async def route(self, topic: str) -> TopicRoute:
        """Where the queues of a topic are; NotFound says why nowhere. One question for all who ask at the same time."""
        found = self._routes.get(topic)
        if found is not None:
            return found
        fetch = self._fetches.get(topic)
        if fetch is None:
            fetch = self._fetches[topic] = asyncio.create_task(self._fetch(topic))
            fetch.add_done_callback(lambda _: self._fetches.pop(topic, None))
        return await asyncio.shield(fetch)

    def forget_route(self, topic: str) -> None:
        """Ask for it again when it is needed next: it led nowhere."""
        self._routes.pop(topic, None)

    def known_route(self, topic: str) -> TopicRoute | None:
        return self._routes.get(topic)

    async def _fetch(self, topic: str) -> TopicRoute:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        response = await self.client.invoke_name_server(request, self.settings.timeout_ms)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NotFound(await self._why_no_route(topic))
        if response.code != ResponseCode.SUCCESS or response.body is None:
            raise RequestRefused(response.code, f"the route of topic {topic} was refused: {response.remark}")
        route = self._routes[topic] = TopicRoute.of(topic, TopicRouteData.decode(response.body))
        return route

    async def _why_no_route(self, topic: str) -> str:
        response = await self.client.invoke_name_server(
            RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO), self.settings.timeout_ms
        )
        brokers = sorted(ClusterInfo.decode(response.body).brokers) if response.body else []
        if not brokers:
            return f"no route to topic {topic}: no broker is registered; start one with namesrvAddr set to these name servers"
        return f"no route to topic {topic}: none of the brokers ({', '.join(brokers)}) has it; create it, or check its spelling"

    async def refresh_routes(self) -> None:
        """Ask for every route again that a member wants or that was used; members hear when one has changed."""
        wanted = {topic for member in self.members for topic in member.topics()}.union(self._routes)
        before = dict(self._routes)
        for topic in wanted:
            with contextlib.suppress(OrbitError):  # what is known stays
                await self._fetch(topic)
        if before != self._routes:
            for member in list(self.members):
                await member.routes_changed()

    # -- brokers

    def broker_addresses(self) -> dict[str, str]:
        """Who gets heartbeats: all brokers of known routes if there are consumers, else the masters."""
        has_consumers = any(member.consumer_data() is not None for member in self.members)
        return broker_addresses(self._routes.values(), masters_only=not has_consumers)

    async def broker_of(self, queue: MessageQueue) -> str:
        """Where the broker of a queue is: its master, or a replica while there is none."""
        found = (await self.route(queue.topic)).reader(queue.broker_name, MASTER_ID)
        if found is None:
            raise NotFound(f"the broker {queue.broker_name} of {queue} is not registered now")
        return found[0]

    def send_address(self, address: str) -> str:
        """The port of a broker that sends go to."""
        if not self.settings.vip_channel:
            return address
        host, port = split_address(address)
        return f"{host}:{port - _VIP_DISTANCE}"

    async def ask(self, address: str, request: RemotingCommand, timeout_ms: int | None = None) -> RemotingCommand:
        """A broker's answer; RequestRefused when it is a refusal."""
        response = await self.client.invoke(address, request, timeout_ms or self.settings.timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            raise RequestRefused(response.code, response.remark or f"{address} answered with code {response.code}")
        return response

    async def heartbeat(self) -> None:
        """Tell every broker who is here; one that does not answer is told again next time."""
        consumers = tuple(data for member in self.members if (data := member.consumer_data()) is not None)
        groups = tuple(dict.fromkeys(group for member in self.members if (group := member.producer_group) is not None))
        if not consumers and not groups:
            return
        body = HeartbeatData(self.client_id, groups, consumers).encode()
        await asyncio.gather(*(self._try(address, RequestCode.HEART_BEAT, None, body) for address in self.broker_addresses()))

    async def _try(self, address: str, code: int, header: UnregisterClientRequestHeader | None, body: bytes | None = None) -> None:
        try:
            await self.ask(address, RemotingCommand.request(code, header, body))
        except (RemoteError, RequestRefused) as problem:
            log.info("broker_not_told address=%s code=%d why='%s'", address, code, problem)

    async def _look_up(self) -> None:
        self.client.name_servers.update(await look_up(self.settings.address_server))


async def _repeat(period_s: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(period_s)
        try:
            await work()
        except RemoteUnavailable as problem:
            log.warning("client_upkeep_failed why='%s'", problem)
        except Exception:
            log.exception("client_upkeep_failed")
