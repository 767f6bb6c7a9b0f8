"""Time as a parameter: whoever needs "now" is handed a Clock, so that tests move time by hand.

Two readings, never mixed: `now_ms` is the wall clock (goes on the wire and to disk, may jump), `monotonic_ms` measures waiting.
Waiting itself is the event loop's, whose timers follow a clock that is moved by hand: see docs/decisions/0008-time-in-tests.md.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, as the machine believes; may jump either way."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed point; never goes back."""
        ...


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
