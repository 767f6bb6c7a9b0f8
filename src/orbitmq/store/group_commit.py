"""Those who wait until the log is flushed, or replicated, up to some offset: who may go, and with which outcome.

Sans-IO: offsets and `now_ms` (monotonic) come in, waiters come out; what a waiter is, and how it is told, is the caller's.
Invariants: a waiter leaves once; waiters leave in the order of their end offsets, which is that of their arrival; a later one never
expires before an earlier one, since both wait for the same thing. So one list, taken from the front, is all there is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")


class Outcome(Enum):
    """What became of the wait."""

    DONE = "done"
    TIMED_OUT = "timed out"  # told as FLUSH_DISK_TIMEOUT: the message is in the log, and may become safe yet
    FAILED = "failed"


class GroupCommit(Generic[T]):
    """Waiters in the order of their end offsets."""

    __slots__ = ("_failed", "_reached", "_waiting", "message_count")

    def __init__(self, reached: int = 0) -> None:
        self._waiting: deque[tuple[int, int, T, int]] = deque()
        self.message_count = 0  # that somebody waits for
        self._reached = reached
        self._failed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first waiter expires."""
        return self._waiting[0][1] if self._waiting else None

    def ticket(self, end_offset: int, deadline_ms: int, waiter: T, message_count: int = 1) -> Outcome | None:
        """Let `waiter` wait for so many messages up to `end_offset`; the outcome if there is one already, and then it does not wait."""
        if end_offset <= self._reached:
            return Outcome.DONE
        if self._failed:
            return Outcome.FAILED
        if self._waiting:
            last_offset, last_deadline_ms, *_ = self._waiting[-1]
            assert end_offset >= last_offset, f"a ticket for {end_offset} after one for {last_offset}"
            deadline_ms = max(deadline_ms, last_deadline_ms)
        self._waiting.append((end_offset, deadline_ms, waiter, message_count))
        self.message_count += message_count
        return None

    def reach(self, offset: int) -> list[T]:
        """Everything up to `offset` is safe: those who waited for it, in order."""
        self._reached = max(self._reached, offset)
        return self._take(lambda end_offset, _: end_offset <= self._reached)

    def expire(self, now_ms: int) -> list[T]:
        """Those whose deadline has come."""
        return self._take(lambda _, deadline_ms: deadline_ms <= now_ms)

    def fail(self) -> list[T]:
        """Nothing more will become safe: everybody goes, and nobody waits from now on."""
        self._failed = True
        return self._take(lambda *_: True)

    def _take(self, may_go: Callable[[int, int], bool]) -> list[T]:
        gone = []
        while self._waiting and may_go(self._waiting[0][0], self._waiting[0][1]):
            _, _, waiter, message_count = self._waiting.popleft()
            self.message_count -= message_count
            gone.append(waiter)
        return gone
