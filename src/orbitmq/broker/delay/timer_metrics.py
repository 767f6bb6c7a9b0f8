"""How many timed messages wait for each topic: `config/timermetrics`, and the answer to GET_TIMER_METRICS.

Counts follow the wheel; after a kill they may be off by what came and went since they were saved.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from orbitmq.common import atomic_file
from orbitmq.common.errors import DamagedFile
from orbitmq.protocol.bodies.delay import TimingCount, TimingCounts
from orbitmq.protocol.bodies.nameserver import DataVersion

log = logging.getLogger(__name__)


class TimerMetrics:
    """Counts by topic."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._counts: dict[str, TimingCount] = {}
        self._version = DataVersion()

    @property
    def counts(self) -> Mapping[str, TimingCount]:
        return self._counts

    def load(self) -> None:
        """Take over what the file says; one that is damaged says nothing."""
        try:
            found = atomic_file.read_or_backup(self.path, TimingCounts.decode)
        except DamagedFile as error:
            log.warning("timer_metrics_unusable reason=%s", error)
            return
        if found is not None:
            self._counts = dict(found.counts)
            self._version = found.version

    def add(self, topic: str, change: int, now_ms: int) -> None:
        """So many more messages wait for a topic."""
        count = self._counts[topic].waiting if topic in self._counts else 0
        self._counts[topic] = TimingCount(max(count + change, 0), now_ms)
        self._version = DataVersion(counter=self._version.counter + 1, timestamp=now_ms)

    def encode(self) -> bytes:
        return TimingCounts(dict(self._counts), self._version).encode()
