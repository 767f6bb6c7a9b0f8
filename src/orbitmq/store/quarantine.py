"""The quarantine: corrupt byte ranges of the commit log that valid records follow.

They stay in place and every reader skips them. Nothing is persisted: each scan of the log finds
them again. Thread rule: the loop thread.
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
    """The corrupt ranges found so far, by offset."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[LogOffset, BadBytes] = {}

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[BadBytes]:
        """Iterate over the ranges, ordered by offset."""
        return iter(sorted(self.found.values()))

    def add(self, bad: BadBytes) -> None:
        """Record these bytes as corrupt; log them once."""
        if bad.offset not in self.found:
            log.error("record_quarantined offset=%d end=%d reason=%s", *bad)
        self.found[bad.offset] = bad

    def forget_before(self, log_min: LogOffset) -> None:
        """Drop the ranges that the log no longer holds."""
        for offset in [offset for offset in self.found if offset < log_min]:
            del self.found[offset]
