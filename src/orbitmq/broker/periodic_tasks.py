"""The periodic tasks of a broker: the store's ticks, a log line when its queues fall behind, and
housekeeping, each with its own period.

Knows when, not what. Thread rule: the loop thread. Invariant: a task that fails is logged and runs
again after its next period.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

from orbitmq.common.clock import Clock
from orbitmq.common.slices import Slices
from orbitmq.remoting.slices import finish_between
from orbitmq.store.message_store import MessageStore

DISPATCH_PERIOD_S: Final = 60.0

log = logging.getLogger(__name__)


class PeriodicTask(NamedTuple):
    """A task that runs again and again."""

    period_s: float | Callable[[], float]  # called before each wait if it is a function
    work: Callable[[], object]  # a generator function runs in slices


class PeriodicTasks:
    """Runs the periodic tasks from `start` to `stop`."""

    def __init__(self, tasks: Sequence[PeriodicTask]) -> None:
        self._periodic = tasks
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._running = [loop.create_task(_repeat(task)) for task in self._periodic]

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


class StoreTicks:
    """Runs the store's due work from `start` to `stop`, at the times that the store asks for."""

    def __init__(self, clock: Clock, store: MessageStore) -> None:
        self._clock = clock
        self._store = store
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False

    def start(self) -> None:
        self._is_running = True
        self.tick()

    def stop(self) -> None:
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()

    def tick(self) -> None:
        """Run the store's due work now, and schedule the next tick."""
        if not self._is_running:
            return
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._store.tick()
        except Exception:  # retried with the next tick
            log.exception("store_tick_failed")
        wait_ms = max(self._store.next_tick_ms - self._clock.monotonic_ms(), 1)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.tick)

    def log_dispatch(self) -> None:
        """Log how much of the log is not dispatched to the queues yet, if any."""
        behind = self._store.log.end_offset - self._store.dispatcher.offset
        if behind > 0:
            log.info("dispatch_behind bytes=%d reason=%s", behind, self._store.refusal)


async def _repeat(task: PeriodicTask) -> None:
    while True:
        await asyncio.sleep(task.period_s() if callable(task.period_s) else task.period_s)
        try:
            done = task.work()
            if inspect.isgenerator(done):
                await finish_between(cast("Slices[object]", done))
        except Exception:
            log.exception("upkeep_failed work=%s", task.work)
