"""The progress of batches and sinks as values, parsed from Spark's progress reports. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from orbitmq.spark.offsets import Offsets, backlog, from_json

OUT: Final = "orbitmq"  # name of the metric that counts written rows
ROWS: Final = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """The progress of one batch of one sink."""

    number: int
    time_ms: int  # start time
    rows_in: int | None  # None if not counted
    rows_out: int
    took_ms: int
    lag: int | None  # pending messages; None if the source does not report them
    is_idle: bool = False  # not a batch: Spark reports idleness from time to time

    @property
    def in_per_s(self) -> float:
        """Rows read per second."""
        return (self.rows_in or 0) * 1000 / self.took_ms if self.took_ms else 0.0

    @property
    def out_per_s(self) -> float:
        """Rows written per second."""
        return self.rows_out * 1000 / self.took_ms if self.took_ms else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkProgress:
    """The progress of one sink in this run."""

    sink: str
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    last: BatchProgress | None = None

    def after(self, batch: BatchProgress) -> SinkProgress:
        """Return the progress after one more batch, or after an idle report."""
        if batch.is_idle:
            return replace(self, last=replace(self.last or batch, lag=batch.lag))
        return replace(
            self,
            batches=self.batches + 1,
            rows_in=self.rows_in + (batch.rows_in or 0),
            rows_out=self.rows_out + batch.rows_out,
            last=batch,
        )


def parse_progress(progress: Mapping[str, Any]) -> BatchProgress:
    """Parse Spark's progress report of a batch."""
    out = (progress.get("observedMetrics") or {}).get(OUT) or {}
    took_ms = progress.get("durationMs") or {}
    return BatchProgress(
        number=int(progress["batchId"]),
        time_ms=round(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000),
        rows_in=int(progress.get("numInputRows") or 0),
        rows_out=int(out.get(ROWS) or 0),
        took_ms=int(took_ms.get("triggerExecution") or 0),
        lag=_lag(progress.get("sources") or ()),
        is_idle="addBatch" not in took_ms,
    )


def _lag(sources: Any) -> int | None:
    """Return the number of messages not yet read; None if the source does not report it."""
    places = [
        (_offsets(source.get("endOffset")), _offsets(source.get("latestOffset")))
        for source in sources
    ]
    lags = [
        backlog(end, latest) for end, latest in places if end is not None and latest is not None
    ]
    return sum(lags) if lags else None


def _offsets(progress: Any) -> Offsets | None:
    """Return offsets of queues; None for offsets of other sources."""
    value = (
        json.loads(progress) if isinstance(progress, str) and progress.startswith("{") else progress
    )
    return from_json(value) if isinstance(value, dict) else None
