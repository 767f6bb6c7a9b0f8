"""A clock that moves only when it is told to."""

from __future__ import annotations


class ManualClock:
    """A `Clock` for tests: both readings move by `advance_ms`, the wall clock alone by `set_wall_ms`."""

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance_ms(self, elapsed_ms: int) -> None:
        """Let `elapsed_ms` pass."""
        if elapsed_ms < 0:
            raise ValueError(f"time cannot pass backwards: {elapsed_ms} ms; set_wall_ms makes the wall clock jump")
        self._wall_ms += elapsed_ms
        self._monotonic_ms += elapsed_ms

    def set_wall_ms(self, now_ms: int) -> None:
        """Make the wall clock jump, as an operator or NTP does; no time passes."""
        self._wall_ms = now_ms
