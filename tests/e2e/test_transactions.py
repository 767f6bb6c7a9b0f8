"""Transactions of our client with our broker, whose time is moved by hand: what consumers see, who
is asked, and when.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from orbitmq.client.messages import Message, SendResult, TransactionState
from orbitmq.client.producer.transaction_producer import TransactionProducer
from orbitmq.common.errors import SendFailedError
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
from support.common.waiting import until

TOPICS = {TOPIC: 1}
INTERVAL_S = 30  # transactionCheckInterval


def cluster(**keys: str) -> LocalCluster:
    return LocalCluster(virtual_clock=True, topics=TOPICS, broker=keys)


def test_consumers_see_what_was_committed_and_nothing_else() -> None:
    ledger = Ledger(first=[COMMIT], second=[ROLLBACK], third=[UNKNOWN], fourth=[COMMIT])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            for key in ("first", "second", "third", "fourth"):
                await producer.send_in_transaction(order(key))
            await desk.wait_for(b"first", b"fourth")
            assert await desk.bodies(HALF) == [b"first", b"second", b"third", b"fourth"]

    with cluster() as mq:
        run(scenario)


def test_a_producer_that_said_nothing_is_asked_when_its_message_is_old_enough() -> None:
    ledger = Ledger(open=[UNKNOWN, UNKNOWN, COMMIT])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            mq.advance(INTERVAL_S - 3)
            await producer.send_in_transaction(order("open"))
            mq.advance(4)  # a round comes, and the message is younger than transactionTimeOut
            assert await desk.bodies(HALF) == [b"open"]
            mq.advance(INTERVAL_S)
            await until(lambda: ledger.asked == ["open"])
            assert await desk.bodies() == []
            mq.advance(INTERVAL_S)
            await desk.wait_for(b"open")
            mq.advance(10 * INTERVAL_S)
            assert await desk.bodies() == [b"open"]
            assert ledger.asked == ["open", "open"]
            copies = await desk.stored(HALF)
            assert [
                each.properties().get(properties.TRANSACTION_CHECK_TIMES) for each in copies
            ] == [None, "1", "2"]

    with cluster() as mq:
        run(scenario)


def test_when_and_how_often_producers_are_asked_is_what_keys_say() -> None:
    ledger = Ledger(open=[UNKNOWN] * 10)

    async def scenario() -> None:
        async with ledger.producer(mq) as producer:
            await producer.send_in_transaction(order("open"))
            mq.advance(310)
            async with Desk(mq) as desk:
                assert await desk.bodies(HALF) == [b"open"]
            assert ledger.asked == [], "a round came, and the message is younger than it has to be"
            mq.advance(300)
            await until(lambda: ledger.asked == ["open"])
            mq.advance(6 * INTERVAL_S)
            assert ledger.asked == ["open"], "the next round is five minutes after the last"
            mq.advance(150)
            await until(lambda: ledger.asked == ["open"] * 2)

    with cluster(transactionTimeOut="400000", transactionCheckInterval="300000") as mq:
        run(scenario)


def test_what_is_rolled_back_when_asked_is_gone_for_good() -> None:
    ledger = Ledger(open=[UNKNOWN, ROLLBACK])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            await producer.send_in_transaction(order("open"))
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"0,", b"1,", topic=OP)
            mq.advance(10 * INTERVAL_S)
            assert (ledger.asked, await desk.bodies()) == (["open"], [])

    with cluster() as mq:
        run(scenario)


def test_one_that_stays_open_is_given_up_after_so_many_questions_and_kept_aside() -> None:
    ledger = Ledger(open=[UNKNOWN], other=[COMMIT])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            await producer.send_in_transaction(order("open"))
            for number in range(1, 4):
                mq.advance(INTERVAL_S + 1)
                await ledger.until_asked(number)
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"open", topic=GIVEN_UP)
            mq.advance(10 * INTERVAL_S)
            assert (ledger.asked, await desk.bodies()) == (["open"] * 3, [])
            (kept,) = await desk.stored(GIVEN_UP)
            found = kept.properties()
            assert (found[properties.REAL_TOPIC], found[properties.TRANSACTION_CHECK_TIMES]) == (
                TOPIC,
                "3",
            )

    with cluster(transactionCheckMax="3") as mq:
        run(scenario)


def test_questions_begin_again_when_an_operator_says_so() -> None:
    ledger = Ledger(open=[UNKNOWN, UNKNOWN, COMMIT])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            await producer.send_in_transaction(order("open"))
            mq.advance(INTERVAL_S + 1)
            await until(lambda: ledger.asked == ["open"])
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"open", topic=GIVEN_UP)
            (kept,) = await desk.stored(GIVEN_UP)
            assert (await desk.resume(kept)).code == ResponseCode.SUCCESS
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"open")
            answer = await desk.resume(kept)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "has ended; there is nothing to ask" in str(answer.remark)
            mq.advance(10 * INTERVAL_S)
            assert (await desk.bodies(), ledger.asked) == ([b"open"], ["open", "open"])

    with cluster(transactionCheckMax="1") as mq:
        run(scenario)


def test_while_no_producer_of_the_group_is_there_its_transactions_wait_and_no_question_is_counted() -> (
    None
):
    ledger, later = Ledger(open=[UNKNOWN]), Ledger(open=[COMMIT])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer:
            await producer.send_in_transaction(order("open"))
        async with Desk(mq) as desk:
            mq.advance(100 * INTERVAL_S)
            assert [await desk.bodies(topic) for topic in (HALF, GIVEN_UP, TOPIC)] == [
                [b"open"],
                [],
                [],
            ]
            async with later.producer(mq):
                mq.advance(INTERVAL_S)
                await desk.wait_for(b"open")
        assert (ledger.asked, later.asked) == ([], ["open"])

    with cluster(transactionCheckMax="3") as mq:
        run(scenario)


def test_one_whose_producers_never_come_back_is_given_up_when_files_expire() -> None:
    ledger = Ledger(open=[UNKNOWN])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer:
            await producer.send_in_transaction(order("open"))
        async with Desk(mq) as desk:
            mq.advance(3600 + 2 * INTERVAL_S)
            await desk.wait_for(b"open", topic=GIVEN_UP)

    with cluster(fileReservedTime="1") as mq:
        run(scenario)


def test_one_whose_producers_never_come_back_is_given_up_and_kept_before_its_file_is_deleted() -> (
    None
):
    ledger = Ledger(open=[UNKNOWN])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer:
            await producer.send_in_transaction(order("open"))
            for _ in range(8):
                await producer.send(
                    Message(TOPIC, random.randbytes(200_000))
                )  # which clients cannot compress
        async with Desk(mq) as desk:
            mq.advance(2 * 3600)
            assert not (mq.store() / "commitlog/00000000000000000000").exists()
            await desk.wait_for(b"open", topic=GIVEN_UP)

    hours = ";".join(f"{hour:02d}" for hour in range(24))
    with cluster(
        fileReservedTime="1",
        deleteWhen=hours,
        mappedFileSizeCommitLog=str(1 << 20),
        transactionCheckInterval="300000",
    ) as mq:
        run(scenario)


@pytest.mark.parametrize("said", [COMMIT, ROLLBACK])
def test_a_broker_that_is_killed_before_it_hears_the_end_asks_for_it(
    said: TransactionState,
) -> None:
    ledger = Ledger(open=[UNKNOWN, said], before=[COMMIT])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer:
            await producer.send_in_transaction(order("before"))
            await producer.send_in_transaction(order("open"))
            async with Desk(mq) as desk:
                await desk.wait_for(b"before")
        mq.kill()
        mq.restart()
        async with ledger.producer(mq), Desk(mq) as desk:
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"0,", b"1,", b"2,", topic=OP)
            assert await desk.bodies() == ([b"before", b"open"] if said is COMMIT else [b"before"])
            mq.advance(10 * INTERVAL_S)
            assert ledger.asked == ["open"]

    with cluster(flushDiskType="SYNC_FLUSH") as mq:
        run(scenario)


def test_a_commit_that_a_power_cut_took_back_is_asked_for_and_made_again() -> None:
    ledger = Ledger(open=[UNKNOWN, COMMIT])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            begun = await producer.send_in_transaction(order("open"))
            mq.advance(20)  # the half message is flushed, and nobody is asked yet
            assert (await desk.end(begun.sent, COMMIT)).code == ResponseCode.SUCCESS
            await desk.wait_for(b"open")
        mq.kill()
        mq.restart()
        async with ledger.producer(mq), Desk(mq) as desk:
            assert (await desk.bodies(HALF), await desk.bodies()) == ([b"open"], [])
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"open")
            assert ledger.asked == ["open"]

    with cluster() as mq:
        run(scenario)


def test_a_committed_message_that_is_to_come_later_comes_later() -> None:
    ledger = Ledger(open=[UNKNOWN])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            message = Message(TOPIC, b"open", keys="open", properties={})
            added = {
                properties.TRANSACTION_PREPARED: "true",
                properties.PRODUCER_GROUP: "ledger",
                properties.DELAY: "3",
            }
            outgoing = producer.outbox.message(message, added)
            await producer.queues(TOPIC)
            sent = await producer.send_outgoing(outgoing, None, None, None)
            assert (await desk.end(sent, COMMIT)).code == ResponseCode.SUCCESS
            mq.advance(8)
            assert await desk.bodies() == []
            mq.advance(4)
            await desk.wait_for(b"open")

    with cluster() as mq:
        run(scenario)


async def timed_half(producer: TransactionProducer, at_ms: int) -> SendResult:
    """Begin a transaction whose message is to come at that time."""
    added = {
        properties.TRANSACTION_PREPARED: "true",
        properties.PRODUCER_GROUP: "ledger",
        properties.TIMER_DELIVER_MS: str(at_ms),
    }
    outgoing = producer.outbox.message(Message(TOPIC, b"open", keys="open", properties={}), added)
    await producer.queues(TOPIC)
    return await producer.send_outgoing(outgoing, None, None, None)


def test_a_commit_is_not_refused_because_the_second_of_its_message_is_full_meanwhile() -> None:
    ledger = Ledger(open=[UNKNOWN])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            at_ms = mq.clock.now_ms() // 1000 * 1000 + 60_500
            sent = await timed_half(producer, at_ms)
            for number in range(2):
                await producer.send(Message(TOPIC, b"%d" % number, deliver_at_ms=at_ms))
                mq.advance_ms(100)
            with pytest.raises(SendFailedError, match="timerCongestNumEachSlot"):
                await producer.send(Message(TOPIC, b"refused", deliver_at_ms=at_ms))
            assert (await desk.end(sent, COMMIT)).code == ResponseCode.SUCCESS
            mq.advance(59)
            assert await desk.bodies() == []
            mq.advance(2)
            assert await desk.bodies() == [b"0", b"1", b"open"]

    with cluster(timerCongestNumEachSlot="1") as mq:
        run(scenario)


def test_a_broker_that_rejects_transactions_says_so() -> None:
    ledger = Ledger(open=[COMMIT])

    async def scenario() -> None:
        async with ledger.producer(mq) as producer:
            with pytest.raises(SendFailedError, match="sending transaction message is forbidden"):
                await producer.send_in_transaction(order("open"))

    with cluster(rejectTransactionMessage="true") as mq:
        run(scenario)


def test_many_open_transactions_are_all_asked_about_in_one_round() -> None:
    keys = [f"order{number}" for number in range(500)]
    ledger = Ledger(**{key: [UNKNOWN, COMMIT] for key in keys})

    async def scenario() -> None:
        async with ledger.producer(mq) as producer, Desk(mq) as desk:
            await asyncio.gather(*(producer.send_in_transaction(order(key)) for key in keys))
            mq.advance(INTERVAL_S + 10)

            async def all_came() -> bool:
                return len(await desk.bodies()) >= len(keys)

            await until(all_came)
            assert sorted(ledger.asked) == sorted(keys)
            assert sorted(await desk.bodies()) == sorted(key.encode() for key in keys)

    with cluster() as mq:
        run(scenario)
