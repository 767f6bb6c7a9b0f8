"""The client: one connection per address, opened on first use and reopened after a failure.

`timeout_ms` covers a whole call to one address: connecting, sending and waiting together never take
longer. A call to "the name server" may try several, each with the full timeout.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from orbitmq.common.clock import Clock
from orbitmq.common.errors import RemoteError, RemoteTimeoutError, RemoteUnavailableError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand, SerializeType
from orbitmq.protocol.frame import FrameLimits
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.remoting.endpoint import Callback, ConnectionListener, Endpoint
from orbitmq.remoting.hooks import RpcHook
from orbitmq.remoting.name_servers import NameServerList, split_address
from orbitmq.remoting.tls import ClientTls, client_context
from orbitmq.remoting.transport_link import TransportLink

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Timeouts and limits of a client."""

    connect_timeout_ms: int = 3000
    idle_ms_max: int = 120_000  # 0: never
    invoke_max: int = 65_535
    unsent_bytes_max: int = 4 * 1024 * 1024
    close_on_timeout: bool = True
    reconnect_on_go_away: bool = True
    frames: FrameLimits = field(default_factory=FrameLimits)
    tls: ClientTls = field(default_factory=ClientTls)
    serialize_type: SerializeType = SerializeType.JSON  # header encoding of requests


