"""Keeps a slave connected to its master: connects, waits until the connection ends, connects again.

The address is looked up before each attempt; an open connection stays when it changes. Pauses
between attempts grow while they fail. While there is no address, `find` is called now and then.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from orbitmq.remoting.name_servers import split_address
from orbitmq.replication.follower import LogFollower

CONNECT_TIMEOUT_S: Final = 5.0
PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 5.0
FIND_PAUSE_S: Final = 1.0
_TICK_S: Final = 0.5
log = logging.getLogger(__name__)


class MasterLink:
    """The slave's connection, from `start` to `stop`."""

    def __init__(
        self,
        follower: LogFollower,
        *,
        address: Callable[[], str | None],
        find: Callable[[], object],
        tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self._follower = follower
        self._address = address
        self._find = find
        self._tls = tls
        self._wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to follow."""
        self._tasks = [
            asyncio.ensure_future(self._follow_forever()),
            asyncio.ensure_future(self._tick_forever()),
        ]

    async def stop(self) -> None:
        """Close the connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._follower.close()

    def wake(self) -> None:
        """Try again at once: the address may be known now."""
        self._wanted.set()

    async def _follow_forever(self) -> None:
        pause_s = PAUSE_S_MIN
        while True:
            self._wanted.clear()
            address = self._address()
            end = self._follower.store.log.end_offset
            if address is None:
                self._follower.problem = (
                    "the address of the master is not known: no name server has a broker with"
                    " brokerId 0 and this brokerName. Start it, or set haMasterAddress"
                )
                self._find()
                pause_s = min(pause_s, FIND_PAUSE_S / 2)
            else:
                await self._follow(address)
            has_progressed = self._follower.store.log.end_offset > end
            pause_s = PAUSE_S_MIN if has_progressed else min(2 * pause_s, PAUSE_S_MAX)
            try:
                await asyncio.wait_for(self._wanted.wait(), pause_s)
            except TimeoutError:
                continue

    async def _follow(self, address: str) -> None:
        """Connect, and return when the connection has ended."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            host, port = split_address(address)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                context = self._tls()
                transport, _ = await loop.create_connection(
                    lambda: self._follower.connect(ended.set),
                    host,
                    port,
                    ssl=context,
                    server_hostname=host if context else None,
                )
        except (OSError, TimeoutError) as error:
            problem = f"cannot connect to the master's HA port {address}: {error or 'no answer'}"
            if problem != self._follower.problem:
                log.warning("master_not_reached address=%s reason=%s", address, error)
            self._follower.problem = problem
            return
        try:
            peer = cast("socket.socket", transport.get_extra_info("socket"))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await ended.wait()
        finally:
            transport.abort()

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._follower.tick()
