"""Tests `orbitmq spark audit`: its differences match a comparison of lists."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.message import properties
from orbitmq.testing import LocalCluster
from support.cli.commands import Shell
from support.spark.jobs import Content, Raw, content, put
from support.spark.messages import messages_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTHING = {"lost": 0, "extra": 0, "changed": 0, "duplicated": 0, "fewer": 0}


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[LocalCluster, LocalCluster]]:
    with (
        LocalCluster(topics={"orders": 2}) as left,
        LocalCluster(brokers=["other"], topics={"orders": 3}) as right,
    ):
        yield left, right


def message(unique: str, body: str = "", **own: str) -> Raw:
    said = {
        properties.UNIQUE_KEY: unique,
        properties.KEYS: f"key-{unique[:2]}",
        properties.TAGS: "t",
        **own,
    }
    return Raw(topic="orders", body=(body or f"body of {unique}").encode(), properties=said)


def differences(
    left: Counter[tuple[str, Content]], right: Counter[tuple[str, Content]]
) -> dict[str, int]:
    """Count differing identities by kind, with plain lists."""
    found = dict(NOTHING)
    for identity in {identity for identity, _ in (*left, *right)}:
        before = Counter({each: count for (of, each), count in left.items() if of == identity})
        after = Counter({each: count for (of, each), count in right.items() if of == identity})
        if not after:
            found["lost"] += 1
        elif not before:
            found["extra"] += 1
        elif before.keys() != after.keys():
            found["changed"] += 1
        elif before.total() != after.total():
            found["duplicated" if after.total() > before.total() else "fewer"] += 1
        elif before != after:
            found["changed"] += 1
    return found


def test_each_kind_of_difference_is_counted_shown_and_written(
    spark: SparkSession, clusters: tuple[LocalCluster, LocalCluster], tmp_path: Path
) -> None:
    left, right = clusters
    noise = random.Random(11)
    ids = [f"{number:02d}-{number:04X}" for number in range(60)]
    put(left.name_server, [message(each, place="a") for each in ids] + [message(ids[3], place="a")])
    sent = [
        message(each, place="a") for each in ids[5:50]
    ]  # the first five and the last ten are lost
    sent += [
        message(ids[0], place="b"),
        message(ids[1], "another body", place="a"),
        message(ids[2], TAGS="u", place="a"),
    ]
    sent += (
        [message(ids[3], place="a")]
        + [message(ids[20], place="a")] * 2
        + [message("zz-1"), message("zz-2")]
    )
    noise.shuffle(sent)
    put(right.name_server, sent)

    shell = Shell(left.name_server)
    job = ("spark", "audit", "--left", "orders", "--right", f"{right.name_server}/orders")
    result = shell.run(*job, "-o", "json", "--out", str(tmp_path / "all"))
    assert result.exit_code == 1, result.stderr
    (found,) = json.loads(result.stdout)
    sides = [
        Counter(
            (each.properties[properties.UNIQUE_KEY], content(each))
            for each in messages_in(cluster.name_server, "orders")
        )
        for cluster in clusters
    ]
    assert (
        found["differences"]
        == differences(*sides)
        == {
            "lost": 11,
            "extra": 2,
            "changed": 3,
            "duplicated": 1,
            "fewer": 1,
        }
    )
    assert found["messages"] == {"left": 61, "right": len(sent)}
    assert found["identities"] == {"left": 60, "right": 51}
    by_id = {each["identity"]: each for each in found["sample"]}
    assert [by_id[ids[number]]["what"] for number in (0, 1, 2)] == [
        ["properties"],
        ["body"],
        ["tags"],
    ]
    assert (by_id[ids[20]]["kind"], by_id[ids[20]]["left"], by_id[ids[20]]["right"]) == (
        "duplicated",
        1,
        3,
    )
    assert (by_id[ids[3]]["kind"], by_id[ids[3]]["left"], by_id[ids[3]]["right"]) == ("fewer", 2, 1)
    assert by_id["zz-1"]["left_at"] is None
    assert by_id["zz-1"]["right_at"].startswith("other/")
    written = spark.read.parquet(str(tmp_path / "all")).groupBy("kind").count().collect()
    assert {row["kind"]: row["count"] for row in written} == found["differences"]
    table = shell.run(*job, "--sample", "1").stdout
    assert "duplicated         1" in table
    assert (
        len([line for line in table.splitlines() if line.startswith("lost")]) == 2
    )  # a count and a sample

    self_check = shell.json("spark", "audit", "--left", "orders", "--right", "orders")
    assert (self_check[0]["same"], self_check[0]["differences"], self_check[0]["sample"]) == (
        True,
        NOTHING,
        [],
    )


def test_keys_and_bodies_make_an_identity_too_and_what_has_none_is_known_by_its_content(
    spark: SparkSession,
) -> None:
    with LocalCluster(topics={"left": 1, "right": 1}) as mq:
        keyed = [
            Raw(
                topic="left",
                body=f"{number}".encode(),
                properties={properties.KEYS: f"k{number % 3}"},
            )
            for number in range(9)
        ]
        bare = [Raw(topic="left", body=b"without keys"), Raw(topic="left", body=b"without keys")]
        put(mq.name_server, keyed + bare)
        again = [
            Raw(topic="right", body=each.body, properties=dict(each.properties))
            for each in (*keyed[:8], *bare[:1])
        ]
        put(mq.name_server, again)
        shell = Shell(mq.name_server)
        job = ("spark", "audit", "--left", "left", "--right", "right", "-o", "json")

        def told(*more: str) -> dict[str, int]:
            result = shell.run(*job, *more)
            assert result.exit_code == 1, result.stderr
            found: dict[str, int] = json.loads(result.stdout)[0]["differences"]
            return found

        assert told("--by", "keys") == NOTHING | {
            "changed": 1,
            "fewer": 1,
        }  # k2 lacks a content; there is one without keys
        assert told("--by", "body") == NOTHING | {"lost": 1, "fewer": 1}
        assert told() == NOTHING | {"lost": 11, "extra": 9}
        born = sorted(each.born_at_ms for each in messages_in(mq.name_server, "left"))
        nothing = shell.json(
            "spark", "audit", "--left", "left", "--right", "right", "--until", f"@{born[0]}"
        )
        assert nothing[0]["messages"] == {"left": 0, "right": 0}
        assert (
            shell.fails(*job, "--out", "/tmp")
            == "orbitmq: --out /tmp already exists; name a new folder\n"
        )
