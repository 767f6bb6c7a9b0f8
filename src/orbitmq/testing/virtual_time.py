"""An event loop on virtual time: its sleeps, timers and timeouts follow a manual clock.

Time moves only during `advance`, and only when the loop has nothing else to do: from timer to
timer, so that events happen in order, each at its time. A long advance uses strides, or every
period of every periodic task would run: timers within a stride stay in order and are late by one
stride at most. Code that waits by the loop and reads its clock needs no changes. Sockets, threads
and other processes run in real time: virtual time does not wait for them.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable
from typing import Final

from orbitmq.testing.manual_clock import ManualClock

STRIDES_MAX: Final = 1_000
STRIDE_MS_MAX: Final = 30_000  # the period in which brokers register with name servers
_SETTLE_S: Final = 0.002  # real time for threads to return their results
_ROUNDING_MS: Final = 1e-4  # for seconds as floats


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop driven by a ManualClock; calls `moved` after each move, before anything then
    due.
    """

    def __init__(self, clock: ManualClock, moved: Callable[[], object] = lambda: None) -> None:
        self._clock = clock
        self._moved = moved
        self._target_ms = 0
        self._stride_ms = 1
        self._is_settled = False  # running threads had time to return
        self._arrived: asyncio.Future[None] | None = None
        super().__init__(_Selector(self._real_wait_s))

    def time(self) -> float:
        return self._clock.monotonic_ms() / 1000

    async def advance(self, elapsed_ms: int) -> None:
        """Advance time; when this returns, the loop has run everything due by then."""
        if elapsed_ms < 0:
            raise ValueError(f"time cannot go backwards: {elapsed_ms} ms")
        if self._arrived is not None:
            raise RuntimeError("time is already being advanced: wait for that call of advance")
        self._stride_ms = min(elapsed_ms // STRIDES_MAX, STRIDE_MS_MAX)
        self._target_ms = self._clock.monotonic_ms() + elapsed_ms
        self._is_settled = False
        self._arrived = self.create_future()
        try:
            await self._arrived
        finally:
            self._arrived = None

    def _real_wait_s(self, timer_s: float | None) -> float | None:
        """Return how long to wait for sockets and threads when nothing is ready and the next timer,
        if any, is `timer_s` away.
        """
        if self._arrived is None or self._arrived.done():
            return None
        if not self._is_settled:
            self._is_settled = True
            return _SETTLE_S
        left_ms = self._target_ms - self._clock.monotonic_ms()
        if left_ms == 0:
            self._arrived.set_result(None)
            return 0
        timer_ms = left_ms if timer_s is None else math.ceil(timer_s * 1000 - _ROUNDING_MS)
        step_ms = min(max(timer_ms, self._stride_ms, 1), left_ms)
        self._clock.advance_ms(step_ms)
        self._is_settled = step_ms < left_ms
        self._moved()
        return 0


class _Selector(selectors.DefaultSelector):
    """Determines the real time to wait before each select."""

    def __init__(self, real_wait_s: Callable[[float | None], float | None]) -> None:
        super().__init__()
        self._real_wait_s = real_wait_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        return super().select(0) or super().select(self._real_wait_s(timeout))
