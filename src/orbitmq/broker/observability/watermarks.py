"""Water marks: the peak number of pending requests of each processor, and the longest wait of the
first one, within the last second.

Sans-IO: each sample gets the time, the loop lag and its cause as arguments, and reads the queues. A
mark above half of its limit is logged once a minute per cause, and once more when it exceeds the
limit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

PERIOD_MS: Final = 1_000
LOG_INTERVAL_MS: Final = 60_000
log = logging.getLogger(__name__)


class WaterMark(NamedTuple):
    """The number of pending requests and the wait of the first: measured, or a limit."""

    size: int
    head_wait_ms: int


NOTHING: Final = WaterMark(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The pending requests of one processor: `read` measures them at a time of the monotonic clock.
    Without `limits` nothing is logged.
    """

    read: Callable[[int], WaterMark] = lambda _: NOTHING
    limits: Callable[[], WaterMark] | None = None
    cause: str = ""  # why requests are pending if the loop did not lag


class WaterMarks:
    """The water marks of all queues, by processor name."""

    def __init__(self, queues: dict[str, Queue]) -> None:
        self._queues = dict(queues)
        self._marks: dict[str, WaterMark] = {}  # of the last period
        self._peaks: dict[str, WaterMark] = {}  # of this period
        self._period_start_ms = 0
        self._logged_ms: dict[tuple[str, int], int] = {}  # the last line of each cause and level

    def add(self, name: str, queue: Queue) -> None:
        """Add a queue to measure."""
        self._queues[name] = queue

    def of(self, name: str) -> WaterMark:
        """Return the mark of the last period."""
        return self._marks.get(name, NOTHING)

    def sizes(self) -> list[tuple[str, int]]:
        """Return the size of every queue in the last period."""
        return [(name, self.of(name).size) for name in self._queues]

    def sample(self, now_ms: int, lag_ms: int, cause: str) -> None:
        """Read every queue. Requests in unread sockets waited for `lag_ms` because of `cause`, so
        each wait is at least that.
        """
        for name, queue in self._queues.items():
            read = queue.read(now_ms)
            before = self._peaks.get(name, NOTHING)
            self._peaks[name] = WaterMark(
                max(before.size, read.size), max(before.head_wait_ms, read.head_wait_ms, lag_ms)
            )
            if queue.limits is not None:
                is_lag = lag_ms >= read.head_wait_ms
                mark = WaterMark(read.size, max(read.head_wait_ms, lag_ms))
                self._log(name, mark, queue.limits(), cause if is_lag else queue.cause, now_ms)
        if now_ms - self._period_start_ms >= PERIOD_MS:
            self._marks, self._peaks, self._period_start_ms = self._peaks, {}, now_ms

    def _log(self, name: str, mark: WaterMark, limits: WaterMark, cause: str, now_ms: int) -> None:
        """Log a mark above half of its limits, unless its cause was logged lately."""
        if all(2 * value <= limit for value, limit in zip(mark, limits, strict=True)):
            return
        is_over = any(value > limit for value, limit in zip(mark, limits, strict=True))
        level = logging.WARNING if is_over else logging.INFO
        if now_ms - self._logged_ms.get((cause, level), now_ms - LOG_INTERVAL_MS) < LOG_INTERVAL_MS:
            return
        self._logged_ms[cause, level] = now_ms
        log.log(
            level,
            "water_marks processor=%s size=%d size_max=%d head_wait_ms=%d wait_ms_max=%d cause=%s",
            name,
            mark.size,
            limits.size,
            mark.head_wait_ms,
            limits.head_wait_ms,
            cause,
        )
