"""`orbitmq tx`: what waits for its end is seen, ended by hand, and asked about again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from orbitmq.testing import LocalCluster
from support.broker.transactions import (
    COMMIT,
    GIVEN_UP,
    GROUP,
    TOPIC,
    UNKNOWN,
    Desk,
    Ledger,
    order,
    run,
)
from support.cli.commands import Shell
from support.common.waiting import until

INTERVAL_S = 30


@pytest.fixture
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(
        virtual_clock=True, topics={TOPIC: 1}, broker={"transactionCheckMax": "1"}
    ) as running:
        yield running


@pytest.fixture
def shell(mq: LocalCluster) -> Shell:
    return Shell(mq.name_server)


def send(mq: LocalCluster, *keys: str) -> dict[str, str]:
    """Transactions whose producer does not know how they end, and is gone; their ids by key."""
    ids = {}

    async def scenario() -> None:
        async with Ledger(**{key: [UNKNOWN] for key in keys}).producer(mq) as producer:
            for key in keys:
                ids[key] = (await producer.send_in_transaction(order(key))).sent.msg_id

    run(scenario)
    return ids


def bodies(mq: LocalCluster, topic: str = TOPIC) -> list[bytes]:
    found: list[bytes] = []

    async def scenario() -> None:
        async with Desk(mq) as desk:
            found.extend(await desk.bodies(topic))

    run(scenario)
    return found


def give_up(mq: LocalCluster, key: str) -> str:
    """A transaction of which nobody ever knew how it ended, and its id."""
    ledger = Ledger(**{key: [UNKNOWN]})
    ids = []

    async def scenario() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            ids.append((await producer.send_in_transaction(order(key))).sent.msg_id)
            mq.advance(INTERVAL_S + 1)
            await until(lambda: ledger.asked == [key])
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(key.encode(), topic=GIVEN_UP)

    run(scenario)
    return ids[0]


def test_what_waits_is_listed_the_oldest_first(mq: LocalCluster, shell: Shell) -> None:
    assert shell.json("tx", "list") == []
    ids = send(mq, "first", "second")
    rows = shell.json("tx", "list")
    assert [row["msg_id"] for row in rows] == [ids["first"], ids["second"]]
    assert [
        (row["topic"], row["group"], row["checks"], row["state"], row["keys"]) for row in rows
    ] == [(TOPIC, GROUP, 0, "open", key) for key in ("first", "second")]
    assert shell.json("tx", "list", "--group", "others") == []
    assert shell.table("tx", "list")[1][:3] == [ids["first"], TOPIC, GROUP]


def test_one_is_shown_with_the_producers_that_can_be_asked(mq: LocalCluster, shell: Shell) -> None:
    ids = send(mq, "first")
    (row,) = shell.json("tx", "show", ids["first"])
    assert (row["producers"], row["properties"]["REAL_TOPIC"], row["body"]) == ([], TOPIC, "first")

    async def scenario() -> None:
        async with Ledger().producer(mq) as producer:
            (row,) = await asyncio.to_thread(shell.json, "tx", "show", ids["first"])
            (online,) = row["producers"]
            assert online.startswith(producer.session.client_id)

    run(scenario)


def test_a_transaction_is_ended_by_hand_and_only_once(mq: LocalCluster, shell: Shell) -> None:
    ids = send(mq, "good", "bad")
    told = shell.run("tx", "resolve", ids["good"], "commit", "--yes")
    assert told.stdout == f"{ids['good']} is committed: it is in {TOPIC} now\n"
    told = shell.run("tx", "resolve", ids["bad"], "rollback", stdin="y\n")
    assert told.stdout.endswith(f"{ids['bad']} is rolled back: {TOPIC} will not see it\n")
    assert (bodies(mq), shell.json("tx", "list")) == ([b"good"], [])
    assert "it has ended, or the id is wrong" in shell.fails(
        "tx", "resolve", ids["good"], "rollback", "--yes"
    )


def test_nothing_is_ended_when_the_operator_says_no(mq: LocalCluster, shell: Shell) -> None:
    ids = send(mq, "first")
    assert shell.run("tx", "resolve", ids["first"], "commit", stdin="n\n").exit_code == 1
    assert (bodies(mq), len(shell.json("tx", "list"))) == ([], 1)


def test_one_that_was_given_up_is_listed_and_ended_by_hand(mq: LocalCluster, shell: Shell) -> None:
    message_id = give_up(mq, "lost")
    assert shell.json("tx", "list") == []
    (row,) = shell.json("tx", "list", "--given-up")
    assert (row["msg_id"], row["checks"], row["state"]) == (message_id, 1, "given up")
    assert shell.run("tx", "resolve", message_id, "commit", "--yes").exit_code == 0
    assert bodies(mq) == [b"lost"]
    assert shell.json("tx", "list", "--given-up") == []
    assert "it has ended, or the id is wrong" in shell.fails("tx", "resume", message_id)


def test_one_that_was_given_up_is_open_again_when_it_is_asked_about_again_and_not_given_up_any_more(
    mq: LocalCluster, shell: Shell
) -> None:
    message_id = give_up(mq, "lost")
    shell.run("tx", "resume", message_id)
    assert shell.json("tx", "list", "--given-up") == []
    assert [(row["msg_id"], row["state"]) for row in shell.json("tx", "list")] == [
        (message_id, "open")
    ]


def test_producers_are_asked_again_when_an_operator_says_so(mq: LocalCluster, shell: Shell) -> None:
    message_id = give_up(mq, "lost")
    told = shell.run("tx", "resume", message_id)
    assert (
        told.stdout == f"producers of {GROUP} will be asked about {message_id} again, by broker-a\n"
    )

    async def scenario() -> None:
        async with Ledger(lost=[COMMIT]).producer(mq), Desk(mq) as desk:
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"lost")

    run(scenario)
    assert shell.json("tx", "list") == []
