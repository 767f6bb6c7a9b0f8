"""`orbitmq dlq`: dead letters of real consumers are listed, looked at and sent back; and what
`orbitmq group show` says of conflicts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from orbitmq import ClientSettings, ConsumeLater, Message, Producer, PushConsumer, ReceivedMessage
from orbitmq.testing.local_cluster import LocalCluster
from support.cli.commands import Shell
from support.client.library import FROM_FIRST
from support.common.waiting import until

NEVER = -1  # the delay level of what is not to come again


@pytest.fixture(scope="module")
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, topics={"Orders": 1, "Payments": 1}) as running:
        asyncio.run(_die(running))
        yield running


@pytest.fixture
def shell(mq: LocalCluster) -> Shell:
    return Shell(mq.name_server)


async def _die(mq: LocalCluster) -> None:
    """Four orders and two payments that nobody could consume; one order after its attempts were
    used up.
    """
    seen = []

    def listener(message: ReceivedMessage) -> None:
        seen.append(message)
        if message.body == b"order 0":
            raise ValueError("on purpose")
        raise ConsumeLater(delay_level=NEVER)

    settings = ClientSettings(name_servers=mq.name_server, timeout_ms=20_000)
    consumer = PushConsumer(
        settings, "billing", listener, settings=replace(FROM_FIRST, max_attempts=0)
    )
    for topic in ("Orders", "Payments"):
        consumer.subscribe(topic)
    async with (
        asyncio.timeout(60),
        consumer,
        Producer(replace(settings, instance_name="p")) as producer,
    ):
        for number in range(4):
            await producer.send(
                Message(
                    "Orders", f"order {number}".encode(), "new", f"o{number}", {"size": str(number)}
                )
            )
        for number in range(2):
            await producer.send(
                Message("Payments", f"payment {number}".encode(), keys=f"p{number}")
            )
        shell = Shell(mq.name_server)

        async def all_dead() -> bool:
            topics = await asyncio.to_thread(shell.json, "dlq", "list")
            return any(topic["messages"] >= 6 for topic in topics)

        await until(all_dead, "six dead letters")


def bodies(shell: Shell, topic: str) -> list[str]:
    """All that a topic has, those that were there from the start too."""
    return sorted(row["body"] for row in shell.json("message", "find", topic, "--since", "-1d"))


def test_groups_with_dead_letters_are_listed(shell: Shell) -> None:
    (row,) = shell.json("dlq", "list")
    assert (row["group"], row["messages"]) == ("billing", 6)
    assert set(row["brokers"]) <= {"broker-a", "broker-b"}
    assert row["first_died"] <= row["last_died"]
    header, line = shell.table("dlq", "list")
    assert (header[:2], line[:2]) == (["GROUP", "MESSAGES"], ["billing", "6"])


def test_letters_are_looked_at_and_stay(shell: Shell) -> None:
    rows = shell.json("dlq", "show", "billing")
    assert sorted(row["body"] for row in rows) == [
        "order 0",
        "order 1",
        "order 2",
        "order 3",
        "payment 0",
        "payment 1",
    ]
    (first,) = (row for row in rows if row["body"] == "order 0")
    assert (first["origin_topic"], first["keys"], first["tags"], first["attempts"]) == (
        "Orders",
        ["o0"],
        "new",
        1,
    )
    assert len(shell.json("dlq", "show", "%DLQ%billing", "-c", "2")) == 2
    earliest = shell.json("dlq", "show", "billing", "-c", "1", "--oldest")
    assert earliest == rows[:1]
    assert shell.json("dlq", "show", "billing", "--until", rows[0]["died"].replace(" ", "T")) == []


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--keys", "o1", "--keys", "p0"), ["order 1", "payment 0"]),
        (("--filter", "originTopic = 'Payments'"), ["payment 0", "payment 1"]),
        (
            ("--filter", "size > 1 AND originTopic = 'Orders' AND attempts = 1"),
            ["order 2", "order 3"],
        ),
        (("--filter", "reason = 'nothing'"), []),
        (("--keys", "o1", "--filter", "TAGS = 'old'"), []),
    ],
)
def test_letters_are_chosen_by_keys_and_by_what_they_say(
    shell: Shell, words: tuple[str, ...], wanted: list[str]
) -> None:
    assert sorted(row["body"] for row in shell.json("dlq", "show", "billing", *words)) == wanted


def test_a_dry_run_sends_nothing(shell: Shell) -> None:
    before = bodies(shell, "Orders")
    (told,) = shell.json("dlq", "redrive", "billing", "--dry-run")
    assert (told["topics"], told["looked_at"], told["without_topic"]) == (
        {"Orders": 4, "Payments": 2},
        6,
        0,
    )
    assert shell.table("dlq", "redrive", "billing", "--dry-run") == [
        ["TOPIC", "WOULD", "SEND"],
        ["Orders", "4"],
        ["Payments", "2"],
    ]
    assert bodies(shell, "Orders") == before


def test_letters_go_back_to_where_they_came_from_as_they_were_sent(shell: Shell) -> None:
    before = bodies(shell, "Orders")
    (told,) = shell.json(
        "dlq", "redrive", "billing", "--filter", "size BETWEEN 1 AND 2", "--rate", "50/s"
    )
    assert told["topics"] == {"Orders": 2}
    assert bodies(shell, "Orders") == sorted([*before, "order 1", "order 2"])
    found = [
        row
        for row in shell.json("message", "find", "Orders", "--key", "o1")
        if row["body"] == "order 1"
    ]
    assert len(found) == 2
    first, again = found
    assert (again["tags"], again["keys"], again["properties"]["size"]) == ("new", ["o1"], "1")
    assert first["properties"].keys() == again["properties"].keys()
    assert again["msg_id"] != first["msg_id"], "it is a message of its own"
    assert again["reconsume_times"] == 0


def test_letters_go_to_another_topic_if_that_is_wanted(shell: Shell) -> None:
    shell.table("topic", "create", "Elsewhere", "--queues", "1")
    result = shell.run("dlq", "redrive", "billing", "--to", "Elsewhere")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("letters that die from now on are those --since @")
    assert len(bodies(shell, "Elsewhere")) == 6
    since = result.stderr.split()[-1]
    (told,) = shell.json("dlq", "redrive", "billing", "--since", since)
    assert (told["looked_at"], told["topics"]) == (0, {})


def test_mistakes_are_told(shell: Shell) -> None:
    assert "group nobody has no dead letters" in shell.fails("dlq", "show", "nobody")
    for wrong in ("size > ", "size > 3 4"):
        assert f"the filter {wrong!r} is invalid" in shell.fails(
            "dlq", "redrive", "billing", "--filter", wrong
        )
    assert "'fast' is no rate" in shell.fails("dlq", "redrive", "billing", "--rate", "fast", code=2)
    message = shell.fails("dlq", "redrive", "billing", "--to", "no topic")
    assert (
        "0 letters were sent before it; continue with those that died since then: --since @"
        in message
    )


def test_a_group_whose_members_subscribe_differently_is_shown_to_be_so(
    mq: LocalCluster, shell: Shell
) -> None:
    async def scenario() -> None:
        consumers = []
        for number, tags in enumerate(("new", "new || paid")):
            settings = ClientSettings(
                name_servers=mq.name_server, timeout_ms=20_000, instance_name=str(number)
            )
            consumers.append(PushConsumer(settings, "torn", lambda _message: None))
            consumers[-1].subscribe("Orders", tags)
        async with asyncio.timeout(60), consumers[0], consumers[1]:
            (told,) = await asyncio.to_thread(shell.json, "group", "show", "torn")
            (conflict,) = told["conflicts"]
            assert conflict.startswith("Orders: TAG 'new' by ")
            assert "; TAG 'new || paid' by " in conflict
            shown = await asyncio.to_thread(shell.run, "group", "show", "torn")
            assert (
                f"members subscribe differently, so that messages pass them by: {conflict}"
                in shown.stdout
            )

    asyncio.run(scenario())
