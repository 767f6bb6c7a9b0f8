"""What Spark tells of a batch that is done, as values; and what has become of a sink so far. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from orbitmq.spark.offsets import Offsets, backlog, from_json

OUT: Final = "orbitmq"  # the name under which rows that leave a pipeline are counted
ROWS: Final = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch of one sink."""

    number: int
    time_ms: int  # when it began
    rows_in: int | None  # None when nobody counts them
    rows_out: int
    took_ms: int
    lag: int | None  # messages that wait still; None when the source does not tell
    is_idle: bool = False  # no batch at all: from time to time Spark tells that there is nothing to do

    @property
    def in_per_s(self) -> float:
        return (self.rows_in or 0) * 1000 / self.took_ms if self.took_ms else 0.0

    @property
    def out_per_s(self) -> float:
        return self.rows_out * 1000 / self.took_ms if self.took_ms else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkProgress:
    """What this run has done for one sink."""

    sink: str
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    last: Batch | None = None

    def after(self, batch: Batch) -> SinkProgress:
        """With one more batch, or with news of none."""
        if batch.is_idle:
            return replace(self, last=replace(self.last or batch, lag=batch.lag))
        return replace(
            self,
            batches=self.batches + 1,
            rows_in=self.rows_in + (batch.rows_in or 0),
            rows_out=self.rows_out + batch.rows_out,
            last=batch,
        )


def batch_of(told: Mapping[str, Any]) -> Batch:
    """A batch from what Spark tells of it in JSON."""
    out = (told.get("observedMetrics") or {}).get(OUT) or {}
    took_ms = told.get("durationMs") or {}
    return Batch(
        number=int(told["batchId"]),
        time_ms=round(datetime.fromisoformat(told["timestamp"]).timestamp() * 1000),
        rows_in=int(told.get("numInputRows") or 0),
        rows_out=int(out.get(ROWS) or 0),
        took_ms=int(took_ms.get("triggerExecution") or 0),
        lag=_lag(told.get("sources") or ()),
        is_idle="addBatch" not in took_ms,
    )


def _lag(sources: Any) -> int | None:
    """How many messages there are behind what was read."""
    places = [(_offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))) for source in sources]
    lags = [backlog(end, latest) for end, latest in places if end is not None and latest is not None]
    return sum(lags) if lags else None


def _offsets(told: Any) -> Offsets | None:
    """Offsets of queues; None for what other sources count by."""
    value = json.loads(told) if isinstance(told, str) and told.startswith("{") else told
    return from_json(value) if isinstance(value, dict) else None
