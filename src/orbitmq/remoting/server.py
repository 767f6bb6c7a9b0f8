"""The server: accepts, tells TLS from plaintext by the first byte, serves in turns, closes the idle.

Plaintext sockets live in the epoll set of `turns`; TLS peers on asyncio transports. Both feed the same endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from orbitmq.common.clock import Clock
from orbitmq.common.config.tls import TlsMode
from orbitmq.common.errors import ConfigurationError, ProtocolError
from orbitmq.common.slices import Slices, slices_of
from orbitmq.protocol import proxy_preamble
from orbitmq.protocol.command import SerializeType
from orbitmq.protocol.frame import FrameLimits
from orbitmq.remoting.budgets import Budgets
from orbitmq.remoting.channel import ByteLink, Channel, address_text
from orbitmq.remoting.dispatch import Dispatcher
from orbitmq.remoting.endpoint import ConnectionListener, Endpoint
from orbitmq.remoting.freed_memory import FreedMemory
from orbitmq.remoting.slices import finish_between
from orbitmq.remoting.tls import ServerContext, ServerTls
from orbitmq.remoting.tls_peers import TlsPeers
from orbitmq.remoting.turns import Link, Turns

log = logging.getLogger(__name__)

TLS_HELLO = 0x16
ACCEPTS_PER_TURN = 64
PEEK_SIZE = 4096 + 16
ACCEPT_PAUSE_SECONDS = 1.0
SWEEP_SECONDS = 1.0
CLOSED_PER_SLICE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where a server listens, and every limit it keeps."""

    bind_address: str = "127.0.0.1"
    port: int = 0
    backlog: int = 1024
    idle_ms_max: int = 120_000  # 0: never
    connections_max: int = 65_000
    unsent_bytes_max: int = 4 * 1024 * 1024  # of one connection; reading stops above it
    unsent_bytes_total_max: int = 128 * 1024 * 1024  # of all connections; the greediest are closed above it
    unfinished_bytes_max: int = 256 * 1024 * 1024  # frames begun and not complete, of all connections
    handshakes_max: int = 512  # TLS handshakes in progress
    handshake_ms_max: int = 10_000
    invoke_max: int = 65_535
    frames: FrameLimits = field(default_factory=FrameLimits)
    tls: ServerTls = field(default_factory=ServerTls)
    send_buffer_bytes: int = 0  # 0: as the system does
    receive_buffer_bytes: int = 0
    believes_preamble_of: Callable[[str], bool] = lambda _peer: True  # whether a peer may say, by a PROXY preamble, where it really is
    serialize_type: SerializeType = SerializeType.JSON  # of the headers of requests to peers
    drain_seconds: float = 0  # how long a stop tells peers to go away before it closes their connections


