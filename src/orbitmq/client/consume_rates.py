"""How many messages of each topic were consumed in the last minute, and how long that took. Pure: `tick` is called every few seconds."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, replace
from typing import Final

from orbitmq.protocol.bodies.running_info import TopicRates

_TICKS_KEPT: Final = 12  # of five seconds each: a minute


@dataclass(slots=True)
class _Count:
    """What happened up to now."""

    taken: int = 0
    failed: int = 0
    seconds: float = 0.0


class ConsumeRates:
    """Counts of the topics of a consumer."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, _Count] = defaultdict(_Count)
        self._before: deque[tuple[int, dict[str, _Count]]] = deque(maxlen=_TICKS_KEPT)

    def note(self, topic: str, count: int, seconds: float, *, failed: bool) -> None:
        """So many calls of a listener ended, each after that time."""
        counted = self._counts[topic]
        if failed:
            counted.failed += count
        else:
            counted.taken += count
        counted.seconds += seconds * count

    def tick(self, now_ms: int) -> None:
        """Remember how much it is now."""
        self._before.append((now_ms, {topic: replace(count) for topic, count in self._counts.items()}))

    def total(self, topic: str) -> tuple[int, int]:
        """How many were taken, and how many calls failed, since the beginning."""
        found = self._counts.get(topic, _Count())
        return found.taken, found.failed

    def rates(self, now_ms: int) -> dict[str, TopicRates]:
        """What happened since the oldest tick that is remembered."""
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
