"""Work in slices: one slice per loop iteration, round robin, requests of a connection in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from orbitmq.common.clock import SystemClock
from orbitmq.common.errors import RequestRefusedError
from orbitmq.common.slices import Slices, finish, slices_of, to_be_finished
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import ByteLink, Channel
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.remoting.lanes import Reply
from orbitmq.remoting.server import ServerConfig
from orbitmq.remoting.slices import SliceQueue
from support.common.waiting import until
from support.remoting.peers import ECHO, connected, echo, request, run, serving

SLICED, FAILING, STALLED, FINISHED, LARGE = 3001, 3002, 3003, 3004, 3005


def counting(seen: list[str], name: str, slices: int) -> Slices[None]:
    for number in range(slices):
        seen.append(f"{name}{number}")
        yield
    seen.append(f"{name}.")


def test_items_are_cut_into_lists_of_a_size() -> None:
    assert list(slices_of(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(slices_of([], 3)) == []


def test_work_that_is_finished_at_once_gives_its_result() -> None:
    def work() -> Slices[int]:
        yield
        return 5

    assert finish(work()) == 5


def test_short_work_is_done_at_once_and_needs_no_loop() -> None:
    def work() -> Slices[None]:
        return
        yield

    assert SliceQueue().start(work())


def test_pieces_of_work_take_turns_one_slice_per_iteration() -> None:
    async def scenario() -> None:
        seen: list[str] = []
        ended: list[str] = []
        queue = SliceQueue(share_ns=0)
        assert not queue.start(counting(seen, "a", 3), lambda: ended.append("a"))
        assert not queue.start(counting(seen, "b", 1), lambda: ended.append("b"))
        assert seen == ["a0"], "the second piece waits: the first used up this iteration"
        for expected in ("a1", "b0", "a2", "b.", "a."):
            await asyncio.sleep(0)
            assert seen[-1] == expected
        assert (ended, len(queue)) == (["b", "a"], 0)

    asyncio.run(scenario())


def test_short_slices_share_an_iteration_up_to_a_time() -> None:
    async def scenario() -> None:
        seen: list[str] = []
        queue = SliceQueue(share_ns=60_000_000_000)
        for number in range(1_000):
            queue.add(counting(seen, f"{number}:", 1))
        await asyncio.sleep(0)
        assert (len(seen), len(queue)) == (2_000, 0)

    asyncio.run(scenario())


def test_work_that_fails_ends_alone() -> None:
    def failing() -> Slices[None]:
        yield
        raise ValueError("on purpose")

    async def scenario() -> None:
        seen: list[str] = []
        queue = SliceQueue()
        queue.start(failing())
        queue.start(counting(seen, "a", 1))
        await until(lambda: not len(queue))
        assert seen == ["a0", "a."]

    asyncio.run(scenario())


def test_cancelled_and_closed_work_runs_no_more() -> None:
    async def scenario() -> None:
        seen: list[str] = []
        queue = SliceQueue(share_ns=0)
        cancelled, closed = counting(seen, "a", 9), counting(seen, "b", 9)
        queue.start(cancelled)
        queue.start(closed)
        queue.cancel(cancelled)
        await asyncio.sleep(0)
        assert seen == ["a0", "b0"]
        queue.close()
        await asyncio.sleep(0)
        assert (seen, len(queue)) == (["a0", "b0"], 0)

    asyncio.run(scenario())


class Room:
    """Handlers in slices, and a record of their work."""

    def __init__(self, bytes_in_flight_max: int = 1 << 20) -> None:
        self.seen: list[tuple[str, int]] = []
        self.may_end = asyncio.Event()
        self.dispatcher = RequestDispatcher(SystemClock(), bytes_in_flight_max=bytes_in_flight_max)
        self.dispatcher.register(SLICED, self.sliced)
        self.dispatcher.register(FAILING, self.failing)
        self.dispatcher.register(STALLED, self.stalled)
        self.dispatcher.register(FINISHED, self.finished)
        self.dispatcher.register(LARGE, self.large)
        self.dispatcher.register(ECHO, echo)

    def large(self, _channel: Channel, question: RemotingCommand) -> Reply:
        self.seen.append(("large", question.opaque))
        return question.reply(0, body=bytes(1 << 20))

    @to_be_finished
    def finished(self, _channel: Channel, question: RemotingCommand) -> Slices[Reply]:
        yield from self.stalled(_channel, question)
        self.seen.append(("finished", question.opaque))
        return question.reply(0)

    def sliced(self, _channel: Channel, question: RemotingCommand) -> Slices[Reply]:
        for number in range(int((question.ext_fields or {}).get("slices", "3"))):
            self.seen.append(("slice", number))
            yield
        return question.reply(0, body=b"sliced")

    def failing(self, _channel: Channel, _question: RemotingCommand) -> Slices[Reply]:
        yield
        raise RequestRefusedError(17, "on purpose")

    def stalled(self, _channel: Channel, question: RemotingCommand) -> Slices[Reply]:
        try:
            while not self.may_end.is_set():
                yield
        finally:
            self.seen.append(("stalled", question.opaque))
        return question.reply(0)


def in_room(scenario: Callable[[Room], object], **options: int) -> None:
    async def play() -> None:
        await scenario(Room(**options))  # type: ignore[misc]

    run(play)


def test_requests_behind_one_in_slices_are_answered_after_it_in_order() -> None:
    async def scenario(room: Room) -> None:
        async with serving(dispatcher=room.dispatcher) as server, connected(server) as peer:
            peer.write(
                request(STALLED, 1)
                + request(ECHO, 2)
                + request(FAILING, 3)
                + request(SLICED, 4)
                + request(ECHO, 5)
            )
            await until(lambda: room.dispatcher.in_flight == 5)
            async with connected(server) as other:
                assert (await other.ask(request(ECHO, 9))).opaque == 9, (
                    "another connection does not wait"
                )
            room.may_end.set()
            got = [await peer.receive() for _ in range(5)]
            assert [answer.opaque for answer in got] == [1, 2, 3, 4, 5]
            assert (got[2].code, got[2].remark, got[3].body) == (17, "on purpose", b"sliced")
            assert (room.dispatcher.in_flight, room.dispatcher.bytes_in_flight) == (0, 0)

    in_room(scenario)


def test_a_connection_that_ends_takes_its_work_and_what_is_behind_it_along() -> None:
    async def scenario(room: Room) -> None:
        async with serving(dispatcher=room.dispatcher) as server:
            async with connected(server) as peer:
                peer.write(request(STALLED, 1) + request(STALLED, 2))
                await until(lambda: room.dispatcher.in_flight == 2)
            await until(lambda: room.dispatcher.in_flight == 0)
            assert room.seen == [("stalled", 1)], "the first was closed, the second never began"
            assert room.dispatcher.bytes_in_flight == 0

    in_room(scenario)


def test_what_comes_behind_is_refused_when_too_much_is_held() -> None:
    async def scenario(room: Room) -> None:
        async with serving(dispatcher=room.dispatcher) as server, connected(server) as peer:
            peer.write(request(STALLED, 1))
            await until(lambda: room.dispatcher.in_flight == 1)
            peer.write(request(ECHO, 2, body=bytes(11)))
            busy = await peer.receive()
            assert (busy.opaque, busy.code) == (2, 2)
            assert "maxRequestBytesInFlight" in (busy.remark or "")
            room.may_end.set()
            assert (await peer.receive()).opaque == 1

    in_room(scenario, bytes_in_flight_max=10)


def test_a_server_that_stops_drops_work_in_slices() -> None:
    async def scenario(room: Room) -> None:
        async with serving(dispatcher=room.dispatcher) as server, connected(server) as peer:
            peer.write(request(STALLED, 1))
            await until(lambda: room.dispatcher.in_flight == 1)
            await room.dispatcher.close()
            assert (room.seen, room.dispatcher.in_flight) == ([("stalled", 1)], 0)

    in_room(scenario)


def test_work_that_is_to_be_finished_goes_on_without_its_connection() -> None:
    async def scenario(room: Room) -> None:
        async with serving(dispatcher=room.dispatcher) as server:
            async with connected(server) as peer:
                peer.write(request(FINISHED, 1) + request(FINISHED, 2))
                await until(lambda: room.dispatcher.in_flight == 2)
            await until(lambda: room.dispatcher.in_flight == 1)
            room.may_end.set()
            await until(lambda: room.dispatcher.in_flight == 0)
            assert room.seen == [("stalled", 1), ("finished", 1)], "the second had not begun"
            assert room.dispatcher.bytes_in_flight == 0

    in_room(scenario)


def test_requests_behind_one_in_slices_wait_while_the_peer_does_not_take_its_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(room: Room) -> None:
        async with (
            serving(ServerConfig(unsent_bytes_max=1 << 20), dispatcher=room.dispatcher) as server,
            connected(server) as peer,
        ):
            peer.write(
                request(STALLED, 1) + b"".join(request(LARGE, number) for number in range(2, 52))
            )
            await until(lambda: room.dispatcher.in_flight == 51)
            room.may_end.set()
            await until(lambda: len(room.seen) > 1)
            checks: list[object] = []
            go_on = room.dispatcher._go_on

            def checked(busy: Any) -> None:
                checks.append(busy)
                go_on(busy)

            monkeypatch.setattr(room.dispatcher, "_go_on", checked)
            await until(lambda: len(checks) > 2, "several checks of the peer")
            assert len(room.seen) < 40, "most of them wait"
            got = [(await peer.receive()).opaque for _ in range(51)]
            assert got == list(range(1, 52))
            assert (room.dispatcher.in_flight, room.dispatcher.bytes_in_flight) == (0, 0)

    in_room(scenario)


def test_so_many_requests_in_slices_are_begun_at_a_time_and_fewer_large_ones() -> None:
    async def scenario(room: Room) -> None:
        async with serving(dispatcher=room.dispatcher) as server, AsyncExitStack() as peers:
            large = [await peers.enter_async_context(connected(server)) for _ in range(20)]
            for peer in large:
                peer.write(request(STALLED, 1, body=bytes(70_000)))
            await until(lambda: room.dispatcher.in_flight == 20)
            assert len(room.dispatcher._slices) == 16
            small = await peers.enter_async_context(connected(server))
            assert (await small.ask(request(SLICED, 9, slices="0"))).opaque == 9, (
                "a small one does not wait for the large"
            )
            large[19].writer.close()
            await until(lambda: room.dispatcher.in_flight == 19)
            room.may_end.set()
            for peer in large[:19]:
                assert (await peer.receive()).code == 0
            assert (room.dispatcher.in_flight, room.dispatcher.bytes_in_flight) == (0, 0)

    in_room(scenario, bytes_in_flight_max=1 << 22)


class Greedy:
    """A fast path that handles every frame, and sends no replies."""

    def __init__(self) -> None:
        self.taken = 0

    def try_handle(self, link: ByteLink, buffer: bytearray, start: int, end: int) -> int:
        if (
            end - start > 4
            and int.from_bytes(buffer[start : start + 4]) + 4 <= end - start
            and b"3003" not in buffer[start:end]
        ):
            self.taken += 1
            return end
        return start

    def end_of_iteration(self) -> None: ...

    def before_send(self) -> None: ...


def test_a_taker_gets_no_request_that_came_behind_one_in_slices() -> None:
    async def scenario(room: Room) -> None:
        async with serving(dispatcher=room.dispatcher) as server, connected(server) as peer:
            fast_path = server.endpoint.fast_path = Greedy()
            peer.write(request(STALLED, 1))
            await until(lambda: room.dispatcher.in_flight == 1)
            peer.write(request(ECHO, 2))
            await until(lambda: room.dispatcher.in_flight == 2)
            room.may_end.set()
            assert [(await peer.receive()).opaque for _ in range(2)] == [1, 2]
            assert fast_path.taken == 0
            peer.write(request(ECHO, 3))
            await until(lambda: fast_path.taken == 1)

    in_room(scenario)
