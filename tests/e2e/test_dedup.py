"""A broker with `dedupWindowMs`: what a producer sends again is stored once, also over crashes;
without, nothing is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from orbitmq import ClientSettings, Message, Producer, PullConsumer
from orbitmq.client.producer.outbox import OutgoingMessage
from orbitmq.testing import LocalCluster
from support.common.waiting import until

WINDOW_S = 60
ON = {"dedupWindowMs": str(WINDOW_S * 1000)}
SAFE = {"flushDiskType": "SYNC_FLUSH"}


def run(scenario: Callable[[LocalCluster, Producer], Awaitable[None]], **broker: str) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(60),
            LocalCluster(virtual_clock=True, topics={"T": 4}, broker=broker) as mq,
            Producer(ClientSettings(name_servers=mq.name_server, timeout_ms=20_000)) as producer,
        ):
            await scenario(mq, producer)

    asyncio.run(main())


async def stored(mq: LocalCluster, topic: str = "T") -> list[bytes]:
    """The bodies of all messages, in no order."""
    found = []
    async with PullConsumer(
        ClientSettings(name_servers=mq.name_server, timeout_ms=20_000, instance_name="reader"),
        "readers",
    ) as reader:
        for queue in await reader.queues(topic):
            if await reader.max_offset(queue):
                found += [message.body for message in (await reader.pull(queue, 0)).messages]
    return sorted(found)


def outgoing(producer: Producer, **message: object) -> OutgoingMessage:
    """One message as it is put on the wire, as often as it is sent."""
    return producer.outbox.message(Message("T", b"once", **message))  # type: ignore[arg-type]


def test_a_message_that_is_sent_again_is_stored_once_and_answered_as_the_first_time() -> None:
    async def scenario(mq: LocalCluster, producer: Producer) -> None:
        message = outgoing(producer)
        results = [await producer.send_outgoing(message) for _ in range(5)]  # each to another queue
        assert len({(result.offset_msg_id, result.queue_offset) for result in results}) == 1
        assert await stored(mq) == [b"once"]
        await producer.send(Message("T", b"another"))
        assert await stored(mq) == [b"another", b"once"]

    run(scenario, **ON)


@pytest.mark.parametrize("dies", [False, True])
def test_a_broker_that_comes_back_still_knows_what_it_has(dies: bool) -> None:
    async def scenario(mq: LocalCluster, producer: Producer) -> None:
        message, other = outgoing(producer), outgoing(producer)
        first = await producer.send_outgoing(message)
        if dies:
            await asyncio.to_thread(mq.kill)
        await asyncio.to_thread(mq.restart)
        assert (await producer.send_outgoing(message)).offset_msg_id == first.offset_msg_id
        assert (await producer.send_outgoing(other)).offset_msg_id != first.offset_msg_id
        assert await stored(mq) == [b"once"] * 2

    run(scenario, **ON, **SAFE)


def test_the_window_ends() -> None:
    async def scenario(mq: LocalCluster, producer: Producer) -> None:
        message = outgoing(producer)
        for seconds in (0, WINDOW_S - 1, 2):
            await asyncio.to_thread(mq.advance, seconds)
            await producer.send_outgoing(message)
        assert await stored(mq) == [b"once"] * 2

    run(scenario, **ON)


def test_what_waits_for_its_time_is_known_too_and_its_handle_is_the_first_one() -> None:
    async def scenario(mq: LocalCluster, producer: Producer) -> None:
        level, timed = outgoing(producer, delay_level=3), outgoing(producer, delay_ms=20_000)
        first = await producer.send_outgoing(level)
        handle = (await producer.send_outgoing(timed)).recall_handle
        assert handle is not None
        await asyncio.to_thread(mq.advance, 5)
        assert (await producer.send_outgoing(level)).offset_msg_id == first.offset_msg_id
        assert (await producer.send_outgoing(timed)).recall_handle == handle
        await asyncio.to_thread(mq.restart)
        assert (await producer.send_outgoing(timed)).recall_handle == handle
        await asyncio.to_thread(mq.advance, 30)

        async def both_came() -> bool:
            await asyncio.to_thread(mq.advance, 1)
            return len(await stored(mq)) >= 2

        await until(both_came)
        assert await stored(mq) == [b"once"] * 2

    run(scenario, **ON, **SAFE)


def test_a_batch_that_is_sent_again_is_stored_once() -> None:
    async def scenario(mq: LocalCluster, producer: Producer) -> None:
        (batch,) = producer.outbox.batches([Message("T", b"%d" % number) for number in range(3)])
        first, again = [await producer.send_outgoing(batch) for _ in range(2)]
        assert first.offset_msg_id == again.offset_msg_id
        assert await stored(mq) == [b"0", b"1", b"2"]

    run(scenario, **ON)


def test_a_message_of_another_topic_is_another_one() -> None:
    async def scenario(mq: LocalCluster, producer: Producer) -> None:
        await asyncio.to_thread(mq.create_topic, "U", 1)
        message = outgoing(producer)
        for topic in ("T", "U", "T", "U"):
            await producer.send_outgoing(message._replace(topic=topic))
        assert [await stored(mq, topic) for topic in ("T", "U")] == [[b"once"], [b"once"]]

    run(scenario, **ON)


def test_without_a_window_every_send_is_stored() -> None:
    async def scenario(mq: LocalCluster, producer: Producer) -> None:
        message = outgoing(producer)
        for _ in range(3):
            await producer.send_outgoing(message)
        assert await stored(mq) == [b"once"] * 3

    run(scenario)
