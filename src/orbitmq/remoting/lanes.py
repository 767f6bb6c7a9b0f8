"""Lanes: asynchronous requests, limited in how many run, how many wait, and for how long.

Thread rule: everything here runs on the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from orbitmq.common.clock import Clock
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel

# None: no reply now; the handler sends it later on the same channel, or never.
Reply = RemotingCommand | None
WaitingHandler = Callable[[Channel, RemotingCommand], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """How many requests of a lane may run, how many may wait, and for how long."""

    name: str
    running_max: int
    queue_max: int
    wait_ms_max: int = 5000


class Job(NamedTuple):
    """A request with its handler and arrival time."""

    arrived_ms: int
    channel: Channel
    request: RemotingCommand
    handler: WaitingHandler
    size: int


class Lane:
    """Runs requests concurrently up to a limit, and queues those beyond it."""

    def __init__(
        self, limits: LaneLimits, clock: Clock, run: Callable[[Job, str | None], Awaitable[None]]
    ) -> None:
        self.limits = limits
        self._clock = clock
        self._run = run
        self._waiting: deque[Job] = deque()
        self._tasks: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        return len(self._tasks) + len(self._waiting)

    @property
    def waiting(self) -> int:
        """Return the number of queued requests."""
        return len(self._waiting)

    def waited_ms(self, now_ms: int) -> int:
        """Return how long the oldest queued request has waited; 0 without any."""
        return now_ms - self._waiting[0].arrived_ms if self._waiting else 0

    def submit(self, job: Job) -> str | None:
        """Run or queue the job; return a reason if there is no room."""
        if len(self._tasks) < self.limits.running_max:
            self._start(job, None)
            return None
        if len(self._waiting) >= self.limits.queue_max:
            limits = self.limits
            return (
                f"the {limits.name} queue is full: {limits.queue_max} requests wait,"
                f" {limits.running_max} run; retry in a moment"
            )
        self._waiting.append(job)
        self._plan_expiry()
        return None

    async def close(self) -> None:
        """Drop the queued requests and cancel the running ones."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, job: Job, refused: str | None) -> None:
        task = asyncio.ensure_future(self._run(job, refused))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        while self._waiting and len(self._tasks) < self.limits.running_max:
            self._start(self._waiting.popleft(), None)

    def _plan_expiry(self) -> None:
        """Schedule the check of the job that has waited longest."""
        if self._timer is None and self._waiting:
            wait_ms = (
                self._waiting[0].arrived_ms + self.limits.wait_ms_max - self._clock.monotonic_ms()
            )
            self._timer = asyncio.get_running_loop().call_later(
                max(wait_ms, 1) / 1000, self._expire
            )

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._waiting and now_ms - self._waiting[0].arrived_ms >= self.limits.wait_ms_max:
            size = len(self._waiting)
            job = self._waiting.popleft()
            self._start(
                job,
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in"
                f" queue: {now_ms - job.arrived_ms}ms, size of queue: {size}, running:"
                f" {len(self._tasks)} in {self.limits.name}; retry in a moment",
            )
        self._plan_expiry()
