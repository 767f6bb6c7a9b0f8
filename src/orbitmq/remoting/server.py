"""The server: accepts connections, detects TLS by the first byte, closes idle peers.

Plaintext sockets live in the epoll set of `SocketLoop`; TLS peers on asyncio transports. Both feed
the same endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from orbitmq.common.clock import Clock
from orbitmq.common.config.tls import TlsMode
from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices, slices_of
from orbitmq.protocol import proxy_preamble
from orbitmq.protocol.command import SerializeType
from orbitmq.protocol.frame import FrameLimits
from orbitmq.remoting.budgets import Budgets
from orbitmq.remoting.channel import ByteLink, Channel, address_text
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.remoting.endpoint import ConnectionListener, Endpoint, FastPath
from orbitmq.remoting.freed_memory import FreedMemory
from orbitmq.remoting.listening import listening_socket
from orbitmq.remoting.slices import finish_between
from orbitmq.remoting.socket_loop import Link, SocketLoop
from orbitmq.remoting.tls import ServerContext, ServerTls
from orbitmq.remoting.tls_peers import TlsPeers

log = logging.getLogger(__name__)

TLS_HELLO = 0x16
ACCEPTS_PER_TURN = 64
PEEK_SIZE = 4096 + 16
ACCEPT_PAUSE_SECONDS = 1.0
SWEEP_SECONDS = 1.0
CLOSED_PER_SLICE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The listening address and all limits of a server."""

    bind_address: str = "127.0.0.1"
    port: int = 0
    backlog: int = 1024
    idle_ms_max: int = 120_000  # 0: never
    connections_max: int = 65_000
    unsent_bytes_max: int = 4 * 1024 * 1024  # per connection; above it reading stops
    unsent_bytes_total_max: int = (
        128 * 1024 * 1024
    )  # of all connections; above it the greediest are closed
    unfinished_bytes_max: int = 256 * 1024 * 1024  # incomplete frames of all connections
    handshakes_max: int = 512  # TLS handshakes in progress
    handshake_ms_max: int = 10_000
    invoke_max: int = 65_535
    frames: FrameLimits = field(default_factory=FrameLimits)
    tls: ServerTls = field(default_factory=ServerTls)
    send_buffer_bytes: int = 0  # 0: the system's default
    receive_buffer_bytes: int = 0
    believes_preamble_of: Callable[[str], bool] = lambda _peer: (
        True
    )  # whether a peer may declare its real address by a PROXY preamble
    serialize_type: SerializeType = SerializeType.JSON  # header encoding of requests to peers
    drain_seconds: float = 0  # how long a stop sends GO_AWAY before it closes connections


