"""Losses and doubles of transactions that the original is known for, by the numbers of their
reports: none of them happens here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from orbitmq.client.messages import Message, SendResult
from orbitmq.client.producer.transaction_producer import TransactionProducer
from orbitmq.message import properties
from orbitmq.protocol.codes import ResponseCode
from orbitmq.testing import LocalCluster
from support.broker.transactions import (
    COMMIT,
    GIVEN_UP,
    HALF,
    OP,
    ROLLBACK,
    TOPIC,
    UNKNOWN,
    Desk,
    Ledger,
    order,
    run,
)
from support.common.installed_packages import install, site_packages

INTERVAL_S = 30


class Shop(NamedTuple):
    """A broker whose time is moved by hand, a producer and what it says of its transactions, and
    somebody who looks.
    """

    mq: LocalCluster
    ledger: Ledger
    producer: TransactionProducer
    desk: Desk

    async def begin(self, key: str = "open") -> SendResult:
        """Send a half message, and say of it what the ledger says first."""
        return (await self.producer.send_in_transaction(order(key))).sent

    def next_round(self) -> None:
        self.mq.advance(INTERVAL_S + 1)

    async def be_asked(self, *times: int) -> None:
        """Let rounds come, until the producer was asked so often."""
        for number in times:
            self.next_round()
            await self.ledger.until_asked(number)

    async def be_given_up(self, asked: int = 1) -> None:
        """Let rounds come until nobody is asked any more, after so many questions."""
        await self.be_asked(*range(1, asked + 1))
        self.next_round()
        await self.desk.wait_for(b"open", topic=GIVEN_UP)

    async def restart(self, *, killed: bool = False) -> None:
        """In another thread, so that its clients hear of it here."""
        if killed:
            await asyncio.to_thread(self.mq.kill)
        await asyncio.to_thread(self.mq.restart)


def in_shop(scenario: Callable[[Shop], Awaitable[None]], ledger: Ledger, **keys: str) -> None:
    async def main() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            await scenario(Shop(mq, ledger, producer, desk))

    with LocalCluster(virtual_clock=True, topics={TOPIC: 1}, broker=keys) as mq:
        run(main)


def test_8158_1_a_producer_that_commits_after_it_was_asked_and_committed_commits_nothing_more() -> (
    None
):
    async def scenario(shop: Shop) -> None:
        sent = await shop.begin()
        shop.next_round()
        await shop.desk.wait_for(b"open")
        answer = await shop.desk.end(sent, COMMIT)
        assert answer.code == ResponseCode.TRANSACTION_FAILED
        assert "the first decision counts" in str(answer.remark)
        assert await shop.desk.bodies() == [b"open"]

    in_shop(scenario, Ledger(open=[UNKNOWN, COMMIT]))


def test_8158_2_a_producer_that_commits_after_it_was_asked_and_rolled_back_commits_nothing() -> (
    None
):
    async def scenario(shop: Shop) -> None:
        sent = await shop.begin()
        shop.next_round()
        await shop.desk.wait_for(b"0,", b"1,", topic=OP)
        assert (await shop.desk.end(sent, COMMIT)).code == ResponseCode.TRANSACTION_FAILED
        await shop.restart(killed=True)
        assert (await shop.desk.end(sent, COMMIT)).code == ResponseCode.TRANSACTION_FAILED
        assert await shop.desk.bodies() == []

    in_shop(scenario, Ledger(open=[UNKNOWN, ROLLBACK]), flushDiskType="SYNC_FLUSH")


def test_8158_3_nobody_is_asked_any_more_once_a_producer_that_was_asked_before_says_how_it_ended() -> (
    None
):
    async def scenario(shop: Shop) -> None:
        sent = await shop.begin()
        await shop.be_asked(1, 2)
        assert (await shop.desk.end(sent, COMMIT)).code == ResponseCode.SUCCESS
        shop.mq.advance(20 * INTERVAL_S)
        assert (await shop.desk.bodies(), shop.ledger.asked) == ([b"open"], ["open"] * 2)
        assert [await shop.desk.bodies(topic) for topic in (HALF, GIVEN_UP)] == [[b"open"] * 3, []]

    in_shop(scenario, Ledger(open=[UNKNOWN]))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_8158_4_one_that_was_given_up_ends_once_when_its_producer_comes_with_its_word_at_last(
    is_restarted: bool,
) -> None:
    async def scenario(shop: Shop) -> None:
        sent = await shop.begin()
        await shop.be_given_up()
        (kept,) = await shop.desk.stored(GIVEN_UP)
        if is_restarted:
            await shop.restart()
        assert (await shop.desk.end(sent, COMMIT)).code == ResponseCode.SUCCESS
        for state in (COMMIT, ROLLBACK):
            assert (await shop.desk.end(sent, state)).code == ResponseCode.TRANSACTION_FAILED
        assert (await shop.desk.resume(kept)).code == ResponseCode.SYSTEM_ERROR
        shop.mq.advance(5 * INTERVAL_S)
        assert (await shop.desk.bodies(), shop.ledger.asked) == ([b"open"], ["open"])

    in_shop(scenario, Ledger(open=[UNKNOWN]), transactionCheckMax="1")


def test_8158_4_the_first_word_counts_of_one_that_was_given_up_too() -> None:
    async def scenario(shop: Shop) -> None:
        sent = await shop.begin()
        await shop.be_given_up()
        assert (await shop.desk.end(sent, ROLLBACK)).code == ResponseCode.SUCCESS
        await shop.restart()
        assert (await shop.desk.end(sent, COMMIT)).code == ResponseCode.TRANSACTION_FAILED
        assert await shop.desk.bodies() == []

    in_shop(scenario, Ledger(open=[UNKNOWN]), transactionCheckMax="1")


def test_8311_1_one_that_ended_before_the_last_look_is_not_given_up_however_many_ended_before_it() -> (
    None
):
    keys = [f"order{number}" for number in range(200)]

    async def scenario(shop: Shop) -> None:
        sent = await shop.begin()
        await shop.be_asked(1)
        for key in keys:
            await shop.begin(key)
        assert (await shop.desk.end(sent, COMMIT)).code == ResponseCode.SUCCESS
        shop.mq.advance(5 * INTERVAL_S)
        assert await shop.desk.bodies(GIVEN_UP) == []
        assert (await shop.desk.bodies())[-1] == b"open"

    in_shop(
        scenario, Ledger(open=[UNKNOWN], **{key: [COMMIT] for key in keys}), transactionCheckMax="1"
    )


def test_8311_2_questions_are_counted_when_they_are_asked_and_not_while_a_message_wants_to_be_left_alone() -> (
    None
):
    async def scenario(shop: Shop) -> None:
        message = Message(
            TOPIC, b"open", keys="open", properties={properties.CHECK_IMMUNITY_TIME_S: "600"}
        )
        await shop.producer.send_in_transaction(message)
        shop.mq.advance(590)
        assert shop.ledger.asked == []
        await shop.be_given_up(asked=3)
        assert len(shop.ledger.asked) == 3

    in_shop(scenario, Ledger(open=[UNKNOWN]), transactionCheckMax="3")


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


def test_9500_one_transaction_that_cannot_be_handled_stops_neither_the_others_nor_the_offsets(
    tmp_path: Path,
) -> None:
    async def scenario(shop: Shop) -> None:
        for key in ("poison", "open"):
            await shop.begin(key)
        shop.next_round()
        await shop.desk.wait_for(b"open")
        assert shop.ledger.asked == ["open"]
        shop.mq.advance(20)
        assert (
            await shop.desk.done_until(HALF) == 2
        )  # the first copy, of the one that cannot be handled

    with site_packages(tmp_path / "site") as site:
        install(
            site,
            "failing_checks",
            "[orbitmq.transaction_checks]\nfailing = failing_checks:Failing\n",
            FAILING,
        )
        in_shop(scenario, Ledger(poison=[UNKNOWN], open=[UNKNOWN, COMMIT]))
