"""An event loop whose time is that of a clock moved by hand: sleeps, timers and timeouts on it wait for that clock and for no other.

Time moves while somebody waits in `advance`, and only when the loop has nothing else to do: from timer to timer, so that things happen in
their order, each at its time. A long way is gone in strides, or every period of every chore would be lived through: timers of one stride
are still in their order, and late by a stride at most. Whatever waits by the loop, and reads its time from the clock, needs to know nothing
of this. Sockets, threads and other processes live in real time: time that moves does not wait for them.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable
from typing import Final

from orbitmq.testing.manual_clock import ManualClock

STRIDES_MAX: Final = 1_000
STRIDE_MS_MAX: Final = 30_000  # brokers tell name servers that often that they live
_SETTLE_S: Final = 0.002  # real time for threads to come back with what they were given
_ROUNDING_MS: Final = 1e-4  # seconds are floats


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See above. `moved` is called after each move of the clock, before anything that is due then."""

    def __init__(self, clock: ManualClock, moved: Callable[[], object] = lambda: None) -> None:
        self._clock = clock
        self._moved = moved
        self._target_ms = 0
        self._stride_ms = 1
        self._is_settled = False  # what was under way in threads had its moment
        self._arrived: asyncio.Future[None] | None = None
        super().__init__(_Selector(self._real_wait_s))

    def time(self) -> float:
        return self._clock.monotonic_ms() / 1000

    async def advance(self, elapsed_ms: int) -> None:
        """Let time pass; what is due by then has happened when this returns, as far as the loop does it."""
        if elapsed_ms < 0:
            raise ValueError(f"time cannot pass backwards: {elapsed_ms} ms")
        if self._arrived is not None:
            raise RuntimeError("time is being moved already: wait until that call of advance is back")
        self._stride_ms = min(elapsed_ms // STRIDES_MAX, STRIDE_MS_MAX)
        self._target_ms = self._clock.monotonic_ms() + elapsed_ms
        self._is_settled = False
        self._arrived = self.create_future()
        try:
            await self._arrived
        finally:
            self._arrived = None

    def _real_wait_s(self, timer_s: float | None) -> float | None:
        """How long to wait for sockets and threads when nothing is ready and the next timer, if there is any, is so far away."""
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
    """Asks how long to wait in real time."""

    def __init__(self, real_wait_s: Callable[[float | None], float | None]) -> None:
        super().__init__()
        self._real_wait_s = real_wait_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        return super().select(0) or super().select(self._real_wait_s(timeout))
