"""Room for messages that are under way: connections take only so many requests at once, and whoever comes then waits for its turn.

A place is taken by `free -= 1` while `free` is positive, which costs next to nothing, else by `wait`; `leave` gives it back.
Invariant: while somebody waits, nothing is free. Thread rule: the loop's.
"""

from __future__ import annotations

import asyncio
from collections import deque


class SendRoom:
    """For so many at a time."""

    __slots__ = ("_waiting", "free", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self, timeout_ms: int) -> None:
        """Take a place as soon as there is one, first come, first served; TimeoutError when there was none in time."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.leave()  # the place came when nobody wanted it any more
            raise

    def leave(self) -> None:
        """Give a place back: to who waits longest, if anybody does."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1
