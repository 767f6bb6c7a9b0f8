"""Water marks: how many requests of each processor waited, and for how long the first of them, at the worst of the last second.

Sans-IO: whoever beats says what time it is and what the loop was held by; queues are read when it does. A mark that matters, more than
half of what its queue may have, is logged: once a minute for one cause, and again at once when it passes the limit itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

PERIOD_MS: Final = 1_000
TOLD_AGAIN_MS: Final = 60_000
log = logging.getLogger(__name__)


class WaterMark(NamedTuple):
    """How many wait, or may wait, and for how long the first does."""

    size: int
    head_wait_ms: int


NOTHING: Final = WaterMark(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What waits for one processor, at a time of the monotonic clock. Without `limits` it is measured and not judged."""

    read: Callable[[int], WaterMark] = lambda _: NOTHING
    limits: Callable[[], WaterMark] | None = None
    cause: str = ""  # why it is long when the loop was not held


class WaterMarks:
    """The marks of each queue, by the name of its processor."""

    def __init__(self, queues: dict[str, Queue]) -> None:
        self._queues = dict(queues)
        self._marks: dict[str, WaterMark] = {}  # of the last period
        self._rising: dict[str, WaterMark] = {}  # of this one
        self._begun_ms = 0
        self._told_ms: dict[tuple[str, int], int] = {}  # when each cause was logged last, by level

    def add(self, name: str, queue: Queue) -> None:
        """Measure one more."""
        self._queues[name] = queue

    def of(self, name: str) -> WaterMark:
        """The mark of the last period."""
        return self._marks.get(name, NOTHING)

    def sizes(self) -> list[tuple[str, int]]:
        """The size of every queue."""
        return [(name, self.of(name).size) for name in self._queues]

    def sample(self, now_ms: int, lag_ms: int, cause: str) -> None:
        """Read every queue; `lag_ms`, which `cause` took, is how long all of them waited at least, in sockets that nobody read."""
        for name, queue in self._queues.items():
            read = queue.read(now_ms)
            before = self._rising.get(name, NOTHING)
            self._rising[name] = WaterMark(max(before.size, read.size), max(before.head_wait_ms, read.head_wait_ms, lag_ms))
            if queue.limits is not None:
                is_lag = lag_ms >= read.head_wait_ms
                mark = WaterMark(read.size, max(read.head_wait_ms, lag_ms))
                self._tell(name, mark, queue.limits(), cause if is_lag else queue.cause, now_ms)
        if now_ms - self._begun_ms >= PERIOD_MS:
            self._marks, self._rising, self._begun_ms = self._rising, {}, now_ms

    def _tell(self, name: str, mark: WaterMark, limits: WaterMark, cause: str, now_ms: int) -> None:
        if all(2 * value <= limit for value, limit in zip(mark, limits, strict=True)):
            return
        is_over = any(value > limit for value, limit in zip(mark, limits, strict=True))
        level = logging.WARNING if is_over else logging.INFO
        if now_ms - self._told_ms.get((cause, level), now_ms - TOLD_AGAIN_MS) < TOLD_AGAIN_MS:
            return
        self._told_ms[cause, level] = now_ms
        log.log(
            level, "water_marks processor=%s size=%d size_max=%d head_wait_ms=%d wait_ms_max=%d cause=%s",
            name, mark.size, limits.size, mark.head_wait_ms, limits.head_wait_ms, cause,
        )  # fmt: skip
