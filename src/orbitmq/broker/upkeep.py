"""What a broker does as time passes: the store's ticks, pulls that waited long enough, clients that fell silent, offsets to be saved.

Knows when, not what: every part says itself when it wants to be called. Thread rule: the loop thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from orbitmq.broker.clients import SCAN_PERIOD_MS
from orbitmq.broker.figures import Figures
from orbitmq.broker.offsets import Offsets
from orbitmq.broker.processors.clients import ClientProcessor
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.common.clock import Clock
from orbitmq.store.message_store import MessageStore

OFFSETS_PERIOD_S: Final = 5.0
_EXPIRY_PERIOD_S: Final = 0.25  # how exactly a held pull's time is kept
_FIGURES_PERIOD_S: Final = 1.0
log = logging.getLogger(__name__)


class Upkeep:
    """From `start` to `stop`."""

    def __init__(
        self, clock: Clock, store: MessageStore, offsets: Offsets, pulls: PullProcessor, clients: ClientProcessor, figures: Figures
    ) -> None:
        self._clock = clock
        self._store = store
        self._periodic: list[tuple[float, Callable[[], None]]] = [
            (_EXPIRY_PERIOD_S, pulls.expire),
            (OFFSETS_PERIOD_S, offsets.save_soon),
            (SCAN_PERIOD_MS / 1000, clients.scan),
            (_FIGURES_PERIOD_S, lambda: figures.tick(clock.now_ms())),
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False

    def start(self) -> None:
        self._is_running = True
        self._tasks = [asyncio.get_running_loop().create_task(_repeat(period_s, work)) for period_s, work in self._periodic]
        self.tick_store()

    async def stop(self) -> None:
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

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


async def _repeat(period_s: float, work: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(period_s)
        try:
            work()
        except Exception:
            log.exception("upkeep_failed work=%s", work)
