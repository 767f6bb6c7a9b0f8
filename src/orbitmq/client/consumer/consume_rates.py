"""Counts messages consumed per topic, and how long that took, over the last minute.

Pure: the caller calls `tick` every few seconds.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, replace
from typing import Final

from orbitmq.protocol.bodies.running_info import TopicRates

_TICKS_KEPT: Final = 12  # five seconds each: one minute


@dataclass(slots=True)
class _Count:
    """Totals of one topic."""

    taken: int = 0
    failed: int = 0
    seconds: float = 0.0


class ConsumeRates:
    """The consume rates of a consumer's topics."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, _Count] = defaultdict(_Count)
        self._before: deque[tuple[int, dict[str, _Count]]] = deque(maxlen=_TICKS_KEPT)

    def note(self, topic: str, count: int, seconds: float, *, failed: bool) -> None:
        """Count `count` listener calls that took `seconds` each."""
        counted = self._counts[topic]
        if failed:
            counted.failed += count
        else:
            counted.taken += count
        counted.seconds += seconds * count

    def tick(self, now_ms: int) -> None:
        """Take a snapshot of the totals."""
        self._before.append(
            (now_ms, {topic: replace(count) for topic, count in self._counts.items()})
        )

    def total(self, topic: str) -> tuple[int, int]:
        """Return the numbers of consumed messages and of failed calls since the start."""
        found = self._counts.get(topic, _Count())
        return found.taken, found.failed

    def rates(self, now_ms: int) -> dict[str, TopicRates]:
        """Return the rates since the oldest snapshot."""
        if not self._before:
            return {}
        then_ms, then = self._before[0]
        span_s = max((now_ms - then_ms) / 1000, 0.001)
        found: dict[str, TopicRates] = {}
        for topic, count in self._counts.items():
            old = then.get(topic, _Count())
            calls = count.taken + count.failed - old.taken - old.failed
            found[topic] = TopicRates(
                consumed_per_s=(count.taken - old.taken) / span_s,
                failed_per_s=(count.failed - old.failed) / span_s,
                failed_in_an_hour=count.failed,
                consume_ms=(count.seconds - old.seconds) * 1000 / calls if calls else 0.0,
            )
        return found
