"""Returns the freed memory of connections to the system, where the C library would keep it.

glibc raises the threshold from which blocks are mapped individually as soon as such a block is
freed; later buffers are then allocated in its heap, and stay there behind the first small block
that lives longer. `malloc_trim` returns their pages. Other C libraries lack that function, and
nothing is done.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Final

PEAK_MIN: Final = 8 * 1024 * 1024  # less is worth keeping for the next peers
FALL: Final = 4  # the peak is over when the held bytes fall below this fraction of it
TRIMS: Final = 2  # the second, a second later, returns what was freed during the first


class FreedMemory:
    """Tracks how much memory connections hold; called about once a second."""

    def __init__(self) -> None:
        self._peak = 0
        self._trims_due = 0
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def is_worth_it(self, held: int) -> bool:
        """Return whether connections hold much less than the peak since this was last true."""
        self._peak = max(self._peak, held)
        if self._peak < PEAK_MIN or held > self._peak // FALL:
            return False
        self._peak = held
        return True

    def give_back(self, held: int) -> None:
        """Record how many bytes connections hold now, and return freed memory if that is much less
        than before.
        """
        if self.is_worth_it(held):
            self._trims_due = TRIMS
        if self._trims_due and self._trim is not None:
            self._trims_due -= 1
            threading.Thread(target=self._trim, args=(0,), name="freed memory", daemon=True).start()
