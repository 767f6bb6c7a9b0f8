"""Prefetches one assigned queue into its process queue; used by every prefetching consumer.

Reads while there is room, long-polls for messages yet to arrive, and restarts at the offset the
broker suggests when the requested one is out of range. `state` always says what it is doing or what
keeps it from reading. Knows nothing of who consumes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from orbitmq.client.consumer.membership import Membership
from orbitmq.client.consumer.process_queue import CacheLimits, ProcessQueue
from orbitmq.client.consumer.pulling import PullResult, PullStatus, pull
from orbitmq.common.errors import OrbitError, RequestRefusedError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import ResponseCode

_PRESSURE_WAIT_S: Final = 0.05
_FAILURE_WAIT_S: Final = 1.0
WAITS_FOR_MESSAGES: Final = "all messages are read; waiting for new ones"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """How queues are prefetched."""

    limits: CacheLimits = field(default_factory=CacheLimits)
    pull_count: int = 32
    suspend_ms: int = 15_000  # long-polling time at the broker
    timeout_ms: int = 30_000
    is_lite: bool = False  # the consumer itself updates the offset store
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a queue may not be read now."""

    why: str
    is_held: bool = False  # hold back the reply of a pull in flight, too
    is_lost: bool = False  # another member may consume the queue: discard what was read


class QueueReader:
    """Reads one queue until it is stopped.

    `arrived` is called when the cache has new messages; `obstacle` returns why nothing may be read
    now, or None.
    """

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
        self.state = "looking up the start offset"
        self.next_offset: int | None = None  # next to read
        self.broker_end: int | None = None  # end of the queue at the last reply
        self.last_read_ms = membership.session.clock.monotonic_ms()  # of the last reply
        self.last_finished_s: float | None = None  # of the last message; set by the consumer
        self._membership = membership
        self._settings = settings
        self._arrived = arrived
        self._obstacle = obstacle
        self._was_lost = False
        self._asks_lite = settings.is_lite
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start reading."""
        self._task = asyncio.create_task(self._read_forever())

    def wake(self) -> None:
        """Check now whether the queue can be read again, since an obstacle may be gone."""
        self._woken.set()

    async def stop(self) -> None:
        """Stop reading; unfinished messages are redelivered to the next owner."""
        self.is_dropped = True
        self.note_progress()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def seek(self, offset: int) -> None:
        """Continue at another offset, discarding what was read before."""
        if self._task is not None:
            self._task.cancel()  # it changes nothing from here on, so do not wait for it
        self._begin_at(offset)
        if not self.is_dropped:
            self.start()

    def _begin_at(self, offset: int) -> None:
        self.cache = ProcessQueue()
        self.next_offset = offset
        if not self._settings.is_lite:
            self._membership.offsets.update(self.queue, offset, may_go_back=True)

    def note_progress(self) -> None:
        """Update the offset store with the commit offset."""
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
                    # A restart resumes here, too, even if nothing was consumed yet.
                    self._membership.offsets.update(self.queue, self.next_offset)
                    self.state = f"pulling messages from offset {self.next_offset}"
                found = await self._pull(self.next_offset, broker_id)
                if await self._lost_meanwhile():
                    continue
            except OrbitError as problem:
                if isinstance(problem, RequestRefusedError):
                    self._membership.refused(problem)
                self.state = f"the pull failed and is retried: {problem}"
                log.info(
                    "pull_failed queue=%s offset=%s why='%s'", self.queue, self.next_offset, problem
                )
                await asyncio.sleep(_FAILURE_WAIT_S)
                continue
            except Exception:
                self.state = "reading failed unexpectedly and is retried; see the log"
                log.exception("read_failed queue=%s offset=%s", self.queue, self.next_offset)
                await asyncio.sleep(_FAILURE_WAIT_S)
                continue
            broker_id = found.broker_id
            self._take_in(found)

    async def _rest(self, wait_s: float) -> None:
        """Sleep, or return earlier when woken."""
        self._woken.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._woken.wait()

    async def _obstructed(self) -> float:
        """Return how long to sleep before checking the queue again; 0 if it can be read."""
        obstacle = self._look()
        if obstacle is not None:
            return _FAILURE_WAIT_S
        if self._was_lost:
            self.next_offset = None
            self.cache = ProcessQueue()
            self._was_lost = False
        pressure = self.cache.pressure(self._settings.limits, in_order=self._settings.in_order)
        if pressure is not None:
            self.state = (
                f"reading is paused: {pressure}; messages are consumed more slowly than they arrive"
            )
            return _PRESSURE_WAIT_S
        return 0

    def why(self) -> str:
        """Explain why the queue progresses or not, including obstacles that arose during a pull."""
        obstacle = self._obstacle(self.queue)
        return self.state if obstacle is None else obstacle.why

    def _look(self) -> Obstacle | None:
        obstacle = self._obstacle(self.queue)
        if obstacle is not None:
            self.state = obstacle.why
            self._was_lost |= obstacle.is_lost
        return obstacle

    async def _lost_meanwhile(self) -> bool:
        """Hold the reply of a pull as long as an obstacle demands it; return whether the queue was
        lost.
        """
        while (obstacle := self._look()) is not None and obstacle.is_held:
            await self._rest(_FAILURE_WAIT_S)
        return self._was_lost

    def _take_in(self, found: PullResult) -> None:
        self.last_read_ms = self._membership.session.clock.monotonic_ms()
        self.broker_end = found.max_offset
        if found.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "offset_moved queue=%s from=%s to=%d",
                self.queue,
                self.next_offset,
                found.next_offset,
            )
            self._begin_at(found.next_offset)
            return
        self.next_offset = found.next_offset
        self.state = WAITS_FOR_MESSAGES if found.next_offset >= found.max_offset else "reading"
        self.cache.put(found.messages, found.next_offset)
        if found.messages:
            self._arrived(self)

    async def _pull(self, offset: int, broker_id: int) -> PullResult:
        try:
            return await self._pull_once(offset, broker_id)
        except RequestRefusedError as refused:
            if not self._asks_lite or refused.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        self._asks_lite = False  # brokers of 4.9 have a single pull request
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
            commit_offset=(
                membership.offsets.known(self.queue)
                if membership.is_clustering and not settings.is_lite
                else None
            ),
            suspend_ms=settings.suspend_ms,
            timeout_ms=settings.timeout_ms,
            broker_id=broker_id,
            is_lite=self._asks_lite,
        )
