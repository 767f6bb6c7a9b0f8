"""Time as a parameter: code that needs "now" receives a Clock, so tests can control time.

Two readings, never mixed: `now_ms` is the wall clock (written to the wire and to disk, may jump),
`monotonic_ms` measures durations. Waiting itself is done by the event loop, whose timers follow a
manual clock in tests: see docs/decisions/0008-time-in-tests.md.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock and monotonic time."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970 by the system clock; may jump in either direction."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary fixed point; never decreases."""
        ...


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
