"""Reads one queue of a group into its process queue, as long as it is ours; used by every consumer that reads ahead.

Reads on while there is room, waits at the broker for what is not there yet, and begins anew where the broker says that an offset is none.
What it does, or what keeps it from reading, is always in `state`. Knows nothing of who consumes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from orbitmq.client.membership import Membership
from orbitmq.client.process_queue import CacheLimits, ProcessQueue
from orbitmq.client.pulling import PullResult, PullStatus, pull
from orbitmq.common.errors import OrbitError, RequestRefused
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import ResponseCode

_PRESSURE_WAIT_S: Final = 0.05
_FAILURE_WAIT_S: Final = 1.0
WAITS_FOR_MESSAGES: Final = "all messages are read; the broker is asked for new ones"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """How queues are read."""

    limits: CacheLimits = field(default_factory=CacheLimits)
    pull_count: int = 32
    suspend_ms: int = 15_000  # how long the broker waits for a message that is not there yet
    timeout_ms: int = 30_000
    is_lite: bool = False  # whoever consumes brings to the offset store how far it is
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why nothing may be read of a queue now."""

    why: str
    is_held: bool = False  # what a pull under way brings waits too
    is_lost: bool = False  # somebody else may consume it meanwhile, so that what was read counts no more


class QueueReader:
    """See above. `arrived` is told when there is something to take; `obstacle` says why nothing may be read now, or None."""

    def __init__(
        self,
        membership: Membership,
        queue: MessageQueue,
        settings: ReadSettings,
        arrived: Callable[[QueueReader], None],
        obstacle: Callable[[MessageQueue], Obstacle | None],
    ) -> None:
        self.queue = queue
        self.cache = ProcessQueue()
        self.is_dropped = False
        self.state = "it is found out where to begin"
        self.next_offset: int | None = None  # where it reads next
        self.broker_end: int | None = None  # the end of the queue when the broker was asked last
        self.last_read_ms = membership.session.clock.monotonic_ms()  # when the broker answered last
        self.last_finished_s: float | None = None  # when a listener ended with a message last; whoever consumes says so
        self._membership = membership
        self._settings = settings
        self._arrived = arrived
        self._obstacle = obstacle
        self._was_lost = False
        self._asks_lite = settings.is_lite
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._read_forever())

    def wake(self) -> None:
        """Look now whether the queue can be read again: what kept it from that may be gone."""
        self._woken.set()

    async def stop(self) -> None:
        """Read no more; what is not finished comes again to the next member."""
        self.is_dropped = True
        self.note_progress()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def seek(self, offset: int) -> None:
        """Go on at another place; what was read before does not count any more."""
        if self._task is not None:
            self._task.cancel()  # from now on it changes nothing, so nobody has to wait for its end
        self._begin_at(offset)
        if not self.is_dropped:
            self.start()

    def _begin_at(self, offset: int) -> None:
        self.cache = ProcessQueue()
        self.next_offset = offset
        if not self._settings.is_lite:
            self._membership.offsets.update(self.queue, offset, may_go_back=True)

    def note_progress(self) -> None:
        """Let the offset store know up to where everything is finished."""
        commit = self.cache.commit_offset
        if commit is not None and not self._settings.is_lite:
            self._membership.offsets.update(self.queue, commit)

    async def _read_forever(self) -> None:
        broker_id = 0
        while True:
            try:
                wait_s = await self._obstructed()
                if wait_s:
                    await self._rest(wait_s)
                    continue
                if self.next_offset is None:
                    self.next_offset = await self._membership.first_offset(self.queue)
                    self._membership.offsets.update(self.queue, self.next_offset)  # a restart begins here too, whatever comes meanwhile
                    self.state = f"the broker is asked for messages from {self.next_offset} on"
                found = await self._pull(self.next_offset, broker_id)
                if await self._lost_meanwhile():
                    continue
            except OrbitError as problem:
                self.state = f"the broker could not be asked, which is tried again: {problem}"
                log.info("pull_failed queue=%s offset=%s why='%s'", self.queue, self.next_offset, problem)
                await asyncio.sleep(_FAILURE_WAIT_S)
                continue
            except Exception:
                self.state = "reading failed unexpectedly, see the log; it is tried again"
                log.exception("read_failed queue=%s offset=%s", self.queue, self.next_offset)
                await asyncio.sleep(_FAILURE_WAIT_S)
                continue
            broker_id = found.broker_id
            self._take_in(found)

    async def _rest(self, wait_s: float) -> None:
        """Wait, unless somebody knows earlier that there is something to do."""
        self._woken.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._woken.wait()

    async def _obstructed(self) -> float:
        """How long to wait before it is looked again whether the queue can be read; 0: it can."""
        obstacle = self._look()
        if obstacle is not None:
            return _FAILURE_WAIT_S
        if self._was_lost:
            self.next_offset = None
            self.cache = ProcessQueue()
            self._was_lost = False
        pressure = self.cache.pressure(self._settings.limits, in_order=self._settings.in_order)
        if pressure is not None:
            self.state = f"nothing more is read for now: {pressure}; they are consumed more slowly than they come"
            return _PRESSURE_WAIT_S
        return 0

    def why(self) -> str:
        """Why the queue moves or does not: also what came up while the broker is being asked."""
        obstacle = self._obstacle(self.queue)
        return self.state if obstacle is None else obstacle.why

    def _look(self) -> Obstacle | None:
        obstacle = self._obstacle(self.queue)
        if obstacle is not None:
            self.state = obstacle.why
            self._was_lost |= obstacle.is_lost
        return obstacle

    async def _lost_meanwhile(self) -> bool:
        """Keep what a pull brought as long as that is asked for; whether the queue was lost, so that it counts no more."""
        while (obstacle := self._look()) is not None and obstacle.is_held:
            await self._rest(_FAILURE_WAIT_S)
        return self._was_lost

    def _take_in(self, found: PullResult) -> None:
        self.last_read_ms = self._membership.session.clock.monotonic_ms()
        self.broker_end = found.max_offset
        if found.status is PullStatus.OFFSET_ILLEGAL:
            log.warning("offset_moved queue=%s from=%s to=%d", self.queue, self.next_offset, found.next_offset)
            self._begin_at(found.next_offset)
            return
        self.next_offset = found.next_offset
        self.state = WAITS_FOR_MESSAGES if found.next_offset >= found.max_offset else "it is read"
        self.cache.put(found.messages, found.next_offset)
        if found.messages:
            self._arrived(self)

    async def _pull(self, offset: int, broker_id: int) -> PullResult:
        try:
            return await self._pull_once(offset, broker_id)
        except RequestRefused as refused:
            if not self._asks_lite or refused.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        self._asks_lite = False  # brokers of 4.9 know one pull for all
        return await self._pull_once(offset, broker_id)

    async def _pull_once(self, offset: int, broker_id: int) -> PullResult:
        membership, settings = self._membership, self._settings
        self.note_progress()
        return await pull(
            membership.session,
            membership.group,
            self.queue,
            offset,
            membership.subscriptions[self.queue.topic],
            count_max=settings.pull_count,
            commit_offset=membership.offsets.known(self.queue) if membership.is_clustering and not settings.is_lite else None,
            suspend_ms=settings.suspend_ms,
            timeout_ms=settings.timeout_ms,
            broker_id=broker_id,
            is_lite=self._asks_lite,
        )
