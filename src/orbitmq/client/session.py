"""What the producers and consumers of one client share: connections, routes, heartbeats.

Routes are asked for when they are first needed and kept up to date until the session ends; a heartbeat tells every broker of those routes
who is here. Who they are, members say themselves. Thread rule: the loop of whoever started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, Self

from orbitmq.client.credentials import RequestSigner
from orbitmq.client.heartbeats import Heartbeats
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.periodic import repeat
from orbitmq.client.routes import MASTER_ID, TopicRoute, broker_addresses
from orbitmq.client.send_room import SendRoom
from orbitmq.client.settings import ClientSettings
from orbitmq.common.clock import Clock, SystemClock
from orbitmq.common.errors import NotFound, OrbitError, RemoteError, RemoteUnavailable, RequestRefused, WrongCall
from orbitmq.protocol.bodies.clients import ConsumerData, MessageQueue
from orbitmq.protocol.bodies.nameserver import ClusterInfo, TopicRouteData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.clients import UnregisterClientRequestHeader
from orbitmq.protocol.headers.nameserver import GetRouteInfoRequestHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.dispatch import Dispatcher
from orbitmq.remoting.lanes import LaneLimits
from orbitmq.remoting.name_servers import NameServerList, look_up, split_address

LOOK_UP_PERIOD_S: Final = 120.0
OTHER_LOOP: Final = (
    "this client belongs to the event loop that it was started on, and this is another one: start, use and close a client"
    " in one asyncio.run(), or take those of orbitmq.blocking"
)
_VIP_DISTANCE: Final = 2
_SERVED: Final = (  # what brokers ask of clients
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)

log = logging.getLogger(__name__)


# Answers a broker's request; None when it is not about this member.
MemberHandler = Callable[[Channel, RemotingCommand], Awaitable[RemotingCommand | None]]


class Member(Protocol):
    """A producer or consumer of a session. Its names are those that brokers know."""

    @property
    def producer_group(self) -> str | None: ...

    def consumer_data(self) -> ConsumerData | None: ...

    def topics(self) -> Iterable[str]:
        """The topics whose routes it wants kept up to date."""
        ...

    async def routes_changed(self) -> None: ...

    def serves(self) -> Mapping[int, MemberHandler]:
        """The requests of brokers that it answers, by code."""
        ...


class NoBroker(NotFound):
    """A topic that is nowhere because there is no broker at all."""


class ClientSession:
    """From `start` to `close`, on one event loop."""

    def __init__(self, settings: ClientSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.client_id = settings.client_id()
        self.names = settings.names
        dispatcher = Dispatcher(self.clock)
        lane = dispatcher.add_lane(LaneLimits(name="served", running_max=64, queue_max=10_000))
        for code in _SERVED:
            dispatcher.register(code, self._serve, lane=lane)
        self._heartbeats = Heartbeats(self)
        self.client = RemotingClient(
            settings.remoting_config(),
            self.clock,
            dispatcher=dispatcher,
            hooks=[RequestSigner(settings.credentials)] if settings.credentials else [],
            listeners=(self._heartbeats,),
            name_servers=NameServerList(settings.known_name_servers()),
        )
        self.members: list[Member] = []
        invoke_max = self.client.config.invoke_max
        self.send_room = SendRoom(max(invoke_max - invoke_max // 8, 1))  # the rest is for all other requests
        self.requests: dict[str, asyncio.Future[ReceivedMessage]] = {}  # that wait for their reply, by correlation id
        self.brokers_without_lite_pull: set[str] = set()  # by address
        self.understood: set[tuple[str, str, str]] = set()  # expressions by address of the broker, kind and text
        self._routes: dict[str, TopicRoute] = {}
        self._fetches: dict[str, asyncio.Task[TopicRoute]] = {}
        self._timers: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Find the name servers, and keep everything up to date from now on."""
        self._check_open()
        self._loop = asyncio.get_running_loop()
        if self._timers:
            return
        settings = self.settings
        if settings.address_server and not settings.known_name_servers():
            await self._look_up()
            self._timers.append(asyncio.create_task(repeat(LOOK_UP_PERIOD_S, self._look_up)))
        self._timers += [
            asyncio.create_task(repeat(settings.route_refresh_ms / 1000, self.refresh_routes)),
            asyncio.create_task(repeat(settings.heartbeat_ms / 1000, self.heartbeat)),
        ]

    async def close(self) -> None:
        """Tell the brokers that the members leave, and close every connection."""
        self._check_loop()
        self._is_closed = True
        tasks = (*self._timers, *self._fetches.values())
        for task in tasks:
            task.cancel()
        await self._heartbeats.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._timers = []
        for member in list(self.members):
            await self.leave(member)
        for request in self.requests.values():
            if not request.done():
                request.set_exception(RemoteUnavailable("this client was closed before the reply came"))
        await self.client.dispatcher.close()
        await self.client.close()

    async def join(self, member: Member) -> None:
        """Have heartbeats tell of a member; WrongCall when its group has one here, which brokers could not tell from it."""
        if member in self.members:
            raise WrongCall("this client was started before; use it as it is, or make a new one")
        consumer = member.consumer_data()
        groups = [found.group for other in self.members if (found := other.consumer_data()) is not None]
        if consumer is not None and consumer.group in groups:
            raise WrongCall(f"group {consumer.group} has a consumer in this session already; another one needs a session of its own")
        self._check_open()
        self.members.append(member)
        await self.start()

    async def leave(self, member: Member) -> None:
        """Tell every broker that a member is gone, so that others take over at once."""
        if member not in self.members:
            return
        self.members.remove(member)
        consumer = member.consumer_data()
        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=member.producer_group,
            consumer_group=None if consumer is None else consumer.group,
        )
        addresses = self.broker_addresses()
        await asyncio.gather(*(self.tell(address, RequestCode.UNREGISTER_CLIENT, header) for address in addresses))

    async def _serve(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Let the member answer whom a broker's request is about."""
        for member in list(self.members):
            handler = member.serves().get(request.code)
            answer = None if handler is None else await handler(channel, request)
            if answer is not None:
                return answer
        return request.answer(ResponseCode.SYSTEM_ERROR, f"nobody at client {self.client_id} can answer this: whom it is about has left")

    # -- routes

    async def route(self, topic: str) -> TopicRoute:
        """Where the queues of a topic are; NotFound says why nowhere. One question for all who ask at the same time."""
        found = self._routes.get(topic)
        if found is not None:
            return found
        self._check_loop()
        if self._is_closed:
            raise RemoteUnavailable("this client is closed")
        fetch = self._fetches.get(topic)
        if fetch is None:
            fetch = self._fetches[topic] = asyncio.create_task(self._fetch(topic))
            fetch.add_done_callback(lambda done: self._fetched(topic, done))
        try:
            return await asyncio.shield(fetch)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if fetch.cancelled() and caller is not None and not caller.cancelling():
                raise RemoteUnavailable("this client was closed meanwhile") from None
            raise

    def _fetched(self, topic: str, fetch: asyncio.Task[TopicRoute]) -> None:
        self._fetches.pop(topic, None)
        if not fetch.cancelled():
            fetch.exception()  # whoever waited may be gone; then nobody is to be told

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
            raise await self._no_route(topic)
        if response.code != ResponseCode.SUCCESS or response.body is None:
            raise RequestRefused(response.code, f"the route of topic {topic} was refused: {response.remark}")
        route = self._routes[topic] = TopicRoute.of(topic, TopicRouteData.decode(response.body))
        return route

    async def _no_route(self, topic: str) -> NotFound:
        response = await self.client.invoke_name_server(
            RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO), self.settings.timeout_ms
        )
        brokers = sorted(ClusterInfo.decode(response.body).brokers) if response.body else []
        if not brokers:
            return NoBroker(f"no route to topic {topic}: no broker is registered; start one with namesrvAddr set to these name servers")
        return NotFound(f"no route to topic {topic}: none of the brokers ({', '.join(brokers)}) has it; create it, or check its spelling")

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
        self._check_loop()
        response = await self.client.invoke(address, request, timeout_ms or self.settings.timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            raise RequestRefused(response.code, response.remark or f"{address} answered with code {response.code}")
        return response

    async def heartbeat(self) -> None:
        """Tell every broker who is here; one that does not answer is told again next time."""
        await self._heartbeats.tell_all()

    async def introduce(self) -> None:
        """Have every broker know who is here, before it has to find them: after a change of members, routes or connections."""
        await self._heartbeats.introduce()

    async def tell(self, address: str, code: int, header: UnregisterClientRequestHeader | None, body: bytes | None = None) -> bool:
        """Tell a broker of members; whether it heard that."""
        try:
            await self.ask(address, RemotingCommand.request(code, header, body))
        except (RemoteError, RequestRefused) as problem:
            level = logging.WARNING if isinstance(problem, RequestRefused) else logging.INFO  # who is away comes back by itself
            log.log(level, "broker_not_told address=%s code=%d why='%s'", address, code, problem)
            return False
        return True

    def _check_open(self) -> None:
        if self._is_closed:
            raise WrongCall("this session is closed; make a new one")
        self._check_loop()

    def _check_loop(self) -> None:
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise WrongCall(OTHER_LOOP)

    async def _look_up(self) -> None:
        self.client.name_servers.update(await look_up(self.settings.address_server))


Cluster = str | Sequence[str] | ClientSettings | ClientSession
"""What a client is told of a cluster: its name servers, all settings, or a session that others use too."""


class SessionUser(ABC):
    """A producer or consumer, from `async with` to its end: with a session of its own, or in one that was given to it."""

    def __init__(self, cluster: Cluster) -> None:
        self._owns_session = not isinstance(cluster, ClientSession)
        if isinstance(cluster, ClientSession):
            self.session = cluster
        else:
            self.session = ClientSession(cluster if isinstance(cluster, ClientSettings) else ClientSettings(name_servers=cluster))

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    async def start(self) -> None:
        """Begin."""

    async def close(self) -> None:
        """Leave, and end a session of its own."""
        if self._owns_session:
            await self.session.close()
