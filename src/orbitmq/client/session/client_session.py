"""What the producers and consumers of one client share: connections, routes, heartbeats.

Routes are fetched on first use and refreshed until the session closes. Heartbeats register the
members (producers and consumers) with every broker of those routes; each member describes itself.
Thread rule: use a session only on the loop that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, Self

from orbitmq.access.credentials import RequestSigner
from orbitmq.client.background import repeat
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.session.heartbeats import Heartbeats
from orbitmq.client.session.in_flight_limiter import InFlightLimiter
from orbitmq.client.session.routes import MASTER_ID, TopicRoute, broker_addresses
from orbitmq.client.settings import ClientSettings
from orbitmq.common.clock import Clock, SystemClock
from orbitmq.common.errors import (
    InvalidStateError,
    NotFoundError,
    OrbitError,
    RemoteError,
    RemoteUnavailableError,
    RequestRefusedError,
)
from orbitmq.protocol.bodies.clients import ConsumerData, MessageQueue
from orbitmq.protocol.bodies.nameserver import ClusterInfo, TopicRouteData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.clients import UnregisterClientRequestHeader
from orbitmq.protocol.headers.nameserver import GetRouteInfoRequestHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.remoting.lanes import LaneLimits
from orbitmq.remoting.name_servers import NameServerList, look_up, split_address

LOOK_UP_PERIOD_S: Final = 120.0
OTHER_LOOP: Final = (
    "this client belongs to another event loop, the one that started it: start, use and close a"
    " client within one asyncio.run(), or use the clients of orbitmq.blocking"
)
_VIP_DISTANCE: Final = 2
_SERVED: Final = (  # requests that brokers send to clients
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)

log = logging.getLogger(__name__)


# Replies to a broker's request; returns None if the request is for another member.
MemberHandler = Callable[[Channel, RemotingCommand], Awaitable[RemotingCommand | None]]


class SessionMember(Protocol):
    """A producer or consumer of a session. Its names are those that brokers know."""

    @property
    def producer_group(self) -> str | None: ...

    def consumer_data(self) -> ConsumerData | None: ...

    def topics(self) -> Iterable[str]:
        """The topics whose routes must stay up to date."""
        ...

    async def routes_changed(self) -> None: ...

    def serves(self) -> Mapping[int, MemberHandler]:
        """The handlers of broker requests, by request code."""
        ...


class NoBrokerError(NotFoundError):
    """A topic has no route because no broker is registered."""


class ClientSession:
    """The connections, routes and members of one client, from `start` to `close`, on one event
    loop.
    """

    def __init__(self, settings: ClientSettings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.client_id = settings.client_id()
        self.names = settings.names
        dispatcher = RequestDispatcher(self.clock)
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
        self.members: list[SessionMember] = []
        invoke_max = self.client.config.invoke_max
        # Sends may use 7/8 of the slots; the rest is for all other requests.
        self.in_flight = InFlightLimiter(max(invoke_max - invoke_max // 8, 1))
        # Requests that await their reply message, by correlation id.
        self.requests: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self.brokers_without_lite_pull: set[str] = set()  # by address
        # Expressions a broker accepted: its address, the expression's kind and text.
        self.accepted_expressions: set[tuple[str, str, str]] = set()
        self._routes: dict[str, TopicRoute] = {}
        self._fetches: dict[str, asyncio.Task[TopicRoute]] = {}
        self._timers: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Find the name servers, and keep routes and heartbeats up to date from now on."""
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
        """Unregister the members from the brokers and close every connection."""
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
                request.set_exception(
                    RemoteUnavailableError("this client was closed before the reply came")
                )
        await self.client.dispatcher.close()
        await self.client.close()

    async def join(self, member: SessionMember) -> None:
        """Add a member and report it in heartbeats.

        Raises InvalidStateError if its consumer group already has a member in this session: brokers
        could not distinguish the two.
        """
        if member in self.members:
            raise InvalidStateError(
                "this client is already started: use it as it is, or create a new one"
            )
        consumer = member.consumer_data()
        groups = [
            found.group for other in self.members if (found := other.consumer_data()) is not None
        ]
        if consumer is not None and consumer.group in groups:
            raise InvalidStateError(
                f"group {consumer.group} already has a consumer in this session: create another one"
                " in its own session"
            )
        self._check_open()
        self.members.append(member)
        await self.start()

    async def leave(self, member: SessionMember) -> None:
        """Unregister a member from every broker, so that others take over at once."""
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
        await asyncio.gather(
            *(self.try_ask(address, RequestCode.UNREGISTER_CLIENT, header) for address in addresses)
        )

    async def _serve(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Pass a broker's request to the member it is for."""
        for member in list(self.members):
            handler = member.serves().get(request.code)
            answer = None if handler is None else await handler(channel, request)
            if answer is not None:
                return answer
        return request.reply(
            ResponseCode.SYSTEM_ERROR,
            f"no member of client {self.client_id} can handle this request: the member has left",
        )

    # -- routes

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic; NotFoundError says why there is none.

        Concurrent callers share one request.
        """
        found = self._routes.get(topic)
        if found is not None:
            return found
        self._check_loop()
        if self._is_closed:
            raise RemoteUnavailableError("this client is closed")
        fetch = self._fetches.get(topic)
        if fetch is None:
            fetch = self._fetches[topic] = asyncio.create_task(self._fetch(topic))
            fetch.add_done_callback(lambda done: self._fetched(topic, done))
        try:
            return await asyncio.shield(fetch)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if fetch.cancelled() and caller is not None and not caller.cancelling():
                raise RemoteUnavailableError("this client was closed during the call") from None
            raise

    def _fetched(self, topic: str, fetch: asyncio.Task[TopicRoute]) -> None:
        self._fetches.pop(topic, None)
        if not fetch.cancelled():
            fetch.exception()  # mark it as retrieved: the caller may be gone

    def forget_route(self, topic: str) -> None:
        """Drop a stale route, so that its next use fetches it again."""
        self._routes.pop(topic, None)

    def known_route(self, topic: str) -> TopicRoute | None:
        """Return the cached route of a topic, if any."""
        return self._routes.get(topic)

    async def _fetch(self, topic: str) -> TopicRoute:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        response = await self.client.invoke_name_server(request, self.settings.timeout_ms)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            raise await self._no_route(topic)
        if response.code != ResponseCode.SUCCESS or response.body is None:
            raise RequestRefusedError(
                response.code, f"the route of topic {topic} was refused: {response.remark}"
            )
        route = self._routes[topic] = TopicRoute.of(topic, TopicRouteData.decode(response.body))
        return route

    async def _no_route(self, topic: str) -> NotFoundError:
        response = await self.client.invoke_name_server(
            RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO), self.settings.timeout_ms
        )
        brokers = sorted(ClusterInfo.decode(response.body).brokers) if response.body else []
        if not brokers:
            return NoBrokerError(
                f"no route to topic {topic}: no broker is registered; start one with namesrvAddr"
                " set to these name servers"
            )
        return NotFoundError(
            f"no route to topic {topic}: none of the brokers ({', '.join(brokers)}) has it; create"
            " it, or check the spelling"
        )

    async def refresh_routes(self) -> None:
        """Fetch every used or wanted route again; notify the members if one has changed."""
        wanted = {topic for member in self.members for topic in member.topics()}.union(self._routes)
        before = dict(self._routes)
        for topic in wanted:
            with contextlib.suppress(OrbitError):  # keep the known route
                await self._fetch(topic)
        if before != self._routes:
            for member in list(self.members):
                await member.routes_changed()

    # -- brokers

    def broker_addresses(self) -> dict[str, str]:
        """Return the brokers that get heartbeats: all of known routes if there are consumers, else
        masters.
        """
        has_consumers = any(member.consumer_data() is not None for member in self.members)
        return broker_addresses(self._routes.values(), masters_only=not has_consumers)

    async def broker_of(self, queue: MessageQueue) -> str:
        """Return the address of a queue's broker: its master, or a replica if there is none."""
        found = (await self.route(queue.topic)).reader(queue.broker_name, MASTER_ID)
        if found is None:
            raise NotFoundError(
                f"the broker {queue.broker_name} of {queue} is not registered at the moment"
            )
        return found[0]

    def send_address(self, address: str) -> str:
        """Return the address of a broker's port for sends."""
        if not self.settings.vip_channel:
            return address
        host, port = split_address(address)
        return f"{host}:{port - _VIP_DISTANCE}"

    async def ask(
        self, address: str, request: RemotingCommand, timeout_ms: int | None = None
    ) -> RemotingCommand:
        """Send a request to a broker and return its reply; raise RequestRefusedError on refusal."""
        self._check_loop()
        response = await self.client.invoke(
            address, request, timeout_ms or self.settings.timeout_ms
        )
        if response.code != ResponseCode.SUCCESS:
            raise RequestRefusedError(
                response.code, response.remark or f"{address} replied with code {response.code}"
            )
        return response

    async def heartbeat(self) -> None:
        """Send a heartbeat to every broker; failures are retried with the next one."""
        await self._heartbeats.send_all()

    async def announce(self) -> None:
        """Make sure that every broker knows the current members before they are needed.

        Call it after a change of members, routes or connections.
        """
        await self._heartbeats.announce()

    async def try_ask(
        self,
        address: str,
        code: int,
        header: UnregisterClientRequestHeader | None,
        body: bytes | None = None,
    ) -> bool:
        """Send a request about members; log a failure and return False."""
        try:
            await self.ask(address, RemotingCommand.request(code, header, body))
        except (RemoteError, RequestRefusedError) as problem:
            # An unreachable broker is retried anyway; a refusal needs attention.
            level = logging.WARNING if isinstance(problem, RequestRefusedError) else logging.INFO
            log.log(
                level,
                "broker_not_told address=%s code=%d request=%s why='%s'",
                address,
                code,
                RequestCode(code).name,
                problem,
            )
            return False
        return True

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidStateError("this session is closed: create a new one")
        self._check_loop()

    def _check_loop(self) -> None:
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise InvalidStateError(OTHER_LOOP)

    async def _look_up(self) -> None:
        self.client.name_servers.update(await look_up(self.settings.address_server))


Cluster = str | Sequence[str] | ClientSettings | ClientSession
"""How a client reaches a cluster: name servers, full settings, or a session to share."""


class SessionUser(ABC):
    """A producer, consumer or other client, with its own session or a shared one."""

    def __init__(self, cluster: Cluster) -> None:
        self._owns_session = not isinstance(cluster, ClientSession)
        if isinstance(cluster, ClientSession):
            self.session = cluster
        else:
            self.session = ClientSession(
                cluster
                if isinstance(cluster, ClientSettings)
                else ClientSettings(name_servers=cluster)
            )

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
        """Start the client."""

    async def close(self) -> None:
        """Leave, and close the session unless it is shared."""
        if self._owns_session:
            await self.session.close()
