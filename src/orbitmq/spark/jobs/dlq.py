"""Analyses the dead letters of a consumer group, and sends them back to their original topics.

The properties of a dead letter name its original topic and id and the number of attempts; RocketMQ
stores no reason. The reason can only be derived: the group's attempts were used up, or a consumer
gave up earlier. A dead letter is never removed from its topic; a report records how far a redrive
got, so that the next one continues there.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orbitmq.admin.dead_letters import GIVEN_UP, USED_UP, group_of, topic_of
from orbitmq.blocking import Admin
from orbitmq.common import atomic_file
from orbitmq.common.errors import ConfigurationError, NotFoundError, file_cause
from orbitmq.message import properties
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.spark.jobs.expressions import millis
from orbitmq.spark.jobs.replay import MessageSelection
from orbitmq.spark.jobs.resend import ResendTotals, send
from orbitmq.spark.jobs.runner import JobRunner
from orbitmq.spark.jobs.topic_snapshot import TopicSnapshot
from orbitmq.spark.offsets import Offsets, from_json, to_json
from orbitmq.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

AGES_MS: Final = {  # upper bound of each age bucket
    "1 minute": 60_000,
    "10 minutes": 600_000,
    "1 hour": 3_600_000,
    "6 hours": 21_600_000,
    "1 day": 86_400_000,
    "3 days": 259_200_000,
    "1 week": 604_800_000,
}
OLDER: Final = "older"


def attempts_max(options: Mapping[str, str], group: str) -> int:
    """Return how often the group's messages are retried, as configured at the brokers."""
    settings = SourceOptions.of({**options, "subscribe": topic_of(group)}).client
    with Admin(settings) as admin:
        try:
            configs = admin.groups.configs(settings.names.wire(group_of(group)))
        except NotFoundError:
            return GroupConfig(group).retry_max_times
    return max(config.retry_max_times for config in configs.values())