class RemotingClient:
    """Calls servers by address, and any available name server; requests from servers go to
    `dispatcher`.
    """

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        *,
        dispatcher: RequestDispatcher | None = None,
        hooks: Sequence[RpcHook] = (),
        listeners: tuple[ConnectionListener, ...] = (),
        name_servers: NameServerList | None = None,
    ) -> None:
        self.config = config
        self.dispatcher = dispatcher or RequestDispatcher(clock)
        self.name_servers = name_servers or NameServerList([])
        self._clock = clock
        self._hooks = tuple(hooks)
        self._endpoint = Endpoint(
            self.dispatcher,
            clock,
            limits=config.frames,
            invoke_max=config.invoke_max,
            listeners=(*listeners, _Connections(self)),
            serialize_type=config.serialize_type,
        )
        self._tls: ssl.SSLContext | None = (
            client_context(config.tls) if config.tls.enabled else None
        )
        self._channels: dict[
            str, asyncio.Task[Channel]
        ] = {}  # the connection for the next call to an address
        self._ready: dict[str, Channel] = {}  # those of them that are connected
        self.connections: set[Channel] = (
            set()
        )  # every open connection, including those used only by pending calls
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> RemotingClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; pending calls fail at once."""
        self._closed = True
        self._ready = {}
        tasks, self._channels = list(self._channels.values()), {}
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(
            *tasks, *([self._sweeper] if self._sweeper else []), return_exceptions=True
        )
        while self.connections:  # transports report their end in a later iteration of the loop
            for channel in list(self.connections):
                channel.close("the client closes")
            await asyncio.sleep(0)

    # -- calls

    async def invoke(
        self, address: str, request: RemotingCommand, timeout_ms: int = 3000
    ) -> RemotingCommand:
        """Send `request` to `address` and return the response."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        for hook in self._hooks:
            hook.before(address, request)
        response = await self._invoke_once(address, request, deadline_ms, timeout_ms)
        if response.code == ResponseCode.GO_AWAY and self.config.reconnect_on_go_away:
            response = await self._invoke_once(address, request, deadline_ms, timeout_ms)
            if response.code == ResponseCode.GO_AWAY:
                raise RemoteUnavailableError(
                    f"{address} shuts down and asks its clients to go away; try another server, or"
                    " later"
                )
        for hook in self._hooks:
            hook.after(address, request, response)
        return response

    async def _invoke_once(
        self, address: str, request: RemotingCommand, deadline_ms: int, timeout_ms: int
    ) -> RemotingCommand:
        channel = self._connected(address) or await self._channel(address, deadline_ms)
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise RemoteTimeoutError(
                f"{timeout_ms} ms passed before request {request.code} could be sent to {address}"
            )
        try:
            response = await self._endpoint.invoke(channel, request, left_ms)
        except RemoteTimeoutError:
            # A timeout after a short remaining time says nothing about the connection; after the
            # whole timeout it does.
            if self.config.close_on_timeout and (left_ms > 100 or left_ms > timeout_ms // 4):
                self.forget(channel)
                channel.close(f"no response within {left_ms} ms")
            raise
        if response.code == ResponseCode.GO_AWAY and self.config.reconnect_on_go_away:
            self.forget(channel)  # not closed: other calls may still wait for responses on it
        return response

    async def invoke_oneway(
        self, address: str, request: RemotingCommand, timeout_ms: int = 3000
    ) -> None:
        """Send `request` to `address` without expecting a response."""
        channel = self._connected(address) or await self._channel(
            address, self._clock.monotonic_ms() + timeout_ms
        )
        for hook in self._hooks:
            hook.before(address, request)
        self._endpoint.invoke_oneway(channel, request)

    async def invoke_callback(
        self, address: str, request: RemotingCommand, timeout_ms: int, callback: Callback
    ) -> None:
        """Send `request`; `callback` is called once with the response or the error, after this call
        has returned.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        channel = await self._channel(address, deadline_ms)
        for hook in self._hooks:
            hook.before(address, request)

        def settle(result: RemotingCommand | Exception) -> None:
            if isinstance(result, RemotingCommand):
                for hook in self._hooks:
                    hook.after(address, request, result)
            callback(result)

        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise RemoteTimeoutError(
                f"{timeout_ms} ms passed before request {request.code} could be sent to {address}"
            )
        self._endpoint.invoke_callback(channel, request, left_ms, settle)

    async def invoke_name_server(
        self, request: RemotingCommand, timeout_ms: int = 3000
    ) -> RemotingCommand:
        """Call the name server in use; if it is unreachable, try the others in turn."""
        failures: list[str] = []
        for address in self.name_servers.in_order():
            try:
                response = await self.invoke(address, request, timeout_ms)
            except RemoteError as problem:
                failures.append(str(problem))
                continue
            self.name_servers.use(address)
            return response
        if not failures:
            raise RemoteUnavailableError(
                "no name server is known; give one as host:port, by -n or NAMESRV_ADDR"
            )
        raise RemoteUnavailableError("no name server answers: " + "; ".join(failures))

    # -- connections

    def connection_to(self, address: str) -> Channel | None:
        """Return the open connection for the next call to `address`; None if it has to
        be opened.
        """
        channel = self._ready.get(address)
        return channel if channel is not None and channel.is_open else None

    def _connected(self, address: str) -> Channel | None:
        """Return the connection to `address` if it can be used without waiting."""
        channel = self._ready.get(address)
        return (
            channel
            if channel is not None
            and channel.is_open
            and cast("TransportLink", channel.link).has_room
            else None
        )

    async def _channel(self, address: str, deadline_ms: int) -> Channel:
        """Return the open connection to `address`; concurrent callers share one attempt
        to connect.
        """
        if self._closed:
            raise RemoteUnavailableError("this client is closed")
        task = self._channels.get(address)
        if task is None or (
            task.done()
            and (task.cancelled() or task.exception() is not None or not task.result().is_open)
        ):
            task = self._channels[address] = asyncio.create_task(self._connect(address))
            if self._sweeper is None:
                self._sweeper = asyncio.create_task(self._sweep_forever())
        try:
            async with asyncio.timeout(max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000):
                channel = await asyncio.shield(task)
                self._ready[address] = channel
                await cast("TransportLink", channel.link).room()
                return channel
        except TimeoutError:
            raise RemoteTimeoutError(
                f"the connection to {address} was not established, or not writable, in time"
            ) from None
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise RemoteUnavailableError("this client is closed") from None
            raise

    async def _connect(self, address: str) -> Channel:
        host, port = split_address(address)
        try:
            async with asyncio.timeout(self.config.connect_timeout_ms / 1000):
                _, link = await asyncio.get_running_loop().create_connection(
                    lambda: TransportLink(
                        self._endpoint,
                        self._clock,
                        unsent_max=self.config.unsent_bytes_max,
                        is_tls=self._tls is not None,
                    ),
                    host,
                    port,
                    ssl=self._tls,
                    server_hostname=host if self._tls else None,
                )
        except TimeoutError:
            raise RemoteUnavailableError(
                f"{address} did not accept a connection within {self.config.connect_timeout_ms} ms"
            ) from None
        except ssl.SSLError as problem:
            raise RemoteUnavailableError(
                f"TLS with {address} failed: {problem}; does it speak TLS, and do both sides trust"
                " each other?"
            ) from problem
        except (OSError, UnicodeError) as problem:  # UnicodeError: not a valid host name
            raise RemoteUnavailableError(
                f"cannot connect to {address}: {_why(problem)}; is a server running there?"
            ) from problem
        return link.channel

    def forget(self, channel: Channel) -> None:
        """Do not use this connection for further calls: the next one opens a new one."""
        for address in [address for address, ready in self._ready.items() if ready is channel]:
            del self._ready[address]
        for address, task in list(self._channels.items()):
            if (
                task.done()
                and not task.cancelled()
                and task.exception() is None
                and task.result() is channel
            ):
                del self._channels[address]

    async def _sweep_forever(self) -> None:
        """Handle overdue responses and idle connections once a second."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._endpoint.sweep()
            if self.config.idle_ms_max == 0:
                continue
            before_ms = self._clock.monotonic_ms() - self.config.idle_ms_max
            for channel in [
                channel for channel in self.connections if channel.link.last_active_ms < before_ms
            ]:
                self._endpoint.idle(channel, self.config.idle_ms_max)


class _Connections:
    """Keeps a client's set of connections up to date."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    def on_connect(self, channel: Channel) -> None:
        self._client.connections.add(channel)

    def on_close(self, channel: Channel) -> None:
        self._client.connections.discard(channel)
        self._client.forget(channel)

    def on_exception(self, channel: Channel, problem: BaseException) -> None: ...

    def on_idle(self, channel: Channel) -> None: ...


def _why(problem: OSError | UnicodeError) -> str:
    """Return the system's reason for a failed connect; asyncio replaces it by its own text."""
    if (
        isinstance(problem, OSError)
        and problem.errno is not None
        and not isinstance(problem, socket.gaierror)
    ):
        return os.strerror(problem.errno)
    return getattr(problem, "strerror", None) or str(problem)
