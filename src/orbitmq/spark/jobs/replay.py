"""Sends messages again that a topic or an archive still has: all, those of some time, those with certain keys, or what a condition says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.message import properties
from orbitmq.spark.jobs.contents import millis
from orbitmq.spark.jobs.reading import Reading
from orbitmq.spark.jobs.sending import NEEDED, Sent, send
from orbitmq.spark.jobs.steps import Steps
from orbitmq.spark.pipeline.model import DATE
from orbitmq.spark.pipeline.problems import told_at
from orbitmq.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Messages that were stored within the times, in a folder of Parquet files that `archive`, or a pipeline, wrote."""

    folder: str
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def count(self) -> int:
        return 0  # nobody knows before everything is read

    def rows(self, spark: SparkSession) -> DataFrame:
        with told_at("--from", self.folder):
            found = spark.read.parquet(self.folder)
        missing = [name for name in NEEDED if name not in found.columns]
        if missing:
            raise ConfigurationError(f"--from {self.folder}: it has no column {', '.join(missing)}; an archive has {', '.join(NEEDED)}")
        import pyspark.sql.functions as fn

        is_dated = dict(found.dtypes).get(DATE) == "date"  # then whole folders need not be read
        if self.since_ms is not None:
            found = found.where(millis("storeTimestamp") >= self.since_ms)
            found = found.where(fn.col(DATE) >= _day(self.since_ms) - _DAY) if is_dated else found
        if self.until_ms is not None:
            found = found.where(millis("storeTimestamp") < self.until_ms)
            found = found.where(fn.col(DATE) <= _day(self.until_ms) + _DAY) if is_dated else found
        return found.select(*(name for name in COLUMNS if name in found.columns))


def _day(time_ms: int) -> date:
    """In UTC, as archives have it; whoever archived in another zone is at most a day off."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).date()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which of the messages: with one of these keys, and for which a condition holds."""

    keys: Sequence[str] = ()
    condition: str | None = None

    @property
    def is_all(self) -> bool:
        return not self.keys and self.condition is None

    def of(self, rows: DataFrame) -> DataFrame:
        import pyspark.sql.functions as fn

        if self.keys:
            own = fn.split("keys", properties.KEY_SEPARATOR)
            rows = rows.where(fn.arrays_overlap(own, fn.array(*map(fn.lit, self.keys))))
        if self.condition is not None:
            with told_at("--filter", self.condition):
                rows = rows.where(self.condition)
        return rows


def planned(steps: Steps, source: Reading | Archive, choice: Choice) -> list[dict[str, Any]]:
    """What would be sent, by the topic it was in; nothing is."""
    import pyspark.sql.functions as fn

    rows = choice.of(source.rows(steps.spark))
    found = rows.groupBy("topic").agg(
        fn.count("*").alias("messages"),
        fn.sum(fn.length("body")).alias("body_bytes"),
        fn.min(millis("storeTimestamp")).alias("first_stored_ms"),
        fn.max(millis("storeTimestamp")).alias("last_stored_ms"),
    )
    return steps.do(
        "counting messages",
        lambda: [row.asDict() for row in found.orderBy("topic").collect()],
        lambda rows: f"{sum(row['messages'] for row in rows)} messages",
    )


def replay(steps: Steps, source: Reading | Archive, choice: Choice, topic: str, options: Mapping[str, str], *, rate: int | None) -> Sent:
    """Send them to a topic of the cluster that `options` name."""
    import pyspark.sql.functions as fn

    rows = choice.of(source.rows(steps.spark))
    expected = source.count if choice.is_all else 0
    return send(steps, rows, fn.lit(topic), options, rate=rate, topics=(topic,), expected=expected)
