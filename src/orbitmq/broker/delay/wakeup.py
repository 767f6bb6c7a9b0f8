"""A wake-up: runs work at the time that was requested last, and not before; there is no polling in
between.

Times are those of the wall clock, which may be set: so the loop looks again after a second at the
latest, and the wait itself is measured by the monotonic clock. Thread rule: the loop thread.
Invariant: work that fails is logged and retried.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from orbitmq.common.clock import Clock

LOOK_MS: Final = 1000

log = logging.getLogger(__name__)


class WakeUp:
    """Runs `work` from `start` to `stop`. `work` receives the time and returns when to be called
    again; None: when `at` is called.
    """

    def __init__(self, clock: Clock, work: Callable[[int], int | None]) -> None:
        self._clock = clock
        self._work = work
        self._timer: asyncio.TimerHandle | None = None
        self._at_ms = 0  # by the monotonic clock
        self._is_running = False

    @property
    def is_running(self) -> bool:
        return self._is_running

    def start(self) -> None:
        self._is_running = True
        self._plan(self._clock.now_ms())

    def stop(self) -> None:
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()

    def at(self, time_ms: int) -> None:
        """Run the work at that time, unless it is scheduled earlier."""
        if (
            self._is_running
            and time_ms - self._clock.now_ms() < self._at_ms - self._clock.monotonic_ms()
        ):
            self._plan(time_ms)

    def _plan(self, time_ms: int) -> None:
        wait_ms = min(max(time_ms - self._clock.now_ms(), 0), LOOK_MS)
        self._at_ms = self._clock.monotonic_ms() + wait_ms
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._run)

    def _run(self) -> None:
        now_ms = self._clock.now_ms()
        next_ms: int | None = now_ms + LOOK_MS
        try:
            next_ms = self._work(now_ms)
        except Exception:
            log.exception("wake_up_failed work=%s", self._work)
        if self._is_running:
            self._plan(now_ms + LOOK_MS if next_ms is None else next_ms)
