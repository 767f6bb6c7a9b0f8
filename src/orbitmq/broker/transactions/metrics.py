"""Counts of half messages by topic and of ended transactions by outcome: for metrics, and for the
file transactionMetrics.

Counts the events it receives. The file is informational: counting starts over at each start.
Thread rule: the loop thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from orbitmq.broker.metadata.persistent_file import ConfigFile, Encoder
from orbitmq.broker.observability.instruments import Instruments
from orbitmq.common.clock import Clock
from orbitmq.message.flags import TransactionType
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.bodies.transactions import HalfCount, TransactionMetrics


class HalfCounts:
    """A `TransactionListener`."""

    def __init__(self, file: ConfigFile, clock: Clock, instruments: Instruments) -> None:
        self._file = file
        self._clock = clock
        self._instruments = instruments
        self._counts: dict[str, int] = {}
        self._changed_ms: dict[str, int] = {}  # when the count of a topic changed last
        self._changes = 0
        self._last_ms = clock.now_ms()
        self._is_changed = False

    def load(self) -> None:
        """Prepare for saving; the counts of an earlier process are counted again."""
        self._file.open(lambda data: None, self._snapshot)

    def prepared(self, topic: str) -> None:
        self._add(topic, 1)

    def ended(self, topic: str, kind: TransactionType | None, age_ms: int) -> None:
        self._add(topic, -1)
        if kind is TransactionType.COMMIT:
            self._instruments.commits.series(topic).add(1)
            self._instruments.finish_seconds.series(topic).observe(age_ms // 1000)
        elif kind is TransactionType.ROLLBACK:
            self._instruments.rollbacks.series(topic).add(1)

    def rows(self) -> Iterator[tuple[str, int]]:
        """Return each topic that had half messages since the start, with their number."""
        return iter(list(self._counts.items()))

    def save_soon(self) -> None:
        """Have the file written, if anything changed."""
        if self._is_changed:
            self._is_changed = False
            self._file.changed()

    def _add(self, topic: str, change: int) -> None:
        self._last_ms = self._changed_ms[topic] = self._clock.now_ms()
        self._counts[topic] = self._counts.get(topic, 0) + change
        self._changes += 1
        self._is_changed = True

    def _snapshot(self) -> Encoder:
        counts = {
            topic: HalfCount(count, self._changed_ms[topic])
            for topic, count in self._counts.items()
        }
        return partial(
            TransactionMetrics.encode,
            TransactionMetrics(counts, DataVersion(counter=self._changes, timestamp=self._last_ms)),
        )
