"""Holds a master's delivery progress back until this broker's own log has the copies.

A master notes a delayed message as delivered when its copy is in its log. A slave that took that
over without the copy would never deliver the message when it becomes the master. So progress waits
until the slave's log has reached the end of the master's. Progress that arrives meanwhile does not
replace what waits, or under load none would ever be reached.

Sans-IO. Invariants: what `release` returns is in the log; it never goes back.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Held(NamedTuple, Generic[T]):
    """Progress, and where the master's log ended with its copies."""

    value: T
    log_end: int


class HeldProgress(Generic[T]):
    """The next progress to take over, and the newest one behind it."""

    def __init__(self) -> None:
        self._next: Held[T] | None = None
        self._newest: Held[T] | None = None

    def hold(self, value: T, log_end: int) -> None:
        """Take over `value` once the log has reached `log_end`."""
        held = Held(value, log_end)
        if self._next is None:
            self._next = held
        else:
            self._newest = held

    def release(self, log_end: int) -> Held[T] | None:
        """Return the newest progress whose copies a log that ends there has; None if none is."""
        released: Held[T] | None = None
        while self._next is not None and self._next.log_end <= log_end:
            released = self._next
            self._next, self._newest = self._newest, None
        return released

    def clear(self) -> None:
        """Forget what is held: it is of another master."""
        self._next = self._newest = None
