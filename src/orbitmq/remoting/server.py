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
from collections.abc import Callable
from dataclasses import dataclass, field

from orbitmq.common.clock import Clock
from orbitmq.common.config.tls import TlsMode
from orbitmq.common.errors import ConfigurationError, ProtocolError
from orbitmq.protocol import proxy_preamble
from orbitmq.protocol.frame import FrameLimits
from orbitmq.remoting.channel import ByteLink, Channel, address_text
from orbitmq.remoting.dispatch import Dispatcher
from orbitmq.remoting.endpoint import ConnectionListener, Endpoint
from orbitmq.remoting.tls import ServerContext, ServerTls
from orbitmq.remoting.transport_link import TransportLink
from orbitmq.remoting.turns import Link, Turns

log = logging.getLogger(__name__)

TLS_HELLO = 0x16
ACCEPTS_PER_TURN = 64
PEEK_SIZE = 4096 + 16
ACCEPT_PAUSE_SECONDS = 1.0
SWEEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where a server listens, and every limit it keeps."""

    bind_address: str = "127.0.0.1"
    port: int = 0
    backlog: int = 1024
    idle_ms_max: int = 120_000  # 0: never
    connections_max: int = 65_000
    unsent_bytes_max: int = 4 * 1024 * 1024  # of one connection; reading stops above it
    unfinished_bytes_max: int = 256 * 1024 * 1024  # frames begun and not complete, of all plaintext peers, and of all TLS peers
    handshake_seconds_max: float = 10.0
    invoke_max: int = 65_535
    frames: FrameLimits = field(default_factory=FrameLimits)
    tls: ServerTls = field(default_factory=ServerTls)
    send_buffer_bytes: int = 0  # 0: as the system does
    receive_buffer_bytes: int = 0
    believes_preamble_of: Callable[[str], bool] = lambda _peer: True  # whether a peer may say, by a PROXY preamble, where it really is
    drain_seconds: float = 0  # how long a stop tells peers to go away before it closes their connections


class RemotingServer:
    """One listening port."""

    def __init__(self, config: ServerConfig, dispatcher: Dispatcher, clock: Clock, listeners: tuple[ConnectionListener, ...] = ()) -> None:
        self.config = config
        self.endpoint = Endpoint(dispatcher, clock, limits=config.frames, invoke_max=config.invoke_max, listeners=listeners)
        self.clock = clock
        self._tls = ServerContext(config.tls)
        self._listener: socket.socket | None = None
        self._turns: Turns | None = None
        self._tls_links: set[_TlsLink] = set()
        self._tls_unfinished = 0
        self._handshakes: set[asyncio.Task[None]] = set()
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
            call_soon=loop.call_soon,
            unsent_max=self.config.unsent_bytes_max,
            pending_max=self.config.unfinished_bytes_max,
        )
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
        for link in self._tls_links:
            link.reading = False

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
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        for link in [*self._tls_links, *turns.links.values()]:
            link.channel.close("the server stops")
        turns.shut()
        await asyncio.gather(*handshakes, return_exceptions=True)
        while self._tls_links:  # transports tell of their end in one of the next passes of the loop
            for tls_link in list(self._tls_links):
                tls_link.channel.close("the server stops")
            await asyncio.sleep(0)
        self._turns = None
        log.info("stopped listening address=%s", address_text(self.address))

    @property
    def connections(self) -> int:
        """How many peers are connected."""
        return len(self._tls_links) + len(self._handshakes) + (len(self._turns.links) if self._turns else 0)

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
            self._hand_over_to_tls(link)
            return False
        if head and mode is TlsMode.ENFORCING:
            channel.close("it does not speak TLS, which tls.server.mode=enforcing demands")
            return False
        return True

    def _take_preamble(self, link: Link, head: bytes) -> bool:
        """Consume a load balancer's preamble, and exactly it; false until the bytes behind it are there."""
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
        else:
            channel.attributes.pop("preamble", None)
            channel.proxy = preamble
            if preamble.source is not None and self.config.believes_preamble_of(channel.remote_address):
                channel.remote_address = preamble.source
        return False

    def _hand_over_to_tls(self, link: Link) -> None:
        assert self._turns is not None
        task = asyncio.get_running_loop().create_task(self._handshake(link.channel, self._turns.detach(link)))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, channel: Channel, peer: socket.socket) -> None:
        """Carry a connection over to TLS; it stays the same channel, whose end is told once."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _TlsLink(self, channel),
                peer,
                ssl=self._tls.get(),
                ssl_handshake_timeout=self.config.handshake_seconds_max,
                ssl_shutdown_timeout=1.0,
            )
        except (Exception, asyncio.CancelledError) as problem:
            peer.close()
            if isinstance(problem, Exception):
                log.warning("TLS handshake failed peer=%s why=%s", channel.remote_address, problem)
            if not channel.is_tls:  # otherwise its transport tells of the end
                self.endpoint.closed(channel, problem if isinstance(problem, Exception) else None)

    def count_unfinished(self, link: _TlsLink) -> None:
        """As for plaintext peers: when TLS peers together hold too many bytes of unfinished frames, the one that holds most goes."""
        self._tls_unfinished += link.unfinished - link.counted
        link.counted = link.unfinished
        if self._tls_unfinished > self.config.unfinished_bytes_max:
            largest = max(self._tls_links, key=lambda other: other.counted)
            largest.fail(MemoryError(f"{self._tls_unfinished} bytes of unfinished frames are waiting, and the most are of this one"))

    # -- ends

    def tls_opened(self, link: _TlsLink) -> None:
        self._tls_links.add(link)

    def tls_closed(self, link: _TlsLink) -> None:
        self._tls_links.discard(link)
        self._tls_unfinished -= link.counted

    def _closed(self, link: Link, error: BaseException | None) -> None:
        self.endpoint.closed(link.channel, error)

    async def _sweep_forever(self) -> None:
        """Once a second: overdue answers, idle peers, changed certificates."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                self.endpoint.sweep()
                self._close_idle()
                self._tls.reload_if_changed()
                if self._refused:
                    log.warning(
                        "connections refused count=%d why=%d are open, the most allowed (maxConnections)", self._refused, self.connections
                    )
                    self._refused = 0
            except Exception:
                log.exception("sweep failed")

    def _close_idle(self) -> None:
        assert self._turns is not None
        if self.config.idle_ms_max == 0:
            return
        before_ms = self.clock.monotonic_ms() - self.config.idle_ms_max
        idle: list[ByteLink] = [link for link in self._tls_links if link.last_active_ms < before_ms]
        idle += self._turns.idle_since(time.monotonic_ns() // 1_000_000 - self.config.idle_ms_max)  # a kernel reads the time itself
        for link in idle:
            self.endpoint.idle(link.channel, self.config.idle_ms_max)


class _TlsLink(TransportLink):
    """A TLS peer of a server, which the server keeps a list of."""

    def __init__(self, server: RemotingServer, channel: Channel) -> None:
        super().__init__(server.endpoint, server.clock, unsent_max=server.config.unsent_bytes_max, is_tls=True, of_server=channel)
        self._server = server
        self.counted = 0  # of its unfinished bytes, in the server's sum

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._server.tls_opened(self)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._server.count_unfinished(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._server.count_unfinished(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.tls_closed(self)
        super().connection_lost(error)


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
