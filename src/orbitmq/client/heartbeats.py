"""Heartbeats: every broker of a session is told who is here, again and again, and at once when it cannot know any more.

A broker knows members by the connection on which a heartbeat told of them, and forgets them with it. So whoever is connected anew is told
at once, and not when the next round comes.

Invariant: a broker counts as told only after it said so. One that did not is left alone for a while, lest everybody waits for it, unless
a connection is made meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from orbitmq.protocol.bodies.clients import HeartbeatData
from orbitmq.protocol.codes import RequestCode
from orbitmq.remoting.channel import Channel

if TYPE_CHECKING:
    from orbitmq.client.session import ClientSession

PAUSE_MS: Final = 3_000  # after a heartbeat that failed

log = logging.getLogger(__name__)


class Heartbeats:
    """Of one session, until `close`. It hears of connections as a ConnectionListener."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._told: dict[str, object] = {}  # what brokers know, by address: see `_knowledge`
        self._left_alone_until_ms: dict[str, int] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._introductions: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def tell_all(self) -> None:
        """Tell every broker; one that does not answer is told again next time."""
        await asyncio.gather(*(self._tell(address, is_due=True) for address in self._session.broker_addresses()))

    async def introduce(self) -> None:
        """Tell the brokers that do not know who is here."""
        strangers = [address for address in self._session.broker_addresses() if not self._needs_nothing(address)]
        if strangers:
            await asyncio.gather(*(self._tell(address) for address in strangers))

    async def close(self) -> None:
        """Tell nobody any more."""
        self._is_closed = True
        tasks = (*self._introductions, *self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- connections

    def on_connect(self, _: Channel) -> None:
        self._left_alone_until_ms.clear()
        if self._session.members and not self._is_closed:
            task = asyncio.get_running_loop().create_task(self.introduce())
            self._introductions.add(task)
            task.add_done_callback(self._introductions.discard)

    def on_close(self, channel: Channel) -> None: ...

    def on_exception(self, channel: Channel, problem: BaseException) -> None: ...

    def on_idle(self, channel: Channel) -> None: ...

    # -- one broker

    async def _tell(self, address: str, *, is_due: bool = False) -> None:
        """Whoever wants the same at the same time waits for the same heartbeat; who joined after it was sent needs another one."""
        while not self._is_closed and (is_due or not self._needs_nothing(address)):
            is_due = False
            task = self._under_way.get(address)
            if task is None or task.done():  # to wait for one that is done gives nobody else a turn
                task = self._under_way[address] = asyncio.create_task(self._beat(address))
            await asyncio.shield(task)

    async def _beat(self, address: str) -> None:
        session, members = self._session, tuple(self._session.members)
        consumers = tuple(data for member in members if (data := member.consumer_data()) is not None)
        groups = tuple(dict.fromkeys(group for member in members if (group := member.producer_group) is not None))
        is_told = True
        if consumers or groups:
            body = HeartbeatData(session.client_id, groups, consumers).encode()
            is_told = await session.tell(address, RequestCode.HEART_BEAT, None, body)
        if is_told:
            self._told[address] = members, session.client.connection_to(address)
        else:
            self._told.pop(address, None)
            self._left_alone_until_ms[address] = session.clock.monotonic_ms() + PAUSE_MS

    def _needs_nothing(self, address: str) -> bool:
        session = self._session
        if self._told.get(address) == (tuple(session.members), session.client.connection_to(address)):
            return True
        return self._left_alone_until_ms.get(address, 0) > session.clock.monotonic_ms()
