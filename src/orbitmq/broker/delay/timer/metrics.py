"""Pending timed messages by topic: `config/timermetrics`, and the reply to GET_TIMER_METRICS.

Counts follow the wheel; after a kill they may be off by the messages that came and went since the
last save. On a slave they are its master's; the first message that its own wheel takes in, after it
became a master, starts the counts over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from orbitmq.common import atomic_file
from orbitmq.common.change_log import ChangeLog
from orbitmq.common.errors import CorruptFileError
from orbitmq.common.slices import Slices, finish
from orbitmq.protocol.bodies.delay import TimingCount, TimingCounts
from orbitmq.protocol.bodies.metadata_rows import TimingRow
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
        self._is_masters = False  # whether the counts are those of a master
        self.changes = ChangeLog[str]()  # of topics, for slaves

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
            self.changes.put_all(self._waiting)

    def add(self, topic: str, change: int, now_ms: int) -> None:
        """Add to the number of messages pending for a topic."""
        if self._is_masters:
            self._is_masters = False
            self.changes.remove(*self._waiting)
            self._waiting, self._changed_ms = {}, {}
        self.changes.put(topic)
        self._waiting[topic] = max(self._waiting.get(topic, 0) + change, 0)
        self._changed_ms[topic] = self._last_ms = now_ms
        self._changes += 1
        self._encoded = None

    @property
    def data_version(self) -> DataVersion:
        """The version of the counts, with all changes so far."""
        if self._changes:
            self._version = DataVersion(
                counter=self._version.counter + self._changes, timestamp=self._last_ms
            )
            self._changes = 0
        return self._version

    def row(self, topic: str) -> TimingRow | None:
        """Return the count of a topic; None if it never had a timed message."""
        waiting = self._waiting.get(topic)
        if waiting is None:
            return None
        return TimingRow(topic, TimingCount(waiting, self._changed_ms[topic]))

    def take_over(
        self, rows: Sequence[TimingRow], removed: Iterable[str], *, version: DataVersion
    ) -> None:
        """Apply a master's changes, with its version."""
        gone = [topic for topic in removed if topic in self._waiting]
        for topic in gone:
            del self._waiting[topic], self._changed_ms[topic]
        for topic, pending in rows:
            self._waiting[topic], self._changed_ms[topic] = pending
        self.changes.take_over([row.topic for row in rows], gone)
        self._version, self._changes, self._encoded = version, 0, None
        self._is_masters = True

    def encode(self) -> bytes:
        """Return the content of the file; cached until the next change, since it is requested
        often.
        """
        if self._encoded is None:
            self._encoded = finish(self.encode_in_slices())
        return self._encoded

    def encode_in_slices(self) -> Slices[bytes]:
        """Do what `encode` does, in slices, with the counts at the first slice."""
        return TimingCounts(self.counts, self.data_version).encode_in_slices()
