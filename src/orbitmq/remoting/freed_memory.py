"""Memory of connections that is free again goes back to the system, where the C library keeps it for itself otherwise.

glibc raises the size from which blocks are mapped one by one as soon as such a block is freed; buffers of the next crowd of peers are
then in its heap, and stay there for good behind the first small block that lives longer. `malloc_trim` returns their pages. Other C
libraries have no such function, and nothing is done.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Final

PEAK_MIN: Final = 8 * 1024 * 1024  # less is worth keeping for the next peers
FALL: Final = 4  # a crowd is gone when so small a part of what it held is left
TRIMS: Final = 2  # the second, a second later, takes what was freed while the first ran


class FreedMemory:
    """Watches how much connections hold; to be asked every second or so."""

    def __init__(self) -> None:
        self._peak = 0
        self._trims_due = 0
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def is_worth_it(self, held: int) -> bool:
        """Whether connections hold much less than the most since this was last true."""
        self._peak = max(self._peak, held)
        if self._peak < PEAK_MIN or held > self._peak // FALL:
            return False
        self._peak = held
        return True

    def give_back(self, held: int) -> None:
        """Hear how many bytes connections hold now, and give back what they do not any more."""
        if self.is_worth_it(held):
            self._trims_due = TRIMS
        if self._trims_due and self._trim is not None:
            self._trims_due -= 1
            threading.Thread(target=self._trim, args=(0,), name="freed memory", daemon=True).start()
