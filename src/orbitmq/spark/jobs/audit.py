"""Compares the messages of two topics, in one cluster or two: which were lost, duplicated or
changed on the way from left to right.

Messages correspond if they have the same identity: the unique key that the producer assigned, their
keys, or their body. A message without the chosen identity is identified by its whole content. The
content is the body, tags, keys, sharding key and application properties; properties that RocketMQ
adds, position and times do not count. There is no join: both sides are counted together, first by
identity and content, then by identity, so that any number of copies is handled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from orbitmq.spark.jobs.expressions import application_properties, millis
from orbitmq.spark.jobs.runner import JobRunner
from orbitmq.spark.jobs.topic_snapshot import TopicSnapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

SIDES: Final = ("left", "right")
_COLUMNS: Final = (
    *("uniqueKey", "keys", "tags", "body", "properties"),
    *("brokerName", "queueId", "queueOffset", "bornTimestamp", "storeTimestamp"),
)
_CONTENT: Final = ("body", "tags", "keys", "properties")


class MatchBy(StrEnum):
    """What identifies a message on both sides."""

    UNIQUE = "unique"
    KEYS = "keys"
    BODY = "body"


class DifferenceKind(StrEnum):
    """How the two sides differ in a message."""

    LOST = "lost"  # left only
    EXTRA = "extra"  # right only
    CHANGED = "changed"  # both, with different content
    DUPLICATED = "duplicated"  # right has more copies
    FEWER = "fewer"  # right has fewer copies, but some


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The number of messages and identities per side, the number of differing identities by kind,
    and a sample.
    """

    messages: Mapping[str, int]
    identities: Mapping[str, int]
    differences: Mapping[str, int]
    sample: tuple[Mapping[str, Any], ...]

    @property
    def is_same(self) -> bool:
        """Whether both sides have the same messages."""
        return not any(self.differences.values())


def compare(
    runner: JobRunner,
    left: TopicSnapshot,
    right: TopicSnapshot,
    *,
    by: MatchBy = MatchBy.UNIQUE,
    born_since_ms: int | None = None,
    born_until_ms: int | None = None,
    sample: int = 10,
    out: str | None = None,
) -> AuditResult:
    """Compare messages born within the given times. The sample has up to `sample` differences of
    each kind.

    `out` is a folder for all differences, as Parquet.
    """
    sides = [
        _message_rows(
            _born_between(snapshot.rows(runner.spark, _COLUMNS), born_since_ms, born_until_ms),
            by,
            side,
        )
        for side, snapshot in zip(SIDES, (left, right), strict=True)
    ]
    compared = _compare_identities(sides[0].unionByName(sides[1])).cache()
    try:
        counts = runner.run_step(
            f"comparing up to {left.count} messages with {right.count}",
            lambda: _counts(compared),
            lambda found: _summary(found[1]),
        )
        differing = compared.where("kind is not null")
        rows = runner.run_step(
            "sampling differences",
            lambda: _sample(differing, sample),
            lambda found: f"{len(found)} shown",
        )
        if out is not None:
            runner.run_step(
                f"writing {out}",
                lambda: differing.write.mode("errorifexists").parquet(out),
                lambda _: out or "",
            )
    finally:
        compared.unpersist()
    return AuditResult(
        messages=counts[0],
        identities=counts[1],
        differences=counts[2],
        sample=tuple(map(_sample_row, rows)),
    )


def _born_between(rows: DataFrame, since_ms: int | None, until_ms: int | None) -> DataFrame:
    born = millis("bornTimestamp")
    if since_ms is not None:
        rows = rows.where(born >= since_ms)
    return rows if until_ms is None else rows.where(born < until_ms)


def _message_rows(rows: DataFrame, by: MatchBy, side: str) -> DataFrame:
    """Return each message with its identity, content, position and side."""
    import pyspark.sql.functions as fn

    held: dict[str, Column] = {
        "body": fn.sha2("body", 256),
        "tags": fn.coalesce("tags", fn.lit("")),
        "keys": fn.coalesce("keys", fn.lit("")),
        "properties": fn.to_json(
            fn.array_sort(fn.map_entries(application_properties(fn.col("properties"))))
        ),
    }
    content = fn.struct(*(column.alias(name) for name, column in held.items()))
    anonymous = fn.concat(fn.lit("content "), fn.sha2(fn.to_json(content), 256))
    identity = {
        MatchBy.UNIQUE: fn.col("uniqueKey"),
        MatchBy.KEYS: fn.nullif(fn.col("keys"), fn.lit("")),
        MatchBy.BODY: held["body"],
    }[by]
    place = fn.struct(
        millis("storeTimestamp").alias("storeTimeMs"),
        fn.col("brokerName"),
        fn.col("queueId"),
        fn.col("queueOffset"),
    )
    counts = [fn.lit(int(side == each)).alias(each) for each in SIDES]
    places = [fn.when(fn.lit(side == each), place).alias(f"{each}_place") for each in SIDES]
    return rows.select(
        fn.coalesce(identity, anonymous).alias("identity"),
        content.alias("content"),
        *counts,
        *places,
    )


