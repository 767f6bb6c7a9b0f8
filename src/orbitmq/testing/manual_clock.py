"""A clock that moves only on request."""

from __future__ import annotations


class ManualClock:
    """A `Clock` for tests: `advance_ms` moves both readings, `set_wall_ms` only the wall clock."""

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance_ms(self, elapsed_ms: int) -> None:
        """Advance both clocks."""
        if elapsed_ms < 0:
            raise ValueError(
                f"time cannot go backwards: {elapsed_ms} ms; use set_wall_ms to move the wall clock"
            )
        self._wall_ms += elapsed_ms
        self._monotonic_ms += elapsed_ms

    def set_wall_ms(self, now_ms: int) -> None:
        """Set the wall clock, as an operator or NTP does; the monotonic clock stays."""
        self._wall_ms = now_ms
