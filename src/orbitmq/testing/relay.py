"""A TCP relay in front of a server that can be cut: it forwards bytes while the link is free.

A silent cut neither reads nor forwards: bytes are held until the link is free again, as when a
network loses packets. The operating system may still complete a new connection, on which nothing
arrives. A reset cut resets connections and refuses new ones. Knows bytes only. Thread rule: use it
only on the loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
import struct
from typing import Final

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_READ_SIZE: Final = 1 << 16
_PASSES_AT_CLOSE: Final = 20  # loop iterations to forward the server's last bytes


class LinkState(enum.Enum):
    """What happens to traffic."""

    FREE = "free"
    SILENT = "silent"
    RESET = "reset"


class Relay:
    """A relay from a port of `host` to the same port of `server`, from `open` to `close`.

    Its link state survives a reopen.
    """

    def __init__(self, host: str, server: str, port: int) -> None:
        self._here, self._there = (host, port), (server, port)
        self._state = LinkState.FREE
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._is_open = False
        self._listener: socket.socket | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Accept connections, unless the link is reset."""
        self._is_open = True
        self._listen()

    async def close(self) -> None:
        """Stop accepting, forward the server's last bytes, and reset the remaining connections."""
        self._is_open = False
        self._listen()
        for _ in range(_PASSES_AT_CLOSE):
            await asyncio.sleep(0)
        await self._reset()

    async def set_state(self, state: LinkState) -> None:
        """Cut or free the link."""
        self._state = state
        if state is LinkState.FREE:
            self._is_free.set()
        else:
            self._is_free.clear()
        self._listen()
        if state is LinkState.RESET:
            await self._reset()

    def _listen(self) -> None:
        """Open or close the listener, and accept or not, according to the state."""
        loop = asyncio.get_running_loop()
        if self._listener is not None:
            loop.remove_reader(self._listener)
        if not self._is_open or self._state is LinkState.RESET:
            if self._listener is not None:
                self._listener.close()
                self._listener = None
            return
        if self._listener is None:
            self._listener = socket.create_server(self._here, backlog=128)
            self._listener.setblocking(False)
        if self._state is LinkState.FREE:
            loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            peer, _ = listener.accept()
        except OSError:  # closed before it was accepted
            return
        task = asyncio.get_running_loop().create_task(self._carry(peer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _reset(self) -> None:
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, peer: socket.socket) -> None:
        """Forward one connection for as long as the server keeps it."""
        with peer, socket.socket() as server:
            upward: asyncio.Task[None] | None = None
            try:
                for each in (peer, server):
                    each.setblocking(False)
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await asyncio.get_running_loop().sock_connect(server, self._there)
                upward = asyncio.create_task(self._pass_up(peer, server))
                await self._pass_on(server, peer)
            except (OSError, asyncio.CancelledError):
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            finally:
                if upward is not None:
                    upward.cancel()
                    await asyncio.gather(upward, return_exceptions=True)

    async def _pass_up(self, peer: socket.socket, server: socket.socket) -> None:
        try:
            await self._pass_on(peer, server)
        except OSError:  # the peer is gone: stop the server's direction, too
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)

    async def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._is_free.wait()
            data = await loop.sock_recv(source, _READ_SIZE)
            await self._is_free.wait()  # the link may have been cut meanwhile
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            await loop.sock_sendall(sink, data)
