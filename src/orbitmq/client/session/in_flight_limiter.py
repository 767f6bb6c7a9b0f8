"""Limits the messages in flight: connections accept a limited number of concurrent requests, and
further senders queue here.

Take a slot with `free -= 1` while `free` is positive, which is nearly free of cost, else with
`acquire`; return it with `release`. Invariant: while a sender is queued, no slot is free. Thread
rule: use it only on the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque


class InFlightLimiter:
    """A fair semaphore with a fixed number of slots."""

    __slots__ = ("_waiting", "free", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self, timeout_ms: int) -> None:
        """Take a slot, first come, first served; raise TimeoutError if none is free in time."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release()  # the slot was granted after the caller gave up
            raise

    def release(self) -> None:
        """Return a slot, to the longest-queued sender if there is one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1
