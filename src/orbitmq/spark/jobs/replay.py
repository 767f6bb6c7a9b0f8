"""Resends messages of a topic or an archive: all, those of a time range, those with certain keys,
or those that match a condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.message import properties
from orbitmq.spark.jobs.expressions import millis
from orbitmq.spark.jobs.resend import NEEDED, ResendTotals, send
from orbitmq.spark.jobs.runner import JobRunner
from orbitmq.spark.jobs.topic_snapshot import TopicSnapshot
from orbitmq.spark.pipeline.model import DATE
from orbitmq.spark.pipeline.problems import located_errors
from orbitmq.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Messages stored within the given times, in Parquet files written by `archive` or a
    pipeline.
    """

    folder: str
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def count(self) -> int:
        """Unknown before everything is read: 0."""
        return 0

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the messages."""
        with located_errors("--from", self.folder):
            found = spark.read.parquet(self.folder)
        missing = [name for name in NEEDED if name not in found.columns]
        if missing:
            raise ConfigurationError(
                f"--from {self.folder}: missing column {', '.join(missing)}; an archive needs"
                f" {', '.join(NEEDED)}"
            )
        import pyspark.sql.functions as fn

        is_dated = dict(found.dtypes).get(DATE) == "date"  # then Spark can skip whole folders
        if self.since_ms is not None:
            found = found.where(millis("storeTimestamp") >= self.since_ms)
            found = found.where(fn.col(DATE) >= _day(self.since_ms) - _DAY) if is_dated else found
        if self.until_ms is not None:
            found = found.where(millis("storeTimestamp") < self.until_ms)
            found = found.where(fn.col(DATE) <= _day(self.until_ms) + _DAY) if is_dated else found
        return found.select(*(name for name in COLUMNS if name in found.columns))


def _day(time_ms: int) -> date:
    """Return the day in UTC, as in archives; another time zone shifts it by at most a day."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).date()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSelection:
    """Which messages to send: those with one of the keys that also match the condition."""

    keys: Sequence[str] = ()
    condition: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether the selection excludes nothing."""
        return not self.keys and self.condition is None

    def of(self, rows: DataFrame) -> DataFrame:
        """Return the selected rows."""
        import pyspark.sql.functions as fn

        if self.keys:
            own = fn.split("keys", properties.KEY_SEPARATOR)
            rows = rows.where(fn.arrays_overlap(own, fn.array(*map(fn.lit, self.keys))))
        if self.condition is not None:
            with located_errors("--filter", self.condition):
                rows = rows.where(self.condition)
        return rows


def preview(
    runner: JobRunner, source: TopicSnapshot | Archive, selection: MessageSelection
) -> list[dict[str, Any]]:
    """Return what would be sent, by original topic; sends nothing."""
    import pyspark.sql.functions as fn

    rows = selection.of(source.rows(runner.spark))
    found = rows.groupBy("topic").agg(
        fn.count("*").alias("messages"),
        fn.sum(fn.length("body")).alias("body_bytes"),
        fn.min(millis("storeTimestamp")).alias("first_stored_ms"),
        fn.max(millis("storeTimestamp")).alias("last_stored_ms"),
    )
    return runner.run_step(
        "counting messages",
        lambda: [row.asDict() for row in found.orderBy("topic").collect()],
        lambda rows: f"{sum(row['messages'] for row in rows)} messages",
    )


def replay(
    runner: JobRunner,
    source: TopicSnapshot | Archive,
    selection: MessageSelection,
    topic: str,
    options: Mapping[str, str],
    *,
    rate: int | None,
) -> ResendTotals:
    """Send the selected messages to a topic of the cluster that `options` name."""
    import pyspark.sql.functions as fn

    rows = selection.of(source.rows(runner.spark))
    expected = source.count if selection.is_all else 0
    return send(runner, rows, fn.lit(topic), options, rate=rate, topics=(topic,), expected=expected)