def letters(runner: JobRunner, snapshot: TopicSnapshot, attempts_max: int) -> DataFrame:
    """Return the dead letters with `originTopic`, `originId`, `attempts` and `reason`."""
    import pyspark.sql.functions as fn

    def prop(*names: str) -> Column:
        return fn.coalesce(*(fn.element_at("properties", name) for name in names))

    rows = snapshot.rows(runner.spark)
    recorded = prop(properties.RECONSUME_TIME).try_cast("int")
    limit = fn.coalesce(prop(properties.MAX_RECONSUME_TIMES).try_cast("int"), fn.lit(attempts_max))
    attempts = fn.greatest(fn.col("reconsumeTimes"), fn.coalesce(recorded, fn.lit(0)))
    return (
        rows.withColumn("originTopic", prop(properties.DLQ_ORIGIN_TOPIC, properties.RETRY_TOPIC))
        .withColumn(
            "originId", prop(properties.DLQ_ORIGIN_MESSAGE_ID, properties.ORIGIN_MESSAGE_ID)
        )
        .withColumn("attempts", attempts)
        .withColumn("reason", fn.when(attempts >= limit, USED_UP).otherwise(GIVEN_UP))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Dead letters by topic, attempts and reason, by age, and a sample."""

    messages: int
    by_topic: tuple[Mapping[str, Any], ...]
    ages: Mapping[str, int]
    sample: tuple[Mapping[str, Any], ...]


def analyse(runner: JobRunner, rows: DataFrame, *, now_ms: int, sample: int = 5) -> Analysis:
    """Analyse dead letters; ages are measured from their store time to `now_ms`."""
    import pyspark.sql.functions as fn

    died = millis("storeTimestamp")
    bucket = fn.when(fn.lit(False), fn.lit(""))
    for name, age_ms in AGES_MS.items():
        bucket = bucket.when(fn.lit(now_ms) - died <= age_ms, name)
    counts = rows.groupBy(
        "originTopic", "attempts", "reason", bucket.otherwise(OLDER).alias("age")
    ).agg(
        fn.count("*").alias("messages"),
        fn.min(died).alias("first_died_ms"),
        fn.max(died).alias("last_died_ms"),
    )
    last = rows.orderBy(died.desc(), "brokerName", "queueId", fn.desc("queueOffset")).limit(sample)
    shown = last.select(
        died.alias("died_ms"), "originTopic", "originId", "keys", "tags", "attempts", "body"
    )
    found = runner.run_step(
        "reading dead letters",
        counts.collect,
        lambda rows: f"{sum(row['messages'] for row in rows)} letters",
    )
    some = runner.run_step("taking a sample", shown.collect, lambda rows: f"{len(rows)} letters")
    ages = Counter[str]()
    for row in found:
        ages[row["age"]] += row["messages"]
    return Analysis(
        messages=ages.total(),
        by_topic=_by_topic(found),
        ages={name: ages[name] for name in (*AGES_MS, OLDER)},
        sample=tuple(_letter(row) for row in some),
    )


def _by_topic(found: Sequence[Row]) -> tuple[dict[str, Any], ...]:
    """Sum the counts over all ages."""
    kinds: dict[tuple[str | None, int, str], list[Row]] = {}
    for row in found:
        kinds.setdefault((row["originTopic"], row["attempts"], row["reason"]), []).append(row)
    return tuple(
        {
            "origin_topic": topic,
            "attempts": attempts,
            "reason": reason,
            "messages": sum(row["messages"] for row in rows),
            "first_died_ms": min(row["first_died_ms"] for row in rows),
            "last_died_ms": max(row["last_died_ms"] for row in rows),
        }
        for (topic, attempts, reason), rows in sorted(
            kinds.items(), key=lambda each: (each[0][0] or "", *each[0][1:])
        )
    )


def _letter(row: Row) -> dict[str, Any]:
    died_ms, topic, origin_id, keys, tags, attempts, body = row
    return {
        "died_ms": died_ms,
        "origin_topic": topic,
        "origin_id": origin_id,
        "keys": keys,
        "tags": tags,
        "attempts": attempts,
        "body": properties.decode_text(bytes(body)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """The result of a redrive or dry run: letters per topic, and the range of dead letters it
    covered.
    """

    group: str
    is_dry_run: bool
    filter: str | None
    rate: int | None
    looked_at: int
    without_topic: int  # letters without an original topic
    topics: Mapping[str, int]
    sent: ResendTotals | None  # None: nothing was sent
    started_ms: int
    ended_ms: int
    start: Offsets
    end: Offsets

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "start": to_json(self.start), "end": to_json(self.end)}

    def write(self, file: Path) -> None:
        """Write the report that `--after` reads."""
        try:
            atomic_file.write(
                file,
                json.dumps(self.to_json(), indent=2, ensure_ascii=False).encode() + b"\n",
                keep_backup=False,
            )
        except OSError as problem:
            raise ConfigurationError(
                f"--report {file} cannot be written: {problem.strerror}; the result is printed only"
            ) from problem


def redrive(
    runner: JobRunner,
    group: str,
    snapshot: TopicSnapshot,
    selection: MessageSelection,
    options: Mapping[str, str],
    *,
    attempts_max: int,
    rate: int | None = None,
    to: str | None = None,
    is_dry_run: bool = False,
) -> Redrive:
    """Send dead letters to their original topics, or all of them to the topic `to`."""
    import pyspark.sql.functions as fn

    started_ms = _now_ms()
    target = fn.col("originTopic") if to is None else fn.lit(to)
    chosen = selection.of(letters(runner, snapshot, attempts_max)).withColumn("target", target)
    counts = runner.run_step(
        "counting dead letters",
        lambda: {row["target"]: row["count"] for row in chosen.groupBy("target").count().collect()},
        lambda found: f"{sum(found.values())} of {snapshot.count}",
    )
    without_topic = counts.pop(None, 0)
    sent = None
    if counts and not is_dry_run:
        rows = chosen.where(fn.col("target").isNotNull())
        sent = send(
            runner,
            rows,
            fn.col("target"),
            options,
            rate=rate,
            topics=tuple(counts),
            expected=sum(counts.values()),
        )
    return Redrive(
        group=group,
        is_dry_run=is_dry_run,
        filter=selection.condition,
        rate=rate,
        looked_at=snapshot.count,
        without_topic=without_topic,
        topics=dict(sorted(counts.items())),
        sent=sent,
        started_ms=started_ms,
        ended_ms=_now_ms(),
        start=snapshot.start,
        end=snapshot.end,
    )


def after(report: Path, group: str) -> str:
    """Return where the redrive of a report ended, as the option startingOffsets."""
    try:
        recorded = json.loads(report.read_bytes())
        offsets = from_json(recorded["end"])
        if recorded["group"] != group:
            raise ConfigurationError(
                f"--after {report}: the report is for group {recorded['group']}, not {group}"
            )
        if recorded["is_dry_run"]:
            raise ConfigurationError(
                f"--after {report}: the report is of a --dry-run, which sent nothing"
            )
    except OSError as problem:
        raise NotFoundError(f"--after {report} cannot be read: {file_cause(problem)}") from problem
    except (ValueError, KeyError, TypeError) as problem:
        raise ConfigurationError(
            f"--after {report}: not a report of a redrive; give a file that --report wrote"
        ) from problem
    return json.dumps(to_json(offsets))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