class RemotingServer:
    """One listening port. Servers with the same `budgets` share the limits on the bytes their
    connections hold.
    """

    def __init__(
        self,
        config: ServerConfig,
        dispatcher: RequestDispatcher,
        clock: Clock,
        listeners: tuple[ConnectionListener, ...] = (),
        *,
        budgets: Budgets | None = None,
        fast_path: FastPath | None = None,
    ) -> None:
        self.config = config
        self.endpoint = Endpoint(
            dispatcher,
            clock,
            limits=config.frames,
            invoke_max=config.invoke_max,
            listeners=listeners,
            serialize_type=config.serialize_type,
            fast_path=fast_path,
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
        self._sockets: SocketLoop | None = None
        self._freed = FreedMemory()
        self._sweeper: asyncio.Task[None] | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._refused = 0
        self.address: tuple[str, int] = (config.bind_address, config.port)

    def start(self) -> None:
        """Listen; from now on the running loop serves peers."""
        loop = asyncio.get_running_loop()
        self._listener = _listen(self.config)
        self.address = self._listener.getsockname()[:2]
        self._sockets = SocketLoop(
            receive=self.endpoint.receive,
            first_bytes=self._first_bytes,
            closed=self._closed,
            end_of_iteration=self.endpoint.end_of_iteration,
            before_send=self.endpoint.before_send,
            call_soon=loop.call_soon,
            unsent_max=self.config.unsent_bytes_max,
            budgets=self.budgets,
        )
        self.budgets.join(self._links)
        self._sockets.listen(self._listener.fileno(), self._accept)
        loop.add_reader(self._sockets.fileno(), self._sockets.run_once)
        self._sweeper = loop.create_task(self._sweep_forever())
        log.info(
            "listening address=%s tls=%s", address_text(self.address), self.config.tls.mode.value
        )

    async def quiesce(self) -> None:
        """Send GO_AWAY to peers if configured, then accept no more connections or requests.

        Requests accepted before may still be answered until `stop`.
        """
        if self._listener is not None and self.config.drain_seconds:
            self.endpoint.dispatcher.drain()
            await asyncio.sleep(self.config.drain_seconds)
        sockets, listener, self._listener = self._sockets, self._listener, None
        if sockets is None or listener is None:
            return
        sockets.unlisten(listener.fileno())
        listener.close()
        if self._resume is not None:
            self._resume.cancel()
        asyncio.get_running_loop().remove_reader(sockets.fileno())
        sockets.rest()
        self.tls.rest()

    async def stop(self) -> None:
        """Accept no more work, send what is written, close every connection."""
        await self.quiesce()
        sockets = self._sockets
        if sockets is None or self._sweeper is None:
            return
        self._sweeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sweeper
        sockets.flush()
        self.budgets.leave(self._links)
        for link in list(sockets.links.values()):
            link.channel.close("the server stops")
        sockets.shut()
        await self.tls.stop("the server stops")
        self._sockets = None
        log.info("stopped listening address=%s", address_text(self.address))

    @property
    def connections(self) -> int:
        """Return the number of connected peers."""
        return len(self.tls) + (len(self._sockets.links) if self._sockets else 0)

    def _links(self) -> Iterable[ByteLink]:
        """Return the connections that hold bytes, oldest first."""
        assert self._sockets is not None
        return [*self._sockets.links.values(), *self.tls.recounted()]

    # -- new peers

    def _accept(self) -> None:
        assert self._listener is not None
        assert self._sockets is not None
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
                link = self._sockets.add(peer)
            except OSError as problem:
                peer.close()
                self._pause_accepting(problem)
                return
            link.channel = Channel(
                self.endpoint,
                link,
                remote_address=address_text(address),
                local_address=address_text(self.address),
            )
            self.endpoint.opened(link.channel)

    def _pause_accepting(self, problem: OSError) -> None:
        """Leave peers in the backlog for a moment when descriptors or memory run out, instead of
        spinning.
        """
        assert self._listener is not None
        assert self._sockets is not None
        log.error(
            "accepting pauses for %.0f s why=%s; raise the limit of open files (ulimit -n)",
            ACCEPT_PAUSE_SECONDS,
            problem,
        )
        descriptor = self._listener.fileno()
        self._sockets.unlisten(descriptor)

        self._resume = asyncio.get_running_loop().call_later(
            ACCEPT_PAUSE_SECONDS, self._sockets.listen, descriptor, self._accept
        )

    def _first_bytes(self, link: Link) -> bool:
        """Return whether a peer whose first bytes are readable speaks plaintext; a TLS peer is
        handed over, others are closed.
        """
        channel: Channel = link.channel
        peer: socket.socket = link.peer
        try:
            head = peer.recv(PEEK_SIZE, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        if channel.proxy is None and (
            channel.attributes.get("preamble") or (head and proxy_preamble.could_begin(head))
        ):
            return self._take_preamble(link, head)
        mode = self.config.tls.mode
        if head[:1] == bytes([TLS_HELLO]):
            if mode is TlsMode.DISABLED:
                channel.close("it speaks TLS, which tls.server.mode=disabled refuses")
                return False
            assert self._sockets is not None
            self.tls.take(channel, self._sockets.detach(link))
            return False
        if head and mode is TlsMode.ENFORCING:
            channel.close("it does not speak TLS, which tls.server.mode=enforcing demands")
            return False
        return True

    def _take_preamble(self, link: Link, head: bytes) -> bool:
        """Consume exactly a load balancer's preamble; return False until the bytes after it are
        readable.
        """
        assert self._sockets is not None
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
            self._sockets.set_aside(link, len(before) + len(head))
        else:
            channel.attributes.pop("preamble", None)
            self._sockets.set_aside(link, 0)
            channel.proxy = preamble
            if preamble.source is not None and self.config.believes_preamble_of(
                channel.remote_address
            ):
                channel.remote_address = preamble.source
        return False

    # -- ends

    def _closed(self, link: Link, error: BaseException | None) -> None:
        self.endpoint.closed(link.channel, error)
        link.channel = None  # breaks the cycle, which would wait for the garbage collector

    async def _sweep_forever(self) -> None:
        """Handle overdue responses, idle peers and changed certificates once a second."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                self.endpoint.sweep()
                await finish_between(self._close_idle())
                self.tls.recounted()
                self._context.reload_if_changed()
                self._freed.give_back(
                    self.budgets.unsent + self.budgets.unfinished + self.tls.memory
                )
                if self._refused:
                    log.warning(
                        "connections refused count=%d why=%d are open, the most allowed"
                        " (maxConnections)",
                        self._refused,
                        self.connections,
                    )
                    self._refused = 0
            except Exception:
                log.exception("sweep failed")

    def _close_idle(self) -> Slices[None]:
        """Close idle peers in portions: closing thousands at once must not delay the others."""
        assert self._sockets is not None
        if self.config.idle_ms_max == 0:
            return
        tls_before_ms = self.clock.monotonic_ms() - self.config.idle_ms_max
        before_ms = (
            time.monotonic_ns() // 1_000_000 - self.config.idle_ms_max
        )  # a kernel reads the time itself
        idle: list[tuple[ByteLink, int]] = [
            (link, tls_before_ms) for link in self.tls.links if link.last_active_ms < tls_before_ms
        ]
        idle += ((link, before_ms) for link in self._sockets.idle_since(before_ms))
        for part in slices_of(idle, CLOSED_PER_SLICE):
            for link, limit_ms in part:
                if (
                    link.last_active_ms < limit_ms and link.channel is not None
                ):  # still idle, and not closed meanwhile
                    self.endpoint.idle(link.channel, self.config.idle_ms_max)
            if len(part) == CLOSED_PER_SLICE:
                yield


def budgets_of(config: ServerConfig) -> Budgets:
    """Return the budgets for connections, with the limits of a server's configuration."""
    return Budgets(
        unsent_max=config.unsent_bytes_total_max, unfinished_max=config.unfinished_bytes_max
    )


def _listen(config: ServerConfig) -> socket.socket:
    """Return a listening socket with the configured buffers."""
    listener = listening_socket(config.bind_address, config.port, backlog=config.backlog)
    if config.send_buffer_bytes:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes)
    if config.receive_buffer_bytes:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes)
    return listener
