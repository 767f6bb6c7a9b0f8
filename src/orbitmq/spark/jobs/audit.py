"""Compares the messages of two topics, of one cluster or of two: which were lost, duplicated or changed on the way from left to right.

Messages are the same message when they have the same identity: the unique key that their producer gave them, their keys, or their body.
One that has none of the wanted kind is known by all that it holds. What a message holds is its body, tags, keys and sharding key, and the
application's properties; what RocketMQ adds, its place and its times do not count. Nothing is joined: both sides are counted together,
first by identity and content, then by identity, so that copies are told apart however many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from orbitmq.spark.jobs.contents import application_properties, millis
from orbitmq.spark.jobs.reading import Reading
from orbitmq.spark.jobs.steps import Steps

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

SIDES: Final = ("left", "right")
_COLUMNS: Final = (
    *("uniqueKey", "keys", "tags", "body", "properties"),
    *("brokerName", "queueId", "queueOffset", "bornTimestamp", "storeTimestamp"),
)
_CONTENT: Final = ("body", "tags", "keys", "properties")


class By(StrEnum):
    """What makes two messages the same one."""

    UNIQUE = "unique"
    KEYS = "keys"
    BODY = "body"


class Kind(StrEnum):
    """How the two sides differ about a message."""

    LOST = "lost"  # left only
    EXTRA = "extra"  # right only
    CHANGED = "changed"  # both, and they hold something else
    DUPLICATED = "duplicated"  # right has more copies
    FEWER = "fewer"  # right has fewer copies, but some


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a comparison found: how many messages and identities each side has, and of how many identities the sides differ how."""

    messages: Mapping[str, int]
    identities: Mapping[str, int]
    differences: Mapping[str, int]
    sample: tuple[Mapping[str, Any], ...]

    @property
    def is_same(self) -> bool:
        return not any(self.differences.values())


def compare(
    steps: Steps,
    left: Reading,
    right: Reading,
    *,
    by: By = By.UNIQUE,
    born_since_ms: int | None = None,
    born_until_ms: int | None = None,
    sample: int = 10,
    out: str | None = None,
) -> Found:
    """Compare them; messages are those that were born within the times, a sample has so many differences of each kind.

    `out` is a folder for all differences, as Parquet.
    """
    sides = [
        _told(_born(reading.rows(steps.spark, _COLUMNS), born_since_ms, born_until_ms), by, side)
        for side, reading in zip(SIDES, (left, right), strict=True)
    ]
    compared = _compared(sides[0].unionByName(sides[1])).cache()
    try:
        counts = steps.do(
            f"comparing up to {left.count} messages with {right.count}", lambda: _counts(compared), lambda found: _summary(found[1])
        )
        differing = compared.where("kind is not null")
        rows = steps.do("looking at differences", lambda: _sample(differing, sample), lambda found: f"{len(found)} shown")
        if out is not None:
            steps.do(f"writing {out}", lambda: differing.write.mode("errorifexists").parquet(out), lambda _: out or "")
    finally:
        compared.unpersist()
    return Found(messages=counts[0], identities=counts[1], differences=counts[2], sample=tuple(map(_shown, rows)))


def _born(rows: DataFrame, since_ms: int | None, until_ms: int | None) -> DataFrame:
    born = millis("bornTimestamp")
    if since_ms is not None:
        rows = rows.where(born >= since_ms)
    return rows if until_ms is None else rows.where(born < until_ms)


def _told(rows: DataFrame, by: By, side: str) -> DataFrame:
    """Each message by its identity, what it holds, where it is, and on which side."""
    import pyspark.sql.functions as fn

    held: dict[str, Column] = {
        "body": fn.sha2("body", 256),
        "tags": fn.coalesce("tags", fn.lit("")),
        "keys": fn.coalesce("keys", fn.lit("")),
        "properties": fn.to_json(fn.array_sort(fn.map_entries(application_properties(fn.col("properties"))))),
    }
    content = fn.struct(*(column.alias(name) for name, column in held.items()))
    anonymous = fn.concat(fn.lit("content "), fn.sha2(fn.to_json(content), 256))
    identity = {By.UNIQUE: fn.col("uniqueKey"), By.KEYS: fn.nullif(fn.col("keys"), fn.lit("")), By.BODY: held["body"]}[by]
    place = fn.struct(millis("storeTimestamp").alias("storeTimeMs"), fn.col("brokerName"), fn.col("queueId"), fn.col("queueOffset"))
    counts = [fn.lit(int(side == each)).alias(each) for each in SIDES]
    places = [fn.when(fn.lit(side == each), place).alias(f"{each}_place") for each in SIDES]
    return rows.select(fn.coalesce(identity, anonymous).alias("identity"), content.alias("content"), *counts, *places)


def _compared(messages: DataFrame) -> DataFrame:
    """One row for each identity: how often each side has it, where first, what differs, and of which kind that is."""
    import pyspark.sql.functions as fn

    firsts = [fn.min(f"{side}_place").alias(f"{side}_place") for side in SIDES]
    by_content = messages.groupBy("identity", "content").agg(*(fn.sum(side).alias(side) for side in SIDES), *firsts)
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
        part: (fn.col(f"left_{part}_first") != fn.col(f"right_{part}_first"))
        | (fn.col(f"left_{part}_last") != fn.col(f"right_{part}_last"))
        for part in _CONTENT
    }
    what = fn.array_compact(fn.array(*(fn.when(differs[part], fn.lit(part)) for part in _CONTENT)))
    return by_identity.select(
        _kind().alias("kind"),
        "identity",
        *SIDES,
        fn.when(_kind() == Kind.CHANGED, what).alias("what"),
        *(f"{side}_place" for side in SIDES),
    )


def _kind() -> Column:
    import pyspark.sql.functions as fn

    left, right = fn.col("left"), fn.col("right")
    return (
        fn.when(right == 0, Kind.LOST)
        .when(left == 0, Kind.EXTRA)
        .when(fn.col("is_one_sided"), Kind.CHANGED)
        .when(right > left, Kind.DUPLICATED)
        .when(right < left, Kind.FEWER)
        .when(fn.col("is_uneven"), Kind.CHANGED)
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
    differences = dict.fromkeys(map(str, Kind), 0) | {row["kind"]: row["identities"] for row in found if row["kind"] is not None}
    return messages, identities, differences


def _summary(identities: Mapping[str, int]) -> str:
    return f"{identities['left']} different ones left, {identities['right']} right"


def _sample(differing: DataFrame, count: int) -> list[Row]:
    """Some of each kind, the first ones by where they are."""
    import pyspark.sql.functions as fn
    from pyspark.sql import Window

    first = fn.coalesce("left_place", "right_place")
    numbered = differing.withColumn("number", fn.row_number().over(Window.partitionBy("kind").orderBy(first, "identity")))
    return numbered.where(fn.col("number") <= count).orderBy("kind", "number").drop("number").collect()


def _shown(row: Row) -> dict[str, Any]:
    found = row.asDict(recursive=True)
    for side in SIDES:
        place = found.pop(f"{side}_place")
        found[f"{side}_at"] = place and f"{place['brokerName']}/{place['queueId']}@{place['queueOffset']}"
        found[f"{side}_stored_ms"] = place and place["storeTimeMs"]
    return found
