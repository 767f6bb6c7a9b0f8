"""Listener calls: what becomes of a message and of the caller, whatever the listener does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from orbitmq.client.consumer.listeners import Job, Listener, listener_runner
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.queue_reader import QueueReader
from orbitmq.client.messages import ReceivedMessage
from orbitmq.common.errors import InvalidStateError
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import MessageQueue
from support.common.waiting import until

QUEUE = MessageQueue("T", "broker-a", 0)


def message(offset: int) -> ReceivedMessage:
    hosts = b"\x7f\x00\x00\x01" + bytes(4)
    stored = StoredMessage(
        "T", 0, offset, offset * 100, 0, 0, 0, hosts, 0, hosts, 0, 0, b"body", 0, b"", 100
    )
    return ReceivedMessage(QUEUE, "T", b"body", stored)


class Reader:
    """A reader whose queue is never revoked."""

    is_dropped = False


class Room:
    """A listener called with some messages, and the outcome of each."""

    def __init__(self, listener: Listener, concurrency: int = 2) -> None:
        self.outcomes: dict[int, BaseException | None] = {}
        self.listener_runner = listener_runner(listener, concurrency, self._settled)

    def _settled(
        self, job: Job, problem: BaseException | None, began_s: float, ended_s: float
    ) -> None:
        assert began_s <= ended_s
        self.outcomes[job[2].queue_offset] = problem

    async def consume(self, count: int) -> dict[int, BaseException | None]:
        """Return the outcomes once all messages are settled."""
        reader, cache = cast("QueueReader", Reader()), ProcessQueue()
        self.listener_runner.submit([(reader, cache, message(offset)) for offset in range(count)])
        await until(lambda: len(self.outcomes) >= count)
        return self.outcomes


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(cast("Any", scenario()))


class Unusual(BaseException):
    """An exception that does not derive from Exception, like those of test frameworks."""


def in_thread(of: Callable[[], object]) -> Listener:
    return lambda _: of()


def on_the_loop(of: Callable[[], object]) -> Listener:
    async def listen(_: ReceivedMessage) -> None:
        of()

    return listen


def to_be_awaited(of: Callable[[], object]) -> Listener:
    async def handle() -> None:
        await asyncio.sleep(0)
        of()

    return lambda _: handle()


def raising(problem: BaseException) -> Callable[[], object]:
    def call() -> None:
        raise problem

    return call


@pytest.mark.parametrize("kind", [in_thread, on_the_loop, to_be_awaited])
@pytest.mark.parametrize(
    "problem",
    [ValueError("no"), asyncio.CancelledError(), SystemExit(3), Unusual(), StopIteration()],
)
def test_whatever_a_listener_raises_its_messages_failed_and_the_others_are_handed_out(
    kind: Callable[[Callable[[], object]], Listener], problem: BaseException
) -> None:
    async def scenario() -> None:
        room = Room(kind(raising(problem)))
        outcomes = await room.consume(30)
        kept = (
            RuntimeError
            if isinstance(problem, StopIteration) and kind is not in_thread
            else type(problem)
        )
        assert {type(each) for each in outcomes.values()} == {kept}
        assert type(await room.listener_runner.call(message(0))) is kept
        in_order = await room.listener_runner.in_order([message(0), message(1)], lambda: True)
        assert (in_order.taken, type(in_order.problem)) == (0, kept)
        assert not room.listener_runner.is_busy
        room.listener_runner.close()

    run(scenario)


def test_a_listener_that_cancels_its_own_task_fails_and_does_not_take_the_others_with_it() -> None:
    async def scenario() -> None:
        async def listen(received: ReceivedMessage) -> None:
            if received.queue_offset == 5:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)

        room = Room(listen)
        outcomes = await room.consume(20)
        assert [offset for offset, problem in outcomes.items() if problem is not None] == [5]
        room.listener_runner.close()

    run(scenario)


def test_closing_cancels_listeners_on_the_loop_and_tells_of_nothing() -> None:
    async def scenario() -> None:
        ended: list[str] = []

        async def listen(_: ReceivedMessage) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("cancelled")

        room = Room(listen)
        reader = cast("QueueReader", Reader())
        room.listener_runner.submit([(reader, ProcessQueue(), message(0))])
        await until(lambda: room.listener_runner.is_busy)
        room.listener_runner.close()
        await until(lambda: not room.listener_runner.is_busy)
        assert (ended, room.outcomes) == (["cancelled"], {})

    run(scenario)


def test_what_a_plain_function_returns_to_be_awaited_is_awaited_on_the_loop_before_the_message_counts_as_taken() -> (
    None
):
    async def scenario() -> None:
        loop, handled = asyncio.get_running_loop(), 0

        async def handle(room: Room, received: ReceivedMessage) -> None:
            nonlocal handled
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0.001)
            assert received.queue_offset not in room.outcomes
            handled += 1

        room: Room = Room(lambda received: handle(room, received))
        assert set((await room.consume(20)).values()) == {None}
        assert await room.listener_runner.call(message(100)) is None
        assert (
            await room.listener_runner.in_order([message(101), message(102)], lambda: True)
        ).taken == 2
        assert handled == 23
        room.listener_runner.close()

    run(scenario)


def test_closing_ends_what_the_loop_awaits_for_a_plain_function() -> None:
    async def scenario() -> None:
        room = Room(lambda _: asyncio.sleep(60))
        room.listener_runner.submit([(cast("QueueReader", Reader()), ProcessQueue(), message(0))])
        await until(lambda: room.listener_runner.is_busy)
        room.listener_runner.close()
        await until(lambda: not room.listener_runner.is_busy)

    run(scenario)


async def yields(_: ReceivedMessage) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("listener", "why"), [(5, "is not callable"), (None, "is not callable"), (yields, "generator")]
)
def test_what_would_do_nothing_with_a_message_is_refused(listener: Any, why: str) -> None:
    with pytest.raises(InvalidStateError, match=why):
        listener_runner(listener, 1, lambda *_: None)


def test_a_process_ends_although_a_plain_listener_blocks() -> None:
    program = """
        import asyncio, time
        from types import SimpleNamespace
        from orbitmq.client.consumer.listeners import listener_runner

        async def main():
            begun = asyncio.Event()
            loop = asyncio.get_running_loop()

            def block(message):
                loop.call_soon_threadsafe(begun.set)
                time.sleep(600)

            called = listener_runner(block, 2, print)
            called.submit([(SimpleNamespace(is_dropped=False), None, None)])
            in_order = asyncio.create_task(called.in_order([None], lambda: True))
            await begun.wait()
            in_order.cancel()
            called.close()

        asyncio.run(main())
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
