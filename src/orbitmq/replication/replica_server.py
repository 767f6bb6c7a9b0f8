"""The HA port of a broker: accepts slaves, and hands their connections to the feed.

Bound like the broker's own port. A peer must be a member of the group (`is_member` asks name
servers and configuration) and gets nothing otherwise. A first byte of 0x16 begins a TLS handshake,
if the server's TLS mode allows it; the reports of a plaintext slave begin with 0, for no log is so
long. Apache's slaves know no TLS: with `tls.server.mode=enforcing` they cannot follow.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from orbitmq.common.config.tls import TlsMode
from orbitmq.remoting.listening import listening_socket
from orbitmq.remoting.tls import ServerContext
from orbitmq.replication.feed import ReplicaFeed

CONNECTIONS_MAX: Final = 64
_TICK_S: Final = 0.5
_FIRST_BYTE_S: Final = 10.0
_CLIENT_HELLO: Final = 0x16
log = logging.getLogger(__name__)


class ReplicaServer:
    """Listens for slaves, from `start` to `stop`."""

    def __init__(
        self,
        feed: ReplicaFeed,
        *,
        host: str,
        port: int,
        tls: ServerContext,
        is_member: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._feed = feed
        self._host = host
        self._port = port
        self._tls = tls
        self._is_member = is_member
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticks: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Listen. ConfigurationError if the port cannot be bound."""
        self._listener = listening_socket(self._host, self._port, port_key="haListenPort")
        self._spawn(self._accept_forever(self._listener))
        self._tick()
        log.info("listening_for_slaves address=%s:%d", self._host, self._port)

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._ticks is not None:
            self._ticks.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._feed.close()

    def _tick(self) -> None:
        self._feed.tick()
        self._ticks = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept_forever(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(listener)
            except OSError as error:  # too many files, or the peer has left already
                log.warning("slave_not_accepted error=%s", error)
                await asyncio.sleep(0.1)
                continue
            if len(self._feed.connections) + len(self._tasks) > CONNECTIONS_MAX:
                log.warning("slave_refused address=%s reason=too many connections", peer)
                peer.close()
            else:
                self._spawn(self._serve(peer))

    async def _serve(self, peer: socket.socket) -> None:
        """Check a peer, and hand its connection to the feed."""
        loop, transport = asyncio.get_running_loop(), None
        try:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host = str(peer.getpeername()[0])
            if not await self._is_member(host):
                log.warning(
                    "slave_refused host=%s reason=it is no member of this group that a name server"
                    " knows: register it there, or add it to haPeers",
                    host,
                )
                return
            async with asyncio.timeout(_FIRST_BYTE_S):
                first = await _first_byte(loop, peer)
                transport, _ = await loop.connect_accepted_socket(
                    self._feed.connect, peer, ssl=self._context(first)
                )
        except (OSError, TimeoutError, ssl.SSLError, ValueError) as error:
            log.warning("slave_not_served reason=%s", error)
        finally:
            if transport is None:
                peer.close()

    def _context(self, first: int) -> ssl.SSLContext | None:
        mode, is_tls = self._tls.settings.mode, first == _CLIENT_HELLO
        if is_tls and mode is TlsMode.DISABLED:
            raise ValueError("it speaks TLS, and tls.server.mode=disabled")
        if not is_tls and mode is TlsMode.ENFORCING:
            raise ValueError("it speaks plaintext, and tls.server.mode=enforcing")
        return self._tls.get() if is_tls else None


async def _first_byte(loop: asyncio.AbstractEventLoop, peer: socket.socket) -> int:
    """Return the first byte of a peer, and leave it in the socket; OSError if it has left."""
    readable = asyncio.Event()
    loop.add_reader(peer, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(peer)
    found = peer.recv(1, socket.MSG_PEEK)
    if not found:
        raise ConnectionResetError("it disconnected before it reported")
    return found[0]
