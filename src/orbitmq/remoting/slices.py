"""Runs work in slices (`common/slices.py`) on the loop's thread.

Each loop iteration runs one slice of queued work, or several short ones, round robin: with one
slice each, a loop busy with iterations of 5 ms would never finish thousands of short ones. Thread
rule: everything here runs on the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from orbitmq.common.slices import Slices

log = logging.getLogger(__name__)

T = TypeVar("T")

SHARE_NS: Final = 2_000_000  # of queued work per iteration; no slice starts after it


async def finish_between(work: Slices[T]) -> T:
    """Run one slice per loop iteration and return the result, for coroutines."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


class SliceQueue:
    """Pieces of work in progress, served round robin. With `share_ns` 0 one slice runs per loop
    iteration.
    """

    def __init__(self, *, share_ns: int = SHARE_NS) -> None:
        self._share_ns = share_ns
        self._works: deque[tuple[Slices[None], Callable[[], object] | None]] = deque()
        self._step_handle: asyncio.Handle | None = None
        self._is_advancing = False

    def __len__(self) -> int:
        return len(self._works)

    def start(
        self,
        work: Slices[None],
        ended: Callable[[], object] | None = None,
        *,
        is_bounded: bool = False,
    ) -> bool:
        """Run the first slice now, unless other work is in progress, and the rest later. Returns
        True if the work is done.

        `ended` is called when queued work ends, not when it is done at once. `is_bounded`: the
        caller limits the time of what it starts per iteration, so the first slice is deferred only
        while another one runs.
        """
        if (is_bounded or not self._works) and not self._is_advancing and not self._advance(work):
            return True
        self.add(work, ended)
        return False

    def add(self, work: Slices[None], ended: Callable[[], object] | None = None) -> None:
        """Run all slices later."""
        self._works.append((work, ended))
        self._plan()

    def cancel(self, work: Slices[None]) -> None:
        """Drop a piece of work; its `finally` blocks run, `ended` is not called."""
        self._works = deque(each for each in self._works if each[0] is not work)
        work.close()

    def close(self) -> None:
        """Drop all work."""
        if self._step_handle is not None:
            self._step_handle.cancel()
            self._step_handle = None
        while self._works:
            self._works.popleft()[0].close()

    def _plan(self) -> None:
        if self._step_handle is None and self._works:
            self._step_handle = asyncio.get_running_loop().call_soon(self._step)

    def _step(self) -> None:
        self._step_handle = None
        ends_ns = time.monotonic_ns() + self._share_ns
        while self._works:
            work, ended = self._works.popleft()
            if self._advance(work):
                self._works.append((work, ended))
            elif ended is not None:
                ended()
            if time.monotonic_ns() >= ends_ns:
                break
        self._plan()

    def _advance(self, work: Slices[None]) -> bool:
        """Run one slice; return whether there are more. A failure ends this piece of work only."""
        self._is_advancing = True
        try:
            next(work)
        except StopIteration:
            return False
        except Exception:
            log.exception("work in slices failed")
            return False
        finally:
            self._is_advancing = False
        return True
