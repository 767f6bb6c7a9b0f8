"""`orbitmq topic` and `orbitmq group` against a cluster of two brokers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
import yaml

from orbitmq.testing.local_cluster import LocalCluster
from support.admin.cluster import resident
from support.cli.commands import Shell


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as running:
        yield running


@pytest.fixture
def shell(mq: LocalCluster) -> Shell:
    return Shell(mq.name_server)


def test_a_topic_is_created_shown_updated_and_deleted(shell: Shell) -> None:
    assert shell.table("topic", "create", "orders", "--queues", "4") == [
        ["BROKER", "READ", "QUEUES", "WRITE", "QUEUES", "PERMISSION", "ORDER", "ATTRIBUTES"],
        ["broker-a", "4", "4", "RW", "False"],
        ["broker-b", "4", "4", "RW", "False"],
    ]
    assert "orders" in [row["topic"] for row in shell.json("topic", "list")]
    changed = shell.json(
        *(
            "topic",
            "update",
            "orders",
            "--write-queues",
            "2",
            "--permission",
            "r",
            "--attribute",
            "message.type=FIFO",
        ),
        *("--broker", "broker-b"),
    )
    assert changed == [
        {
            "broker": "broker-b",
            "read_queues": 4,
            "write_queues": 2,
            "permission": "R-",
            "order": False,
            "attributes": ["message.type=FIFO"],
        }
    ]
    (shown,) = shell.json("topic", "show", "orders")
    assert (shown["topic"], shown["messages"], shown["groups"]) == ("orders", 0, {})
    assert [row["permission"] for row in shown["brokers"]] == ["RW", "R-"]
    assert (
        shell.json("topic", "update", "orders", "--remove-attribute", "message.type")[1][
            "attributes"
        ]
        == []
    )
    result = shell.run("topic", "delete", "orders", "--yes")
    assert (result.exit_code, result.stderr) == (0, "deleted orders at broker-a, broker-b\n")
    assert "no route to topic orders" in shell.fails("topic", "show", "orders")


def test_a_topic_has_eight_queues_unless_told_otherwise_and_is_made_once(shell: Shell) -> None:
    assert {row["read_queues"] for row in shell.json("topic", "create", "usual")} == {8}
    assert shell.run("topic", "create", "usual").exit_code == 0
    assert (
        shell.fails("topic", "create", "usual", "--queues", "1")
        == "orbitmq: topic usual already exists on broker-a with other settings; change it with:"
        " orbitmq topic update\n"
    )


def test_the_queues_of_a_topic_are_counted(shell: Shell) -> None:
    shell.table("topic", "create", "counted", "--queues", "1")
    shell.table("message", "send", "counted", "hello", "--queue", "broker-b:0", "-c", "3")
    rows = shell.json("topic", "stats", "counted")
    assert [
        (row["broker"], row["queue"], row["first_offset"], row["end_offset"], row["messages"])
        for row in rows
    ] == [
        ("broker-a", 0, 0, 0, 0),
        ("broker-b", 0, 0, 3, 3),
    ]
    assert rows[0]["last_update"] is None
    assert rows[1]["last_update"].startswith("20")
    assert shell.run("topic", "show", "counted").stdout.startswith("counted: 3 messages, ")


def test_deleting_a_topic_shows_first_what_goes_and_asks(shell: Shell) -> None:
    shell.table("topic", "create", "asked", "--queues", "1", "--broker", "broker-a")
    shell.table("message", "send", "asked", "hello")
    assert shell.json("topic", "delete", "asked", "--dry-run") == [
        {"topic": "asked", "broker": "broker-a", "messages": 1, "groups": []}
    ]
    refused = shell.run("topic", "delete", "asked", stdin="n\n")
    assert refused.exit_code == 1
    assert "Delete topic asked with 1 messages? [y/N]" in refused.stderr
    assert shell.run("topic", "show", "asked").exit_code == 0
    assert shell.run("topic", "delete", "asked", stdin="y\n").exit_code == 0
    assert "no route to topic asked" in shell.fails("topic", "delete", "asked", "--dry-run")


def test_a_group_is_created_listed_updated_and_deleted(shell: Shell) -> None:
    rows = shell.json("group", "create", "billing", "--retry-max-times", "3")
    assert [(row["broker"], row["consumes"], row["retry_max_times"]) for row in rows] == [
        ("broker-a", True, 3),
        ("broker-b", True, 3),
    ]
    assert "billing" in [row["group"] for row in shell.json("group", "list")]
    assert "TOOLS_CONSUMER" not in [row["group"] for row in shell.json("group", "list")]
    assert "TOOLS_CONSUMER" in [row["group"] for row in shell.json("group", "list", "--all")]
    assert [
        row["consumes"] for row in shell.json("group", "update", "billing", "--no-consumes")
    ] == [False, False]
    assert shell.json("group", "delete", "billing", "--dry-run") == [
        {"group": "billing", "broker": "broker-a", "lag": 0, "members": 0},
        {"group": "billing", "broker": "broker-b", "lag": 0, "members": 0},
    ]
    result = shell.run("group", "delete", "billing", "--yes")
    assert (result.exit_code, result.stderr) == (0, "deleted billing at broker-a, broker-b\n")
    for command in (["show", "billing"], ["explain", "billing"], ["delete", "billing", "--yes"]):
        assert "no broker knows group billing; create it" in shell.fails("group", *command)


def test_a_reset_is_tried_before_it_is_made(shell: Shell) -> None:
    shell.table("topic", "create", "reset", "--queues", "1", "--broker", "broker-a")
    shell.table("message", "send", "reset", "hello", "-c", "5")
    shell.table("group", "create", "resetting")

    def reset(*arguments: str) -> list[tuple[int | None, int]]:
        return [
            (row["before"], row["after"])
            for row in shell.json("group", "reset", "resetting", "reset", *arguments)
        ]

    assert reset("--to", "last", "--dry-run") == reset("--to", "last") == [(None, 5)]
    assert reset("--to", "2", "--queue", "0") == [(5, 2)]
    assert reset("--to", "last", "--only-back") == [(2, 2)]
    assert reset("--to", "-1h") == [(2, 0)]
    assert reset("--to", "first", "--queue", "broker-a:0") == [(0, 0)]
    assert "reset/broker-a/0 has no offset 77; its offsets range from 0 to 5" in shell.fails(
        "group", "reset", "resetting", "reset", "--to", "77"
    )
    assert "reset has no queue 'broker-b:0'; there are broker-a:0" in shell.fails(
        *("group", "reset", "resetting", "reset", "--to", "first", "--queue", "broker-b:0"), code=2
    )
    assert "'soon' is no place in a queue; write first, last, an offset, or a time" in shell.fails(
        *("group", "reset", "resetting", "reset", "--to", "soon"), code=2
    )


def test_members_and_lag_of_a_group_are_shown(mq: LocalCluster, shell: Shell) -> None:
    shell.table("topic", "create", "shown", "--queues", "1", "--broker", "broker-a")
    shell.table("message", "send", "shown", "hello", "-c", "2")

    async def look() -> tuple[str, ...]:
        async with resident(mq.name_server, "showing", "shown") as (client_id, _):
            arguments = ("group", "show", "showing")
            one = await asyncio.to_thread(shell.run, *arguments)
            two = await asyncio.to_thread(shell.run, *arguments, "-o", "yaml")
            three = await asyncio.to_thread(shell.run, "topic", "show", "shown")
            return client_id, one.stdout, two.stdout, three.stdout

    client_id, text, spelled, topic = asyncio.run(look())
    assert "groups: showing (1 online)" in topic
    assert text.startswith(
        "showing: 2 messages behind, 0 consumed a second; 1 members (clustering), which want shown"
        " (*)\n\nCLIENT ID"
    )
    (found,) = yaml.safe_load(spelled)
    assert [member["client_id"] for member in found["members"]] == [client_id]
    (queue,) = [each for each in found["queues"] if each["topic"] == "shown"]
    assert (queue["broker_offset"], queue["consumer_offset"], queue["lag"], queue["owner"]) == (
        2,
        0,
        2,
        None,
    )
    assert found["subscriptions"] == {"shown": "*"}
    assert shell.run("group", "show", "showing").stdout.startswith(
        "showing: 0 messages behind, 0 consumed a second; no member online\n"
    )


def test_a_group_that_does_not_move_is_explained(shell: Shell) -> None:
    shell.table("topic", "create", "still", "--queues", "1", "--broker", "broker-a")
    shell.table("group", "create", "waiting")
    assert (
        shell.run("group", "explain", "waiting", "--seconds", "0").stdout
        == "waiting: it has no queues: no member subscribes, and nothing was consumed\n"
    )
    shell.table("group", "reset", "waiting", "still", "--to", "first")
    assert (
        shell.run("group", "explain", "waiting", "--seconds", "0").stdout
        == "waiting: everything is consumed\n"
    )
    shell.table("message", "send", "still", "hello")
    (row,) = shell.json("group", "explain", "waiting", "--topic", "still", "--seconds", "0")
    assert (row["lag"], row["state"], row["owner"]) == (1, "no member", None)
    assert "start one" in row["why"]


def test_a_broker_that_cannot_be_reached_is_told_beside_the_rest_and_is_3() -> None:
    with (
        LocalCluster(brokers=2, topics={"T": 1}, partitions=True) as mq,
        mq.partition("broker-b", reset=True),
    ):
        result = Shell(mq.name_server).run("topic", "stats", "T", "-o", "json")
        assert result.exit_code == 3
        assert [row["broker"] for row in json.loads(result.stdout)] == ["broker-a"]
        assert result.stderr.startswith("orbitmq: nothing is known of broker-b: cannot connect to ")


def test_brokers_are_shown_and_configured(mq: LocalCluster, shell: Shell) -> None:
    rows = shell.json("broker", "show")
    assert [(row["broker"], row["address"], row["version"]) for row in rows] == [
        (name, mq.broker_address(name), "V5_5_0") for name in ("broker-a", "broker-b")
    ]
    assert {row["key"]: row["value"] for row in shell.json("broker", "config", "broker-a")}[
        "brokerName"
    ] == "broker-a"
    changed = shell.run("broker", "config", "broker-b", "--set", "defaultQueryMaxNum=16")
    assert (changed.exit_code, changed.stderr) == (
        0,
        f"updated defaultQueryMaxNum at {mq.broker_address('broker-b')}\n",
    )
    assert {row["key"]: row["value"] for row in shell.json("broker", "config", "broker-b")}[
        "defaultQueryMaxNum"
    ] == "16"
    assert "no broker broker-z is registered; there are broker-a, broker-b" in shell.fails(
        "broker", "config", "broker-z"
    )
