"""The quarantine: which bytes of the commit log are no good records although good ones stand behind them.

They stay where they are, and everybody steps over them. Nothing is written down: whoever reads the log finds them again.
Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from orbitmq.store.types import LogOffset

log = logging.getLogger(__name__)


class BadBytes(NamedTuple):
    """What is wrong with the bytes [offset, end) of the log."""

    offset: LogOffset
    end: LogOffset
    reason: str


class Quarantine:
    """What was found so far, by its offset."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[LogOffset, BadBytes] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[BadBytes]:
        """All of it, the first in the log first."""
        return iter(sorted(self._found.values()))

    def add(self, bad: BadBytes) -> None:
        """Remember, and tell once, that these bytes are bad."""
        if bad.offset not in self._found:
            log.error("record_quarantined offset=%d end=%d reason=%s", *bad)
        self._found[bad.offset] = bad

    def forget_before(self, log_min: LogOffset) -> None:
        """Drop what the log does not hold any more."""
        for offset in [offset for offset in self._found if offset < log_min]:
            del self._found[offset]
