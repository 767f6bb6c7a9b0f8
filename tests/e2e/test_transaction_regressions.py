"""Losses and doubles of transactions that the original is known for, by the numbers of their reports: none of them happens here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from installed_room import install, site_packages
from orbitmq.client.messages import Message
from orbitmq.message import properties
from orbitmq.protocol.codes import ResponseCode
from orbitmq.testing import LocalCluster
from transactions_room import COMMIT, GIVEN_UP, HALF, OP, ROLLBACK, TOPIC, UNKNOWN, Desk, Ledger, order, run, until

INTERVAL_S = 30


def in_cluster(scenario: Callable[[LocalCluster], Awaitable[None]], **keys: str) -> None:
    with LocalCluster(virtual_clock=True, topics={TOPIC: 1}, broker=keys) as mq:
        run(lambda: scenario(mq))


def test_8158_1_a_producer_that_commits_after_it_was_asked_and_committed_commits_nothing_more() -> None:
    async def scenario(mq: LocalCluster) -> None:
        ledger = Ledger(open=[UNKNOWN, COMMIT])
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            sent = (await producer.send_in_transaction(order("open"))).sent
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"open")
            answer = await desk.end(sent, COMMIT)
            assert answer.code == ResponseCode.TRANSACTION_FAILED
            assert "the first word counts" in str(answer.remark)
            assert await desk.bodies() == [b"open"]

    in_cluster(scenario)


def test_8158_2_a_producer_that_commits_after_it_was_asked_and_rolled_back_commits_nothing() -> None:
    async def scenario(mq: LocalCluster) -> None:
        ledger = Ledger(open=[UNKNOWN, ROLLBACK])
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            sent = (await producer.send_in_transaction(order("open"))).sent
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"0,", b"1,", topic=OP)
            assert (await desk.end(sent, COMMIT)).code == ResponseCode.TRANSACTION_FAILED
        mq.kill()
        mq.restart()
        async with Desk(mq) as desk:
            assert (await desk.end(sent, COMMIT)).code == ResponseCode.TRANSACTION_FAILED
            assert await desk.bodies() == []

    in_cluster(scenario, flushDiskType="SYNC_FLUSH")


def test_8158_3_nobody_is_asked_any_more_once_a_producer_that_was_asked_before_says_how_it_ended() -> None:
    async def scenario(mq: LocalCluster) -> None:
        ledger = Ledger(open=[UNKNOWN])
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            sent = (await producer.send_in_transaction(order("open"))).sent
            for number in (1, 2):
                mq.advance(INTERVAL_S + 1)
                await ledger.until_asked(number)
            assert (await desk.end(sent, COMMIT)).code == ResponseCode.SUCCESS
            mq.advance(20 * INTERVAL_S)
            assert (await desk.bodies(), ledger.asked) == ([b"open"], ["open"] * 2)
            assert [await desk.bodies(topic) for topic in (HALF, GIVEN_UP)] == [[b"open"] * 3, []]

    in_cluster(scenario)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_8158_4_one_that_was_given_up_ends_once_when_its_producer_comes_with_its_word_at_last(is_restarted: bool) -> None:
    async def scenario(mq: LocalCluster) -> None:
        ledger = Ledger(open=[UNKNOWN])
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            sent = (await producer.send_in_transaction(order("open"))).sent
            mq.advance(INTERVAL_S + 1)
            await until(lambda: ledger.asked == ["open"])
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"open", topic=GIVEN_UP)
            (kept,) = await desk.stored(GIVEN_UP)
        if is_restarted:
            mq.restart()
        async with ledger.producer(mq), Desk(mq) as desk:
            assert (await desk.end(sent, COMMIT)).code == ResponseCode.SUCCESS
            for state in (COMMIT, ROLLBACK):
                assert (await desk.end(sent, state)).code == ResponseCode.TRANSACTION_FAILED
            assert (await desk.resume(kept)).code == ResponseCode.SYSTEM_ERROR
            mq.advance(5 * INTERVAL_S)
            assert (await desk.bodies(), ledger.asked) == ([b"open"], ["open"])

    in_cluster(scenario, transactionCheckMax="1")


def test_8158_4_the_first_word_counts_of_one_that_was_given_up_too() -> None:
    async def scenario(mq: LocalCluster) -> None:
        ledger = Ledger(open=[UNKNOWN])
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            sent = (await producer.send_in_transaction(order("open"))).sent
            mq.advance(INTERVAL_S + 1)
            await until(lambda: ledger.asked == ["open"])
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"open", topic=GIVEN_UP)
            assert (await desk.end(sent, ROLLBACK)).code == ResponseCode.SUCCESS
        mq.restart()
        async with Desk(mq) as desk:
            assert (await desk.end(sent, COMMIT)).code == ResponseCode.TRANSACTION_FAILED
            assert await desk.bodies() == []

    in_cluster(scenario, transactionCheckMax="1")


def test_8311_1_one_that_ended_before_the_last_look_is_not_given_up_however_many_ended_before_it() -> None:
    async def scenario(mq: LocalCluster) -> None:
        keys = [f"order{number}" for number in range(200)]
        ledger = Ledger(open=[UNKNOWN], **{key: [COMMIT] for key in keys})
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            sent = (await producer.send_in_transaction(order("open"))).sent
            mq.advance(INTERVAL_S + 1)
            await until(lambda: ledger.asked == ["open"])
            for key in keys:
                await producer.send_in_transaction(order(key))
            assert (await desk.end(sent, COMMIT)).code == ResponseCode.SUCCESS
            mq.advance(5 * INTERVAL_S)
            assert await desk.bodies(GIVEN_UP) == []
            assert (await desk.bodies())[-1] == b"open"

    in_cluster(scenario, transactionCheckMax="1")


def test_8311_2_questions_are_counted_when_they_are_asked_and_not_while_a_message_wants_to_be_left_alone() -> None:
    async def scenario(mq: LocalCluster) -> None:
        ledger = Ledger(open=[UNKNOWN])
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            message = Message(TOPIC, b"open", keys="open", properties={properties.CHECK_IMMUNITY_TIME_S: "600"})
            await producer.send_in_transaction(message)
            mq.advance(590)
            assert ledger.asked == []
            for number in (1, 2, 3):
                mq.advance(INTERVAL_S + 1)
                await ledger.until_asked(number)
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"open", topic=GIVEN_UP)
            assert len(ledger.asked) == 3

    in_cluster(scenario, transactionCheckMax="3")


FAILING = """
class Failing:
    def __init__(self, own):
        self._own = own
        self.can_ask, self.given_up = own.can_ask, own.given_up

    def ask(self, half):
        if half.body == b"poison":
            raise RuntimeError("whatever")
        self._own.ask(half)
"""


def test_9500_one_transaction_that_cannot_be_handled_stops_neither_the_others_nor_the_offsets(tmp_path: Path) -> None:
    async def scenario(mq: LocalCluster) -> None:
        ledger = Ledger(poison=[UNKNOWN], open=[UNKNOWN, COMMIT])
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            for key in ("poison", "open"):
                await producer.send_in_transaction(order(key))
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"open")
            assert ledger.asked == ["open"]
            mq.advance(20)
            assert await desk.done_until(HALF) == 2  # the first copy, of the one that cannot be handled

    with site_packages(tmp_path / "site") as site:
        install(site, "failing_checks", "[orbitmq.transaction_checks]\nfailing = failing_checks:Failing\n", FAILING)
        in_cluster(scenario)
