"""Heartbeats: register the members of a session with every broker, periodically, and at once when a
broker may have lost them.

A broker knows members by the connection that carried their heartbeat, and forgets them with it.
Therefore every new connection triggers a heartbeat without waiting for the next period.

Invariant: a broker counts as informed only after it confirmed a heartbeat. After a failure it gets
no heartbeat for a pause, so that callers do not wait for it, unless a connection is made meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from orbitmq.protocol.bodies.clients import HeartbeatData
from orbitmq.protocol.codes import RequestCode
from orbitmq.remoting.channel import Channel

if TYPE_CHECKING:
    from orbitmq.client.session.client_session import ClientSession

PAUSE_MS: Final = 3_000  # after a failed heartbeat

log = logging.getLogger(__name__)


class Heartbeats:
    """Sends the heartbeats of one session until `close`; a ConnectionListener."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        # By broker address: the members and the connection of the last confirmed heartbeat.
        self._confirmed: dict[str, object] = {}
        self._paused_until_ms: dict[str, int] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._announcements: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def send_all(self) -> None:
        """Send a heartbeat to every broker; failures are retried with the next one."""
        await asyncio.gather(
            *(self._send(address, is_due=True) for address in self._session.broker_addresses())
        )

    async def announce(self) -> None:
        """Send a heartbeat to the brokers that do not know the current members."""
        uninformed = [
            address
            for address in self._session.broker_addresses()
            if not self._needs_nothing(address)
        ]
        if uninformed:
            await asyncio.gather(*(self._send(address) for address in uninformed))

    async def close(self) -> None:
        """Stop sending heartbeats."""
        self._is_closed = True
        tasks = (*self._announcements, *self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- connections

    def on_connect(self, _: Channel) -> None:
        self._paused_until_ms.clear()
        if self._session.members and not self._is_closed:
            task = asyncio.get_running_loop().create_task(self.announce())
            self._announcements.add(task)
            task.add_done_callback(self._announcements.discard)

    def on_close(self, channel: Channel) -> None: ...

    def on_exception(self, channel: Channel, problem: BaseException) -> None: ...

    def on_idle(self, channel: Channel) -> None: ...

    # -- one broker

    async def _send(self, address: str, *, is_due: bool = False) -> None:
        """Send a heartbeat unless the broker needs none.

        Concurrent callers share one heartbeat; a member that joined after it was sent needs another
        one.
        """
        while not self._is_closed and (is_due or not self._needs_nothing(address)):
            is_due = False
            task = self._running.get(address)
            if task is None or task.done():  # awaiting a finished task would never yield
                task = self._running[address] = asyncio.create_task(self._beat(address))
            await asyncio.shield(task)

    async def _beat(self, address: str) -> None:
        session, members = self._session, tuple(self._session.members)
        consumers = tuple(
            data for member in members if (data := member.consumer_data()) is not None
        )
        groups = tuple(
            dict.fromkeys(
                group for member in members if (group := member.producer_group) is not None
            )
        )
        is_confirmed = True
        if consumers or groups:
            body = HeartbeatData(session.client_id, groups, consumers).encode()
            is_confirmed = await session.try_ask(address, RequestCode.HEART_BEAT, None, body)
        if is_confirmed:
            self._confirmed[address] = members, session.client.connection_to(address)
        else:
            self._confirmed.pop(address, None)
            self._paused_until_ms[address] = session.clock.monotonic_ms() + PAUSE_MS

    def _needs_nothing(self, address: str) -> bool:
        session = self._session
        if self._confirmed.get(address) == (
            tuple(session.members),
            session.client.connection_to(address),
        ):
            return True
        return self._paused_until_ms.get(address, 0) > session.clock.monotonic_ms()
