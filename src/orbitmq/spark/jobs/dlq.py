"""The dead letters of a consumer group: what they are, and back with them to the topics they came from.

A dead letter says by its properties which topic it was in, under which id, and how often it was tried; RocketMQ keeps no reason. What can
be told is whether the group's attempts were used up, or a consumer gave up earlier. A letter stays in its topic whatever is done with it; a
report says how far a redrive came, so that the next one begins behind it.
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
from orbitmq.common.errors import ConfigurationError, NotFound, file_cause
from orbitmq.message import properties
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.spark.jobs.contents import millis
from orbitmq.spark.jobs.reading import Reading
from orbitmq.spark.jobs.replay import Choice
from orbitmq.spark.jobs.sending import Sent, send
from orbitmq.spark.jobs.steps import Steps
from orbitmq.spark.offsets import Offsets, from_json, to_json
from orbitmq.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

AGES_MS: Final = {  # by the name of the bucket, how old its letters are at most
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
    """How often the group's messages are tried again before they are given up, as brokers know it."""
    settings = SourceOptions.of({**options, "subscribe": topic_of(group)}).client
    with Admin(settings) as admin:
        try:
            configs = admin.groups.configs(settings.names.wire(group_of(group)))
        except NotFound:
            return GroupConfig(group).retry_max_times
    return max(config.retry_max_times for config in configs.values())


def letters(steps: Steps, reading: Reading, attempts_max: int) -> DataFrame:
    """The dead letters with what they say of themselves: `originTopic`, `originId`, `attempts`, `reason`."""
    import pyspark.sql.functions as fn

    def said(*names: str) -> Column:
        return fn.coalesce(*(fn.element_at("properties", name) for name in names))

    rows = reading.rows(steps.spark)
    told = said(properties.RECONSUME_TIME).try_cast("int")
    limit = fn.coalesce(said(properties.MAX_RECONSUME_TIMES).try_cast("int"), fn.lit(attempts_max))
    attempts = fn.greatest(fn.col("reconsumeTimes"), fn.coalesce(told, fn.lit(0)))
    return (
        rows.withColumn("originTopic", said(properties.DLQ_ORIGIN_TOPIC, properties.RETRY_TOPIC))
        .withColumn("originId", said(properties.DLQ_ORIGIN_MESSAGE_ID, properties.ORIGIN_MESSAGE_ID))
        .withColumn("attempts", attempts)
        .withColumn("reason", fn.when(attempts >= limit, USED_UP).otherwise(GIVEN_UP))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What there is of dead letters: by topic, attempts and reason; by age; and some of them."""

    messages: int
    by_topic: tuple[Mapping[str, Any], ...]
    ages: Mapping[str, int]
    sample: tuple[Mapping[str, Any], ...]


def analyse(steps: Steps, rows: DataFrame, *, now_ms: int, sample: int = 5) -> Analysis:
    """Look at dead letters; ages are from when they died to `now_ms`."""
    import pyspark.sql.functions as fn

    died = millis("storeTimestamp")
    bucket = fn.when(fn.lit(False), fn.lit(""))
    for name, age_ms in AGES_MS.items():
        bucket = bucket.when(fn.lit(now_ms) - died <= age_ms, name)
    counts = rows.groupBy("originTopic", "attempts", "reason", bucket.otherwise(OLDER).alias("age")).agg(
        fn.count("*").alias("messages"), fn.min(died).alias("first_died_ms"), fn.max(died).alias("last_died_ms")
    )
    last = rows.orderBy(died.desc(), "brokerName", "queueId", fn.desc("queueOffset")).limit(sample)
    shown = last.select(died.alias("died_ms"), "originTopic", "originId", "keys", "tags", "attempts", "body")
    found = steps.do("reading dead letters", counts.collect, lambda rows: f"{sum(row['messages'] for row in rows)} letters")
    some = steps.do("taking a sample", shown.collect, lambda rows: f"{len(rows)} letters")
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
    """The counts without regard to ages."""
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
        for (topic, attempts, reason), rows in sorted(kinds.items(), key=lambda each: (each[0][0] or "", *each[0][1:]))
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
    """What was sent back, or would be: how many letters went to which topic, and which part of the dead letters was looked at."""

    group: str
    is_dry_run: bool
    filter: str | None
    rate: int | None
    looked_at: int
    without_topic: int  # those that do not say where they came from
    topics: Mapping[str, int]
    sent: Sent | None  # None: nothing was
    started_ms: int
    ended_ms: int
    start: Offsets
    end: Offsets

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "start": to_json(self.start), "end": to_json(self.end)}

    def write(self, file: Path) -> None:
        try:
            atomic_file.write(file, json.dumps(self.to_json(), indent=2, ensure_ascii=False).encode() + b"\n", keep_backup=False)
        except OSError as problem:
            raise ConfigurationError(f"--report {file} cannot be written: {problem.strerror}; what it says is printed") from problem


def redrive(
    steps: Steps,
    group: str,
    reading: Reading,
    choice: Choice,
    options: Mapping[str, str],
    *,
    attempts_max: int,
    rate: int | None = None,
    to: str | None = None,
    is_dry_run: bool = False,
) -> Redrive:
    """Send dead letters to the topics that they came from, or all of them to one."""
    import pyspark.sql.functions as fn

    started_ms = _now_ms()
    target = fn.col("originTopic") if to is None else fn.lit(to)
    chosen = choice.of(letters(steps, reading, attempts_max)).withColumn("target", target)
    counts = steps.do(
        "counting dead letters",
        lambda: {row["target"]: row["count"] for row in chosen.groupBy("target").count().collect()},
        lambda found: f"{sum(found.values())} of {reading.count}",
    )
    without_topic = counts.pop(None, 0)
    sent = None
    if counts and not is_dry_run:
        rows = chosen.where(fn.col("target").isNotNull())
        sent = send(steps, rows, fn.col("target"), options, rate=rate, topics=tuple(counts), expected=sum(counts.values()))
    return Redrive(
        group=group,
        is_dry_run=is_dry_run,
        filter=choice.condition,
        rate=rate,
        looked_at=reading.count,
        without_topic=without_topic,
        topics=dict(sorted(counts.items())),
        sent=sent,
        started_ms=started_ms,
        ended_ms=_now_ms(),
        start=reading.start,
        end=reading.end,
    )


def after(report: Path, group: str) -> str:
    """Where the redrive ended that a report is of, as the option startingOffsets."""
    try:
        told = json.loads(report.read_bytes())
        offsets = from_json(told["end"])
        if told["group"] != group:
            raise ConfigurationError(f"--after {report}: it is about group {told['group']}, and not {group}")
        if told["is_dry_run"]:
            raise ConfigurationError(f"--after {report}: nothing was sent by the run that it is of, which was a --dry-run")
    except OSError as problem:
        raise NotFound(f"--after {report} cannot be read: {file_cause(problem)}") from problem
    except (ValueError, KeyError, TypeError) as problem:
        raise ConfigurationError(f"--after {report}: it is no report of a redrive; give the file that --report wrote") from problem
    return json.dumps(to_json(offsets))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