class RemotingServer:
    """One listening port. Servers that are given the same `budgets` share what their connections may hold together."""

    def __init__(
        self,
        config: ServerConfig,
        dispatcher: Dispatcher,
        clock: Clock,
        listeners: tuple[ConnectionListener, ...] = (),
        *,
        budgets: Budgets | None = None,
    ) -> None:
        self.config = config
        self.endpoint = Endpoint(
            dispatcher,
            clock,
            limits=config.frames,
            invoke_max=config.invoke_max,
            listeners=listeners,
            serialize_type=config.serialize_type,
        )
        self.clock = clock
        self.budgets = budgets or budgets_of(config)
        self._context = ServerContext(config.tls)
        self.tls = TlsPeers(
            self.endpoint,
            clock,
            self._context,
            self.budgets,
            unsent_max=config.unsent_bytes_max,
            handshakes_max=config.handshakes_max,
            handshake_ms_max=config.handshake_ms_max,
        )
        self._listener: socket.socket | None = None
        self._turns: Turns | None = None
        self._freed = FreedMemory()
        self._sweeper: asyncio.Task[None] | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._refused = 0
        self.address: tuple[str, int] = (config.bind_address, config.port)

    def start(self) -> None:
        """Listen; from now on peers are served by the running loop."""
        loop = asyncio.get_running_loop()
        self._listener = _listen(self.config)
        self.address = self._listener.getsockname()[:2]
        self._turns = Turns(
            receive=self.endpoint.receive,
            first_bytes=self._first_bytes,
            closed=self._closed,
            end_turn=self.endpoint.end_turn,
            before_send=self.endpoint.before_send,
            call_soon=loop.call_soon,
            unsent_max=self.config.unsent_bytes_max,
            budgets=self.budgets,
        )
        self.budgets.join(self._links)
        self._turns.listen(self._listener.fileno(), self._accept)
        loop.add_reader(self._turns.fileno(), self._turns.turn)
        self._sweeper = loop.create_task(self._sweep_forever())
        log.info("listening address=%s tls=%s", address_text(self.address), self.config.tls.mode.value)

    async def quiesce(self) -> None:
        """Tell peers to go away where that is wanted, then take no more work: neither connections nor requests.

        What was taken before may still be answered, until `stop`.
        """
        if self._listener is not None and self.config.drain_seconds:
            self.endpoint.dispatcher.drain()
            await asyncio.sleep(self.config.drain_seconds)
        turns, listener, self._listener = self._turns, self._listener, None
        if turns is None or listener is None:
            return
        turns.unlisten(listener.fileno())
        listener.close()
        if self._resume is not None:
            self._resume.cancel()
        asyncio.get_running_loop().remove_reader(turns.fileno())
        turns.rest()
        self.tls.rest()

    async def stop(self) -> None:
        """Take no more work, send what is written, close every connection."""
        await self.quiesce()
        turns = self._turns
        if turns is None or self._sweeper is None:
            return
        self._sweeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sweeper
        turns.flush()
        self.budgets.leave(self._links)
        for link in list(turns.links.values()):
            link.channel.close("the server stops")
        turns.shut()
        await self.tls.stop("the server stops")
        self._turns = None
        log.info("stopped listening address=%s", address_text(self.address))

    @property
    def connections(self) -> int:
        """How many peers are connected."""
        return len(self.tls) + (len(self._turns.links) if self._turns else 0)

    def _links(self) -> Iterable[ByteLink]:
        """The connections that hold bytes, oldest first."""
        assert self._turns is not None
        return [*self._turns.links.values(), *self.tls.recounted()]

    # -- new peers

    def _accept(self) -> None:
        assert self._listener is not None
        assert self._turns is not None
        for _ in range(ACCEPTS_PER_TURN):
            try:
                peer, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as problem:
                if problem.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._pause_accepting(problem)
                    return
                log.debug("peer gone before it was accepted why=%s", problem)
                continue
            if self.connections >= self.config.connections_max:
                peer.close()
                self._refused += 1
                continue
            try:
                peer.setblocking(False)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link = self._turns.add(peer)
            except OSError as problem:
                peer.close()
                self._pause_accepting(problem)
                return
            link.channel = Channel(self.endpoint, link, remote_address=address_text(address), local_address=address_text(self.address))
            self.endpoint.opened(link.channel)

    def _pause_accepting(self, problem: OSError) -> None:
        """Out of descriptors or memory: let peers wait in the backlog for a moment instead of spinning."""
        assert self._listener is not None
        assert self._turns is not None
        log.error("accepting pauses for %.0f s why=%s; raise the limit of open files (ulimit -n)", ACCEPT_PAUSE_SECONDS, problem)
        descriptor = self._listener.fileno()
        self._turns.unlisten(descriptor)

        self._resume = asyncio.get_running_loop().call_later(ACCEPT_PAUSE_SECONDS, self._turns.listen, descriptor, self._accept)

    def _first_bytes(self, link: Link) -> bool:
        """Whether a peer whose first bytes are there speaks plaintext; a TLS peer is handed over, others are closed."""
        channel: Channel = link.channel
        peer: socket.socket = link.peer
        try:
            head = peer.recv(PEEK_SIZE, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        if channel.proxy is None and (channel.attributes.get("preamble") or (head and proxy_preamble.could_begin(head))):
            return self._take_preamble(link, head)
        mode = self.config.tls.mode
        if head[:1] == bytes([TLS_HELLO]):
            if mode is TlsMode.DISABLED:
                channel.close("it speaks TLS, which tls.server.mode=disabled refuses")
                return False
            assert self._turns is not None
            self.tls.take(channel, self._turns.detach(link))
            return False
        if head and mode is TlsMode.ENFORCING:
            channel.close("it does not speak TLS, which tls.server.mode=enforcing demands")
            return False
        return True

    def _take_preamble(self, link: Link, head: bytes) -> bool:
        """Consume a load balancer's preamble, and exactly it; false until the bytes behind it are there."""
        assert self._turns is not None
        channel: Channel = link.channel
        before = channel.attributes.get("preamble", b"")
        preamble = proxy_preamble.parse(before + head)
        take = len(head) if preamble is None else preamble.length - len(before)
        link.peer.recv(take)
        if not head:
            channel.close("it ended within a PROXY preamble")
        elif preamble is None:
            if not proxy_preamble.could_begin(before + head):
                raise ProtocolError("neither a frame nor a PROXY preamble")
            channel.attributes["preamble"] = before + head
            self._turns.set_aside(link, len(before) + len(head))
        else:
            channel.attributes.pop("preamble", None)
            self._turns.set_aside(link, 0)
            channel.proxy = preamble
            if preamble.source is not None and self.config.believes_preamble_of(channel.remote_address):
                channel.remote_address = preamble.source
        return False

    # -- ends

    def _closed(self, link: Link, error: BaseException | None) -> None:
        self.endpoint.closed(link.channel, error)
        link.channel = None  # or both would wait for the garbage collector

    async def _sweep_forever(self) -> None:
        """Once a second: overdue answers, idle peers, changed certificates."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                self.endpoint.sweep()
                await finish_between(self._close_idle())
                self.tls.recounted()
                self._context.reload_if_changed()
                self._freed.give_back(self.budgets.unsent + self.budgets.unfinished + self.tls.memory)
                if self._refused:
                    log.warning(
                        "connections refused count=%d why=%d are open, the most allowed (maxConnections)", self._refused, self.connections
                    )
                    self._refused = 0
            except Exception:
                log.exception("sweep failed")

    def _close_idle(self) -> Slices[None]:
        """Close idle peers, some at a time: whoever lost thousands of them at once loses no time for the others."""
        assert self._turns is not None
        if self.config.idle_ms_max == 0:
            return
        tls_before_ms = self.clock.monotonic_ms() - self.config.idle_ms_max
        before_ms = time.monotonic_ns() // 1_000_000 - self.config.idle_ms_max  # a kernel reads the time itself
        idle: list[tuple[ByteLink, int]] = [(link, tls_before_ms) for link in self.tls.links if link.last_active_ms < tls_before_ms]
        idle += ((link, before_ms) for link in self._turns.idle_since(before_ms))
        for part in slices_of(idle, CLOSED_PER_SLICE):
            for link, limit_ms in part:
                if link.last_active_ms < limit_ms and link.channel is not None:  # neither active nor gone meanwhile
                    self.endpoint.idle(link.channel, self.config.idle_ms_max)
            if len(part) == CLOSED_PER_SLICE:
                yield


def budgets_of(config: ServerConfig) -> Budgets:
    """The sums of what connections hold, with the limits of a server's configuration."""
    return Budgets(unsent_max=config.unsent_bytes_total_max, unfinished_max=config.unfinished_bytes_max)


def _listen(config: ServerConfig) -> socket.socket:
    """A listening socket; every interface means IPv4 and IPv6 where the machine has both."""
    host = config.bind_address
    dual = host in ("", "::", "*") and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
    try:
        listener = socket.create_server(("::" if dual else host, config.port), family=family, backlog=config.backlog, dualstack_ipv6=dual)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            fix = "another program listens there; stop it, or choose another listenPort"
        elif problem.errno == errno.EADDRNOTAVAIL:
            fix = "this host has no such address: set bindAddress to one that it has, or to 0.0.0.0 for all"
        else:
            fix = "check bindAddress and listenPort"
        why = os.strerror(problem.errno) if problem.errno and problem.errno > 0 else problem.strerror or problem
        raise ConfigurationError(f"cannot listen on {address_text((host, config.port))}: {why}; {fix}") from problem
    listener.setblocking(False)
    if config.send_buffer_bytes:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes)
    if config.receive_buffer_bytes:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes)
    return listener
