"""Waiters for the log to be flushed, or replicated, up to an offset: which are done, and with which
outcome.

Sans-IO: offsets and `now_ms` (monotonic) come in, waiters come out; what a waiter is, and how it is
notified, is up to the caller. Invariants: a waiter leaves once; waiters leave in the order of their
end offsets, which is that of their arrival; a later one never expires before an earlier one, since
both wait for the same thing. So a single queue is enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")


class Outcome(Enum):
    """The outcome of a wait."""

    DONE = "done"
    TIMED_OUT = "timed out"  # FLUSH_DISK_TIMEOUT: the message is in the log, and may become durable
    REPLICA_TIMED_OUT = "replica timed out"  # FLUSH_SLAVE_TIMEOUT: it may be replicated later
    NO_REPLICA = "no replica"  # SLAVE_NOT_AVAILABLE: durable here, and nowhere else
    FAILED = "failed"


class GroupCommit(Generic[T]):
    """Waiters in the order of their end offsets."""

    __slots__ = ("_failed", "_reached", "_waiting", "message_count")

    def __init__(self, reached: int = 0) -> None:
        self._waiting: deque[tuple[int, int, T, int]] = deque()
        self.message_count = 0  # of all waiters
        self._reached = reached
        self._failed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first waiter expires."""
        return self._waiting[0][1] if self._waiting else None

    def ticket(
        self, end_offset: int, deadline_ms: int, waiter: T, message_count: int = 1
    ) -> Outcome | None:
        """Add a waiter for `message_count` messages up to `end_offset`; return the outcome if it is
        known already, and then it is not added.
        """
        if end_offset <= self._reached:
            return Outcome.DONE
        if self._failed:
            return Outcome.FAILED
        if self._waiting:
            last_offset, last_deadline_ms, *_ = self._waiting[-1]
            assert end_offset >= last_offset, (
                f"a ticket for {end_offset} after one for {last_offset}"
            )
            deadline_ms = max(deadline_ms, last_deadline_ms)
        self._waiting.append((end_offset, deadline_ms, waiter, message_count))
        self.message_count += message_count
        return None

    def reach(self, offset: int) -> list[T]:
        """Note that everything up to `offset` is durable; return its waiters, in order."""
        self._reached = max(self._reached, offset)
        taken = self._take(lambda end_offset, _: end_offset <= self._reached)
        return [waiter for _, waiter in taken]

    def expire(self, now_ms: int) -> list[tuple[int, T]]:
        """Return the waiters whose deadline has passed, with their end offsets."""
        return self._take(lambda _, deadline_ms: deadline_ms <= now_ms)

    def fail(self) -> list[T]:
        """Note that nothing more will become durable: return all waiters, and accept none from now
        on.
        """
        self._failed = True
        return [waiter for _, waiter in self._take(lambda *_: True)]

    def _take(self, is_over: Callable[[int, int], bool]) -> list[tuple[int, T]]:
        taken = []
        while self._waiting and is_over(self._waiting[0][0], self._waiting[0][1]):
            end_offset, _, waiter, message_count = self._waiting.popleft()
            self.message_count -= message_count
            taken.append((end_offset, waiter))
        return taken
