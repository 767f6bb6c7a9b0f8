"""Tests `orbitmq spark dlq`: the analysis of dead letters, and their redrive."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from orbitmq.admin.dead_letters import GIVEN_UP, USED_UP
from orbitmq.blocking import Admin
from orbitmq.message import properties
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.testing import LocalCluster
from support.cli.commands import Shell
from support.spark.jobs import Raw, content, put
from support.spark.messages import messages_in

pytestmark = pytest.mark.usefixtures("spark")
LETTERS = "%DLQ%billing"


def letter(number: int, topic: str | None, attempts: int) -> Raw:
    """Return a dead letter of group `billing`, as a broker stores it."""
    said = {
        properties.ORIGIN_MESSAGE_ID: f"7F00000100002A9F{number:016X}",
        properties.RECONSUME_TIME: str(attempts),
        properties.REAL_TOPIC: LETTERS,
        properties.REAL_QUEUE_ID: "0",
        properties.KEYS: f"k{number}",
        properties.TAGS: "new" if number % 2 else "paid",
        "source": "shop",
    }
    if topic is not None:
        said[properties.RETRY_TOPIC] = topic
    return Raw(
        topic=LETTERS, body=f"letter {number}".encode(), properties=said, reconsume_times=attempts
    )


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(topics={"orders": 2, "payments": 1, LETTERS: 1}) as cluster:
        with Admin(cluster.name_server) as admin:
            admin.groups.create(GroupConfig("billing", retry_max_times=5))
        put(cluster.name_server, [letter(number, "orders", 5) for number in range(12)])
        put(cluster.name_server, [letter(number, "payments", 2) for number in range(12, 17)])
        put(cluster.name_server, [letter(17, None, 5)])
        yield cluster


def test_an_analysis_counts_by_topic_attempts_and_reason_and_by_age(mq: LocalCluster) -> None:
    (found,) = Shell(mq.name_server).json("spark", "dlq", "billing", "--sample", "3")
    times = [message.stored_at_ms for message in messages_in(mq.name_server, LETTERS)]

    def kind(topic: str | None, attempts: int, reason: str, of: list[int]) -> Mapping[str, object]:
        told = {"origin_topic": topic, "attempts": attempts, "reason": reason, "messages": len(of)}
        return told | {"first_died_ms": min(of), "last_died_ms": max(of)}

    assert found["messages"] == 18
    assert found["by_topic"] == [
        kind(None, 5, USED_UP, times[17:]),
        kind("orders", 5, USED_UP, times[:12]),
        kind("payments", 2, GIVEN_UP, times[12:17]),
    ]
    assert sum(found["ages"].values()) == 18
    assert found["ages"]["older"] == 0
    shown = [
        (each["body"], each["keys"], each["tags"], each["origin_id"]) for each in found["sample"]
    ]
    assert shown[0] == ("letter 17", "k17", "new", "7F00000100002A9F0000000000000011")
    assert [body for body, *_ in shown] == ["letter 17", "letter 16", "letter 15"]
    table = (
        Shell(mq.name_server)
        .run("spark", "dlq", "billing", "analyse", "--filter", "originTopic = 'payments'")
        .stdout
    )
    assert table.startswith("billing: 5 dead letters\n")
    assert "a consumer gave it up" in table
    assert "█" * 40 in table


def test_a_redrive_sends_letters_to_where_they_came_from_and_the_next_begins_behind_it(
    mq: LocalCluster, tmp_path: Path
) -> None:
    shell, report = Shell(mq.name_server), tmp_path / "monday.json"
    redrive = ("spark", "dlq", "billing", "redrive")
    chosen = ("--filter", "tags = 'paid' or originTopic is null")
    (planned,) = shell.json(*redrive, *chosen, "--dry-run", "--report", str(report))
    assert (planned["topics"], planned["without_topic"], planned["sent"]) == (
        {"orders": 6, "payments": 3},
        1,
        None,
    )
    assert messages_in(mq.name_server, "orders") == []
    assert json.loads(report.read_text()) == planned
    assert "which sent nothing" in shell.fails(*redrive, "--after", str(report))

    (done,) = shell.json(*redrive, *chosen, "--report", str(report), "--rate", "50/s")
    assert (done["topics"], done["sent"]["messages"], done["looked_at"]) == (
        {"orders": 6, "payments": 3},
        9,
        18,
    )
    assert json.loads(report.read_text()) == done
    letters = messages_in(mq.name_server, LETTERS)
    for topic, numbers in (("orders", range(0, 12, 2)), ("payments", range(12, 17, 2))):
        arrived = messages_in(mq.name_server, topic)
        assert Counter(map(content, arrived)) == Counter(
            content(letters[number]) for number in numbers
        )
        own = {name for message in arrived for name in message.properties} & properties.OWN
        assert not own & {
            properties.RETRY_TOPIC,
            properties.ORIGIN_MESSAGE_ID,
            properties.RECONSUME_TIME,
            properties.REAL_TOPIC,
        }
        assert {message.reconsume_times for message in arrived} == {0}

    assert shell.json(*redrive, "--after", str(report), "--dry-run")[0]["looked_at"] == 0
    put(mq.name_server, [letter(18, "orders", 5)])
    (later,) = shell.json(*redrive, "--after", str(report))
    assert (later["topics"], later["looked_at"]) == ({"orders": 1}, 1)
    everything = shell.run(*redrive, "--to", "payments", "--dry-run")
    assert everything.stdout.split() == ["TOPIC", "WOULD", "SEND", "payments", "19"]


def test_what_cannot_be_done_is_said_in_one_sentence(mq: LocalCluster, tmp_path: Path) -> None:
    shell = Shell(mq.name_server)
    unknown = shell.fails("spark", "dlq", "nobody")
    assert unknown.startswith(
        "orbitmq: there are no dead letters of group nobody: no route to topic %DLQ%nobody"
    )
    (tmp_path / "x.json").write_text("{}")
    assert "not a report of a redrive" in shell.fails(
        "spark", "dlq", "billing", "redrive", "--after", str(tmp_path / "x.json")
    )
    assert "cannot be read" in shell.fails(
        "spark", "dlq", "billing", "redrive", "--after", str(tmp_path / "y.json")
    )
    assert "exclude each other" in shell.fails(
        "spark", "dlq", "billing", "--after", "x", "--since", "-1h", code=2
    )
    wrong = shell.fails(
        "spark",
        "dlq",
        "billing",
        "redrive",
        "--report",
        str(tmp_path / "no" / "x.json"),
        "--dry-run",
    )
    assert "No such file or directory" in wrong
