"""What a broker does as time passes: the store's ticks, a word in the log when its queues fall behind, and chores, each with its period.

Knows when, not what. Thread rule: the loop thread. Invariant: a chore that fails is logged and goes on with its next period.
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


class Chore(NamedTuple):
    """Something to be done again and again."""

    period_s: float | Callable[[], float]  # asked before each wait when it may change
    work: Callable[[], object]  # one that is a generator function runs in slices


class Upkeep:
    """From `start` to `stop`."""

    def __init__(self, clock: Clock, store: MessageStore, chores: Sequence[Chore]) -> None:
        self._clock = clock
        self._store = store
        self._chores = [*chores, Chore(DISPATCH_PERIOD_S, self.tell_dispatch)]
        self._tasks: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False

    def start(self) -> None:
        self._is_running = True
        self._tasks = [asyncio.get_running_loop().create_task(_repeat(chore)) for chore in self._chores]
        self.tick_store()

    async def stop(self) -> None:
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def tell_dispatch(self) -> None:
        """Say how much of the log is in no queue yet, if any is."""
        behind = self._store.log.end_offset - self._store.dispatcher.offset
        if behind > 0:
            log.info("dispatch_behind bytes=%d reason=%s", behind, self._store.refusal)

    def tick_store(self) -> None:
        """Let the store do what is due, now, and plan the next time."""
        if not self._is_running:
            return
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._store.tick()
        except Exception:  # it is tried again with the next tick
            log.exception("store_tick_failed")
        wait_ms = max(self._store.next_tick_ms - self._clock.monotonic_ms(), 1)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.tick_store)


async def _repeat(chore: Chore) -> None:
    while True:
        await asyncio.sleep(chore.period_s() if callable(chore.period_s) else chore.period_s)
        try:
            done = chore.work()
            if inspect.isgenerator(done):
                await finish_between(cast("Slices[object]", done))
        except Exception:
            log.exception("upkeep_failed work=%s", chore.work)
