"""How many half messages each topic has, and how many transactions ended how: for metrics, and for the file transactionMetrics.

Counts what it is told. The file is for who looks at it: what is in it is counted anew at each start. Thread rule: the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from orbitmq.broker.config_file import ConfigFile, Encoder
from orbitmq.broker.metrics import Metrics
from orbitmq.common.clock import Clock
from orbitmq.message.flags import TransactionType
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.bodies.transactions import HalfCount, TransactionMetrics


class HalfCounts:
    """A `TransactionListener`. `metrics` are those of the broker, once they are there."""

    def __init__(self, file: ConfigFile, clock: Clock, metrics: Callable[[], Metrics | None]) -> None:
        self._file = file
        self._clock = clock
        self._metrics = metrics
        self._counts: dict[str, int] = {}
        self._changed_ms: dict[str, int] = {}  # when the count of a topic changed
        self._changes = 0
        self._last_ms = clock.now_ms()
        self._is_changed = False

    def load(self) -> None:
        """Be ready to save; what another process counted is counted again."""
        self._file.open(lambda data: None, self._snapshot)

    def prepared(self, topic: str) -> None:
        self._add(topic, 1)

    def ended(self, topic: str, kind: TransactionType | None, age_ms: int) -> None:
        self._add(topic, -1)
        metrics = self._metrics()
        if metrics is None:
            return
        if kind is TransactionType.COMMIT:
            metrics.commits.series(topic).add(1)
            metrics.finish_seconds.series(topic).observe(age_ms // 1000)
        elif kind is TransactionType.ROLLBACK:
            metrics.rollbacks.series(topic).add(1)

    def rows(self) -> Iterator[tuple[str, int]]:
        """Each topic that had half messages since the start, and how many it has."""
        return iter(list(self._counts.items()))

    def save_soon(self) -> None:
        """Have the file written, if there is anything new."""
        if self._is_changed:
            self._is_changed = False
            self._file.changed()

    def _add(self, topic: str, change: int) -> None:
        self._last_ms = self._changed_ms[topic] = self._clock.now_ms()
        self._counts[topic] = self._counts.get(topic, 0) + change
        self._changes += 1
        self._is_changed = True

    def _snapshot(self) -> Encoder:
        counts = {topic: HalfCount(count, self._changed_ms[topic]) for topic, count in self._counts.items()}
        return partial(TransactionMetrics.encode, TransactionMetrics(counts, DataVersion(counter=self._changes, timestamp=self._last_ms)))
