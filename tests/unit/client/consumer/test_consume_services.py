"""Orderly consumption: whatever fails, no message is lost and none overtakes another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from orbitmq.client.consumer.consume_services import ConsumeRules, OrderlyConsumeService
from orbitmq.client.consumer.listeners import Listener
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.queue_reader import QueueReader
from orbitmq.client.consumer.send_back import RetrySender
from orbitmq.client.messages import ReceivedMessage
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import MessageQueue
from support.common.waiting import until

QUEUE = MessageQueue("T", "broker-a", 0)
RULES = ConsumeRules(
    group="g", concurrency=2, max_attempts=0, pause_s=0.001, timeout_s=60, drop_failed=False
)


def message(offset: int) -> ReceivedMessage:
    hosts = b"\x7f\x00\x00\x01" + bytes(4)
    stored = StoredMessage(
        "T", 0, offset, offset * 100, 0, 0, 0, hosts, 0, hosts, 0, 0, b"body", 0, b"", 100
    )
    return ReceivedMessage(QUEUE, "T", b"body", stored)


class Reader:
    """A reader of a queue with a given number of messages."""

    queue = QUEUE
    is_dropped = False
    last_finished_s: float | None = None

    def __init__(self, count: int) -> None:
        self.cache = ProcessQueue()
        self.cache.put([message(offset) for offset in range(count)], count)


class Failing:
    """Accepts a message at the second attempt; the first one raises an unexpected error."""

    def __init__(self) -> None:
        self.tries: list[int] = []

    async def to_retry_topic(self, given_up: ReceivedMessage) -> bool:
        self.tries.append(given_up.queue_offset)
        if len(self.tries) == 1:
            raise RuntimeError("not foreseen")
        return True


async def consumed(listener: Listener, reader: Reader, send_back: Failing) -> None:
    """Return when all messages of a queue are finished."""
    consuming = OrderlyConsumeService(
        listener, RULES, cast("RetrySender", send_back), lambda _: True
    )
    consuming.arrived(cast("QueueReader", reader))
    await until(lambda: not len(reader.cache))
    await consuming.pause()
    consuming.close()


def test_a_run_comes_again_in_its_order_when_giving_a_message_up_fails_unexpectedly() -> None:
    seen: list[int] = []
    send_back = Failing()

    def listen(received: ReceivedMessage) -> None:
        seen.append(received.queue_offset)
        if received.queue_offset == 3:
            raise ValueError("on purpose")

    asyncio.run(consumed(listen, Reader(100), send_back))
    assert seen == [0, 1, 2, 3, 3, *range(4, 100)]
    assert send_back.tries == [3, 3]


def cancel_a_task_of_its_own() -> asyncio.Task[None]:
    task = asyncio.create_task(asyncio.sleep(10))
    task.cancel()
    return task


def cancel_itself() -> asyncio.Task[None]:
    task = cast("asyncio.Task[None]", asyncio.current_task())
    task.cancel()
    return asyncio.create_task(asyncio.sleep(10))


@pytest.mark.parametrize("cancel", [cancel_a_task_of_its_own, cancel_itself])
def test_a_listener_that_ends_as_cancelled_gets_its_message_again_before_the_next_one(
    cancel: Callable[[], asyncio.Task[None]],
) -> None:
    seen: list[int] = []

    async def listen(received: ReceivedMessage) -> None:
        seen.append(received.queue_offset)
        if received.queue_offset == 5 and seen.count(5) == 1:
            await cancel()

    send_back = Failing()
    send_back.tries.append(-1)  # the next attempt succeeds
    asyncio.run(consumed(listen, Reader(50), send_back))
    assert sorted(set(seen)) == list(range(50))
    after = seen[seen.index(5) + 1 :]
    assert after[-44:] == list(range(6, 50))
