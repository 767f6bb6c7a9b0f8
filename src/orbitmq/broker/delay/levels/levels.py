"""Delay levels: the delivered offset of each level's queue, which of its messages are due, and when
the next one is.

Sans-IO: time comes in as `now_ms`, queues as the due times of their entries. Invariants: a level's
messages are due in queue order, none before its time; an offset lies within its queue once `bound`
received the queue's limits.

An entry that is further away than its level's delay was stored when store times were ahead of the
clock, which was set back, or under another `messageDelayLevel`. It, and all before it, are due at
the latest when the level's delay has elapsed since it was seen at the end of its queue (`see_end`,
called each time); after a restart, when the delay has elapsed once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class DueLevels(NamedTuple):
    """How many entries of a level are due now, and when the next one is; None if that is not
    known.
    """

    ready: int
    next_ms: int | None


class _Cap(NamedTuple):
    """Entries before this offset are due at that time at the latest."""

    end_offset: int
    due_ms: int


class Levels:
    """The levels from 1 on, each with its delay; queues of levels that are no longer configured are
    delivered by their entries' times.
    """

    def __init__(self, delays_ms: Sequence[int]) -> None:
        self._delays_ms = tuple(delays_ms)
        self._offsets: dict[int, int] = {}
        self._caps: dict[
            int, deque[_Cap]
        ] = {}  # by level, in ascending order of offset and due time

    @property
    def offsets(self) -> Mapping[int, int]:
        """Return the next message to deliver of each level that has had any."""
        return self._offsets

    def load(self, offsets: Mapping[int, int]) -> None:
        """Continue at these offsets."""
        self._offsets = dict(offsets)

    def bound(self, level: int, low: int, high: int) -> int:
        """Return where to continue in a level whose queue holds [low, high): deleted entries are
        skipped, and an offset past the end is moved back to it.
        """
        offset = self._offsets[level] = min(max(self._offsets.get(level, low), low), high)
        return offset

    def see_end(self, level: int, high: int, last_ms: int, now_ms: int) -> None:
        """Note that the level's queue ends at `high`, and the later due time of its first and last
        entry.
        """
        delay_ms = self._delays_ms[level - 1] if level <= len(self._delays_ms) else None
        if delay_ms is None or last_ms <= now_ms + delay_ms:
            return
        caps = self._caps.setdefault(level, deque())
        if caps and caps[-1].end_offset >= high and caps[-1].due_ms <= now_ms + delay_ms:
            return
        while caps and caps[-1].due_ms >= now_ms + delay_ms:  # the clock was set back once more
            caps.pop()
        caps.append(_Cap(high, now_ms + delay_ms))

    def due(self, level: int, times_ms: Sequence[int], now_ms: int) -> DueLevels:
        """Return which entries from the level's offset on are due, given their due times."""
        offset = self._offsets[level]
        for count, time_ms in enumerate(times_ms):
            due_ms = self._capped(level, offset + count, time_ms)
            if due_ms > now_ms:
                return DueLevels(count, due_ms)
        return DueLevels(len(times_ms), None)

    def delivered(self, level: int, count: int) -> None:
        """Note that the next `count` messages of a level are delivered."""
        self._offsets[level] += count

    def _capped(self, level: int, offset: int, time_ms: int) -> int:
        caps = self._caps.get(level)
        while caps and caps[0].end_offset <= offset:
            caps.popleft()
        return min(time_ms, caps[0].due_ms) if caps else time_ms
