"""Chooses the queue of the next message: round robin, avoiding the broker that just failed and
brokers known to be slow.

Pure: time is the argument `now_ms`, the first position is given by the caller.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from orbitmq.client.session.routes import TopicRoute
from orbitmq.protocol.bodies.clients import MessageQueue

# Reply latencies of a broker, and for how long it is avoided after each.
_LATENCIES_MS: Final = (0, 550, 1_800, 3_000, 5_000, 15_000)
_PAUSES_MS: Final = (0, 2_000, 5_000, 6_000, 10_000, 30_000)
FAILURE_LATENCY_MS: Final = 10_000  # the latency that stands for a failure


class BrokerFaults:
    """The brokers to avoid, and until when."""

    def __init__(self) -> None:
        self._until_ms: dict[str, int] = {}

    def note(self, broker_name: str, latency_ms: int, now_ms: int) -> None:
        """Record a broker's latency; a failure counts as `FAILURE_LATENCY_MS`."""
        pause_ms = _PAUSES_MS[bisect_right(_LATENCIES_MS, max(latency_ms, 0)) - 1]
        self._until_ms[broker_name] = now_ms + pause_ms

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        """Return whether the broker need not be avoided."""
        return self._until_ms.get(broker_name, now_ms) <= now_ms


class QueueChoice:
    """Chooses queues of each topic in rotation."""

    def __init__(self, first: int, faults: BrokerFaults | None = None) -> None:
        self._first = first
        self._faults = faults  # None: ignore latencies
        self._places: dict[str, int] = {}

    def choose(
        self, route: TopicRoute, last_broker: str | None, now_ms: int
    ) -> MessageQueue | None:
        """Return the next queue, preferably of a fast broker other than the last one; None if there
        is none.
        """
        queues = route.write_queues
        if not queues:
            return None
        faults = self._faults
        if faults is not None:
            found = self._next(
                route.topic, queues, last_broker, lambda name: faults.is_available(name, now_ms)
            )
            if found is not None:
                return found
        return self._next(route.topic, queues, last_broker, None) or self._next(
            route.topic, queues, None, None
        )

    def _next(
        self,
        topic: str,
        queues: Sequence[MessageQueue],
        last_broker: str | None,
        is_wanted: Callable[[str], bool] | None,
    ) -> MessageQueue | None:
        """Return the next queue whose broker is wanted and is not the last one, if any."""
        for _ in range(len(queues)):
            place = self._places.get(topic, self._first)
            self._places[topic] = place + 1
            queue = queues[place % len(queues)]
            if queue.broker_name != last_broker and (
                is_wanted is None or is_wanted(queue.broker_name)
            ):
                return queue
        return None
