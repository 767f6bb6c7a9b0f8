"""Half messages that are sent again to a broker with `dedupWindowMs`: there is one, which ends
once; after a rollback there is another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from orbitmq import ClientSettings, Producer, SendResult
from orbitmq.client.producer.outbox import OutgoingMessage
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.protocol.codes import ResponseCode
from orbitmq.testing import LocalCluster
from support.broker.transactions import (
    COMMIT,
    GIVEN_UP,
    GROUP,
    HALF,
    ROLLBACK,
    TOPIC,
    Desk,
    Ledger,
    order,
    run,
)

WINDOW_S = 600
SETTINGS = {
    "dedupWindowMs": str(WINDOW_S * 1000),
    "flushDiskType": "SYNC_FLUSH",
    "transactionCheckMax": "1",
}
INTERVAL_S = 30
UNCHANGED, STOPPED, KILLED = "goes on", "is restarted", "is killed"
whatever_happens = pytest.mark.parametrize("fate", [UNCHANGED, STOPPED, KILLED])
Scenario = Callable[[LocalCluster, Producer, Desk], Awaitable[None]]


def in_cluster(scenario: Scenario) -> None:
    async def main() -> None:
        settings = ClientSettings(name_servers=mq.name_server, timeout_ms=20_000)
        async with Producer(settings, group=GROUP) as producer, Desk(mq) as desk:
            await scenario(mq, producer, desk)

    with LocalCluster(virtual_clock=True, topics={TOPIC: 1}, broker=SETTINGS) as mq:
        run(main)


def half(producer: Producer) -> OutgoingMessage:
    """A half message as it is put on the wire, as often as it is sent."""
    added = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: GROUP}
    return producer.outbox.message(order("open"), added, TransactionType.PREPARED)


def place(sent: SendResult) -> tuple[str, int, str | None]:
    return sent.offset_msg_id, sent.queue_offset, sent.transaction_id


async def happens(mq: LocalCluster, fate: str) -> None:
    if fate == KILLED:
        await asyncio.to_thread(mq.kill)
    if fate != UNCHANGED:
        await asyncio.to_thread(mq.restart)


@whatever_happens
def test_a_half_message_that_is_sent_again_is_the_first_one_and_ends_once(fate: str) -> None:
    async def scenario(mq: LocalCluster, producer: Producer, desk: Desk) -> None:
        message = half(producer)
        first = await producer.send_outgoing(message)
        await happens(mq, fate)
        again = await producer.send_outgoing(message)
        assert place(again) == place(first)
        assert await desk.bodies(HALF) == [b"open"]
        assert (await desk.end(again, COMMIT)).code == ResponseCode.SUCCESS
        await desk.wait_for(b"open")

    in_cluster(scenario)


@whatever_happens
def test_one_that_was_asked_about_meanwhile_is_still_the_first(fate: str) -> None:
    async def scenario(mq: LocalCluster, producer: Producer, desk: Desk) -> None:
        message = half(producer)
        first = await producer.send_outgoing(message)
        async with Ledger(open=[]).producer(mq):  # whose answer fails
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"open", b"open", topic=HALF)  # and its copy, of the question
        await happens(mq, fate)
        again = await producer.send_outgoing(message)
        assert place(again) == place(first)
        assert (await desk.end(again, COMMIT)).code == ResponseCode.SUCCESS
        await desk.wait_for(b"open")
        assert place(await producer.send_outgoing(message)) == place(first)
        assert (await desk.end(again, COMMIT)).code == ResponseCode.TRANSACTION_FAILED
        assert await desk.bodies() == [b"open"]

    in_cluster(scenario)


@whatever_happens
def test_what_is_sent_again_after_it_was_rolled_back_is_another_whose_end_counts(fate: str) -> None:
    async def scenario(mq: LocalCluster, producer: Producer, desk: Desk) -> None:
        message = half(producer)
        first = await producer.send_outgoing(message)
        assert (await desk.end(first, ROLLBACK)).code == ResponseCode.SUCCESS
        await happens(mq, fate)
        second = await producer.send_outgoing(message)
        assert place(second) != place(first)
        await happens(mq, fate)
        assert place(await producer.send_outgoing(message)) == place(second)
        assert (await desk.end(first, COMMIT)).code == ResponseCode.TRANSACTION_FAILED
        assert (await desk.end(second, COMMIT)).code == ResponseCode.SUCCESS
        await desk.wait_for(b"open")
        await happens(mq, fate)
        assert place(await producer.send_outgoing(message)) == place(second)
        assert await desk.bodies() == [b"open"]

    in_cluster(scenario)


@whatever_happens
def test_what_is_sent_again_after_it_was_given_up_is_the_first_and_may_still_end(fate: str) -> None:
    async def scenario(mq: LocalCluster, producer: Producer, desk: Desk) -> None:
        message = half(producer)
        first = await producer.send_outgoing(message)
        async with Ledger(open=[]).producer(mq):
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"open", b"open", topic=HALF)
            mq.advance(INTERVAL_S + 1)
            await desk.wait_for(b"open", topic=GIVEN_UP)
        await happens(mq, fate)
        again = await producer.send_outgoing(message)
        assert place(again) == place(first)
        assert (await desk.end(again, COMMIT)).code == ResponseCode.SUCCESS
        await desk.wait_for(b"open")

    in_cluster(scenario)
