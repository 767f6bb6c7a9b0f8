"""Delay levels: how far each level's queue was delivered, which of its messages are due, and when the next one is.

Sans-IO: time comes in as `now_ms`, queues as the times that their entries have. Invariants: a level's messages are due in the order of
its queue, none before its time; an offset lies within its queue once `bound` was told where that begins and ends.

An entry that is further away than its level waits was stored by a clock that went back since, or under another `messageDelayLevel`: it,
and all behind it at that moment, are due at the latest when the level's delay has passed once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Due(NamedTuple):
    """How many entries of a level may be delivered now, and when the one behind them may; None when that is not known."""

    ready: int
    next_ms: int | None


class _Cap(NamedTuple):
    """Entries before this offset are due at that time at the latest."""

    end_offset: int
    due_ms: int


class Levels:
    """The levels from 1 on, each with its delay; queues of levels that are configured no more are delivered by their entries' times."""

    def __init__(self, delays_ms: Sequence[int]) -> None:
        self._delays_ms = tuple(delays_ms)
        self._offsets: dict[int, int] = {}
        self._caps: dict[int, _Cap] = {}

    @property
    def offsets(self) -> Mapping[int, int]:
        """The next message to deliver of each level that has had any."""
        return self._offsets

    def load(self, offsets: Mapping[int, int]) -> None:
        """Go on where these say."""
        self._offsets = dict(offsets)

    def bound(self, level: int, low: int, high: int) -> int:
        """Where to go on with a level whose queue holds [low, high): what was deleted is passed over, what is not there yet will come."""
        offset = self._offsets[level] = min(max(self._offsets.get(level, low), low), high)
        return offset

    def due(self, level: int, times_ms: Sequence[int], high: int, now_ms: int) -> Due:
        """What of the entries from the level's offset on is due, by their times of delivery; the queue ends at `high`."""
        offset = self._offsets[level]
        for count, time_ms in enumerate(times_ms):
            due_ms = self._capped(level, offset + count, time_ms, high, now_ms)
            if due_ms > now_ms:
                return Due(count, due_ms)
        return Due(len(times_ms), None)

    def delivered(self, level: int, count: int) -> None:
        """The next `count` messages of a level are where they belong."""
        self._offsets[level] += count

    def _capped(self, level: int, offset: int, time_ms: int, high: int, now_ms: int) -> int:
        cap = self._caps.get(level)
        if cap is not None and offset >= cap.end_offset:
            cap = None
            del self._caps[level]
        if cap is None:
            delay_ms = self._delays_ms[level - 1] if level <= len(self._delays_ms) else None
            if delay_ms is None or time_ms <= now_ms + delay_ms:
                return time_ms
            cap = self._caps[level] = _Cap(high, now_ms + delay_ms)
        return min(time_ms, cap.due_ms)
