"""A relay in front of a server: whoever connects to it talks with the server, unless the way between them is cut.

Cut in silence, it takes nothing and passes nothing on: bytes wait until the way is free again, as they do when a network loses packets.
The system may still complete a new connection; nothing is heard on it. Cut by resets, connections are reset and new ones refused.
Knows bytes only. Thread rule: the thread of the loop.
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
_PASSES_AT_CLOSE: Final = 20  # of the loop, for what a server said last


class Way(enum.Enum):
    """What becomes of bytes."""

    FREE = "free"
    SILENT = "silent"
    RESET = "reset"


class Relay:
    """From `open` to `close`: from a port of `host` to the same port of `server`. How the way is stays when it is opened again."""

    def __init__(self, host: str, server: str, port: int) -> None:
        self._here, self._there = (host, port), (server, port)
        self._way = Way.FREE
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._is_open = False
        self._listener: socket.socket | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Let peers connect, if the way is not cut by resets."""
        self._is_open = True
        self._listen()

    async def close(self) -> None:
        """Let nobody connect any more, pass on what the server said last, and reset the rest."""
        self._is_open = False
        self._listen()
        for _ in range(_PASSES_AT_CLOSE):
            await asyncio.sleep(0)
        await self._reset()

    async def set_way(self, way: Way) -> None:
        """Cut the way, or make it free."""
        self._way = way
        if way is Way.FREE:
            self._is_free.set()
        else:
            self._is_free.clear()
        self._listen()
        if way is Way.RESET:
            await self._reset()

    def _listen(self) -> None:
        """Have a listener, and accept what comes to it, as open and way say."""
        loop = asyncio.get_running_loop()
        if self._listener is not None:
            loop.remove_reader(self._listener)
        if not self._is_open or self._way is Way.RESET:
            if self._listener is not None:
                self._listener.close()
                self._listener = None
            return
        if self._listener is None:
            self._listener = socket.create_server(self._here, backlog=128)
            self._listener.setblocking(False)
        if self._way is Way.FREE:
            loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            peer, _ = listener.accept()
        except OSError:  # it went before it was accepted
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
        """One connection, for as long as the server keeps it."""
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
        except OSError:  # the peer is gone: so is what the server has to say to it
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)

    async def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._is_free.wait()
            data = await loop.sock_recv(source, _READ_SIZE)
            await self._is_free.wait()  # the way may have been cut meanwhile
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            await loop.sock_sendall(sink, data)
