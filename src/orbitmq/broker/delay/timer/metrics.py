"""Pending timed messages by topic: `config/timermetrics`, and the reply to GET_TIMER_METRICS.

Counts follow the wheel; after a kill they may be off by the messages that came and went since the
last save.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from orbitmq.common import atomic_file
from orbitmq.common.errors import CorruptFileError
from orbitmq.common.slices import Slices, finish
from orbitmq.protocol.bodies.delay import TimingCount, TimingCounts
from orbitmq.protocol.bodies.nameserver import DataVersion

log = logging.getLogger(__name__)


class TimerMetrics:
    """Counts pending timed messages by topic."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: dict[str, int] = {}
        self._changed_ms: dict[str, int] = {}  # when the count of a topic changed last
        self._version = DataVersion()
        self._changes = 0  # since that version
        self._last_ms = 0
        self._encoded: bytes | None = None  # since the last change

    @property
    def counts(self) -> Mapping[str, TimingCount]:
        return {
            topic: TimingCount(count, self._changed_ms[topic])
            for topic, count in self._waiting.items()
        }

    def load(self) -> None:
        """Load the file; a corrupt one is ignored."""
        try:
            found = atomic_file.read_or_backup(self.path, TimingCounts.decode)
        except CorruptFileError as error:
            log.warning("timer_metrics_unusable reason=%s", error)
            return
        if found is not None:
            self._waiting = {topic: each.waiting for topic, each in found.counts.items()}
            self._changed_ms = {topic: each.changed_ms for topic, each in found.counts.items()}
            self._version, self._changes, self._encoded = found.version, 0, None

    def add(self, topic: str, change: int, now_ms: int) -> None:
        """Add to the number of messages pending for a topic."""
        self._waiting[topic] = max(self._waiting.get(topic, 0) + change, 0)
        self._changed_ms[topic] = self._last_ms = now_ms
        self._changes += 1
        self._encoded = None

    def encode(self) -> bytes:
        """Return the content of the file; cached until the next change, since it is requested
        often.
        """
        if self._encoded is None:
            self._encoded = finish(self.encode_in_slices())
        return self._encoded

    def encode_in_slices(self) -> Slices[bytes]:
        """Do what `encode` does, in slices, with the counts at the first slice."""
        if self._changes:
            self._version = DataVersion(
                counter=self._version.counter + self._changes, timestamp=self._last_ms
            )
            self._changes = 0
        return TimingCounts(self.counts, self._version).encode_in_slices()