def _compare_identities(messages: DataFrame) -> DataFrame:
    """Return one row per identity: its count and first position per side, what differs, and the
    kind of difference.
    """
    import pyspark.sql.functions as fn

    firsts = [fn.min(f"{side}_place").alias(f"{side}_place") for side in SIDES]
    by_content = messages.groupBy("identity", "content").agg(
        *(fn.sum(side).alias(side) for side in SIDES), *firsts
    )
    is_on = {side: fn.col(side) > 0 for side in SIDES}
    parts = [
        function(fn.when(is_on[side], fn.col(f"content.{part}"))).alias(f"{side}_{part}_{end}")
        for part in _CONTENT
        for side in SIDES
        for end, function in (("first", fn.min), ("last", fn.max))
    ]
    by_identity = by_content.groupBy("identity").agg(
        *(fn.sum(side).alias(side) for side in SIDES),
        *firsts,
        fn.max((fn.col("left") == 0) | (fn.col("right") == 0)).alias("is_one_sided"),
        fn.max(fn.col("left") != fn.col("right")).alias("is_uneven"),
        *parts,
    )
    differs = {
        part: (
            (fn.col(f"left_{part}_first") != fn.col(f"right_{part}_first"))
            | (fn.col(f"left_{part}_last") != fn.col(f"right_{part}_last"))
        )
        for part in _CONTENT
    }
    what = fn.array_compact(fn.array(*(fn.when(differs[part], fn.lit(part)) for part in _CONTENT)))
    return by_identity.select(
        _kind().alias("kind"),
        "identity",
        *SIDES,
        fn.when(_kind() == DifferenceKind.CHANGED, what).alias("what"),
        *(f"{side}_place" for side in SIDES),
    )


def _kind() -> Column:
    import pyspark.sql.functions as fn

    left, right = fn.col("left"), fn.col("right")
    return (
        fn.when(right == 0, DifferenceKind.LOST)
        .when(left == 0, DifferenceKind.EXTRA)
        .when(fn.col("is_one_sided"), DifferenceKind.CHANGED)
        .when(right > left, DifferenceKind.DUPLICATED)
        .when(right < left, DifferenceKind.FEWER)
        .when(fn.col("is_uneven"), DifferenceKind.CHANGED)
    )


def _counts(compared: DataFrame) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    import pyspark.sql.functions as fn

    rows = compared.groupBy("kind").agg(
        fn.count("*").alias("identities"),
        *(fn.sum(side).alias(side) for side in SIDES),
        *(fn.count_if(fn.col(side) > 0).alias(f"{side}_identities") for side in SIDES),
    )
    found = rows.collect()
    messages = {side: sum(row[side] for row in found) for side in SIDES}
    identities = {side: sum(row[f"{side}_identities"] for row in found) for side in SIDES}
    differences = dict.fromkeys(map(str, DifferenceKind), 0) | {
        row["kind"]: row["identities"] for row in found if row["kind"] is not None
    }
    return messages, identities, differences


def _summary(identities: Mapping[str, int]) -> str:
    return f"{identities['left']} distinct left, {identities['right']} right"


def _sample(differing: DataFrame, count: int) -> list[Row]:
    """Return up to `count` differences of each kind, the first ones by position."""
    import pyspark.sql.functions as fn
    from pyspark.sql import Window

    first = fn.coalesce("left_place", "right_place")
    numbered = differing.withColumn(
        "number", fn.row_number().over(Window.partitionBy("kind").orderBy(first, "identity"))
    )
    return (
        numbered.where(fn.col("number") <= count).orderBy("kind", "number").drop("number").collect()
    )


def _sample_row(row: Row) -> dict[str, Any]:
    found = row.asDict(recursive=True)
    for side in SIDES:
        place = found.pop(f"{side}_place")
        found[f"{side}_at"] = (
            place and f"{place['brokerName']}/{place['queueId']}@{place['queueOffset']}"
        )
        found[f"{side}_stored_ms"] = place and place["storeTimeMs"]
    return found
