"""Which queue the next message goes to: one after the other, not to the broker that just failed, nor to one that is known to be slow.

Pure: time comes in as `now_ms`, the first place by whoever makes the choice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from orbitmq.client.routes import TopicRoute
from orbitmq.protocol.bodies.clients import MessageQueue

# A broker that took that long for an answer is left alone for that long.
_LATENCIES_MS: Final = (0, 550, 1_800, 3_000, 5_000, 15_000)
_PAUSES_MS: Final = (0, 2_000, 5_000, 6_000, 10_000, 30_000)
FAILURE_LATENCY_MS: Final = 10_000  # what a failure counts for


class BrokerFaults:
    """Which brokers are left alone, and until when."""

    def __init__(self) -> None:
        self._until_ms: dict[str, int] = {}

    def note(self, broker_name: str, latency_ms: int, now_ms: int) -> None:
        """A broker answered after that time, or failed, which counts as `FAILURE_LATENCY_MS`."""
        pause_ms = _PAUSES_MS[bisect_right(_LATENCIES_MS, max(latency_ms, 0)) - 1]
        self._until_ms[broker_name] = now_ms + pause_ms

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        return self._until_ms.get(broker_name, now_ms) <= now_ms


class QueueChoice:
    """Goes round the queues of each topic."""

    def __init__(self, first: int, faults: BrokerFaults | None = None) -> None:
        self._first = first
        self._faults = faults  # None: latencies do not count
        self._places: dict[str, int] = {}

    def choose(self, route: TopicRoute, last_broker: str | None, now_ms: int) -> MessageQueue | None:
        """The next queue, if possible of a broker that is neither slow nor the last one; None when there is none at all."""
        queues = route.write_queues
        if not queues:
            return None
        faults = self._faults
        if faults is not None:
            found = self._next(route.topic, queues, last_broker, lambda name: faults.is_available(name, now_ms))
            if found is not None:
                return found
        return self._next(route.topic, queues, last_broker, None) or self._next(route.topic, queues, None, None)

    def _next(
        self, topic: str, queues: Sequence[MessageQueue], last_broker: str | None, is_wanted: Callable[[str], bool] | None
    ) -> MessageQueue | None:
        """The next queue of another broker than the last one that is wanted, if any."""
        for _ in range(len(queues)):
            place = self._places.get(topic, self._first)
            self._places[topic] = place + 1
            queue = queues[place % len(queues)]
            if queue.broker_name != last_broker and (is_wanted is None or is_wanted(queue.broker_name)):
                return queue
        return None
