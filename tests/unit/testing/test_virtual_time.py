"""The virtual-time loop: everything scheduled on it happens in virtual time, in order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from orbitmq.testing.manual_clock import ManualClock
from orbitmq.testing.virtual_time import STRIDE_MS_MAX, VirtualTimeLoop

HOUR_MS = 3_600_000


def run(
    scenario: Callable[[VirtualTimeLoop, ManualClock], Awaitable[None]],
    moved: Callable[[], object] = lambda: None,
) -> None:
    clock = ManualClock()
    loop = VirtualTimeLoop(clock, moved)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(_awaited(scenario(loop, clock)))


async def _awaited(work: Awaitable[None]) -> None:
    await work


def test_timers_of_different_kinds_go_off_in_their_order_each_at_its_time() -> None:
    async def scenario(loop: VirtualTimeLoop, clock: ManualClock) -> None:
        happened: list[tuple[str, int]] = []

        async def sleeper() -> None:
            for _ in range(3):
                await asyncio.sleep(0.3)
                happened.append(("slept", clock.monotonic_ms()))

        async def waiter() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.75):
                    await asyncio.Event().wait()
            happened.append(("gave up", clock.monotonic_ms()))

        tasks = [asyncio.create_task(sleeper()), asyncio.create_task(waiter())]
        loop.call_later(0.5, lambda: happened.append(("called", clock.monotonic_ms())))
        await loop.advance(900)
        assert happened == [
            ("slept", 300),
            ("called", 500),
            ("slept", 600),
            ("gave up", 750),
            ("slept", 900),
        ]
        await asyncio.gather(*tasks)

    run(scenario)


def test_time_stands_still_between_advances_and_a_timer_one_millisecond_away_waits() -> None:
    async def scenario(loop: VirtualTimeLoop, clock: ManualClock) -> None:
        fired = asyncio.Event()
        loop.call_later(1.0, fired.set)
        await loop.advance(999)
        assert (fired.is_set(), clock.monotonic_ms()) == (False, 999)
        await loop.advance(1)
        assert fired.is_set()

    run(scenario)


def test_a_long_way_is_gone_in_few_steps_and_no_step_is_too_long() -> None:
    moves: list[int] = []

    async def scenario(loop: VirtualTimeLoop, clock: ManualClock) -> None:
        async def chore() -> None:
            while True:
                await asyncio.sleep(0.1)
                moves.append(clock.monotonic_ms())

        task = asyncio.create_task(chore())
        late: list[int] = []
        loop.call_later(1800, lambda: late.append(clock.monotonic_ms() - 1_800_000))
        await loop.advance(HOUR_MS)
        assert clock.monotonic_ms() == HOUR_MS
        assert len(moves) <= 1_001
        assert 0 <= late[0] <= HOUR_MS // 1000
        moves.clear()
        await loop.advance(240 * HOUR_MS)
        assert max(after - before for before, after in pairwise(moves)) <= STRIDE_MS_MAX
        task.cancel()

    run(scenario)


def test_what_sockets_bring_is_served_before_time_moves_on() -> None:
    async def scenario(loop: VirtualTimeLoop, clock: ManualClock) -> None:
        left, right = socket.socketpair()
        left.setblocking(False)
        right.setblocking(False)
        heard: list[tuple[bytes, int]] = []

        async def listen() -> None:
            while len(heard) < 2:
                heard.append((await loop.sock_recv(right, 100), clock.monotonic_ms()))

        task = asyncio.create_task(listen())
        loop.call_later(1, left.send, b"one")
        loop.call_later(2, left.send, b"two")
        await loop.advance(5_000)
        await task
        assert heard == [(b"one", 1_000), (b"two", 2_000)]
        left.close()
        right.close()

    run(scenario)


def test_who_wants_to_hear_of_every_move_hears_of_it_before_what_is_due() -> None:
    order: list[str] = []

    async def scenario(loop: VirtualTimeLoop, clock: ManualClock) -> None:
        loop.call_later(1, lambda: order.append("due"))
        await loop.advance(1_500)
        assert order == ["moved", "due", "moved"]

    run(scenario, moved=lambda: order.append("moved"))


def test_time_does_not_pass_backwards_nor_twice_at_once() -> None:
    async def scenario(loop: VirtualTimeLoop, clock: ManualClock) -> None:
        with pytest.raises(ValueError, match="backwards"):
            await loop.advance(-1)
        first = asyncio.create_task(loop.advance(10))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already being advanced"):
            await loop.advance(10)
        await first
        await loop.advance(0)
        assert clock.monotonic_ms() == 10

    run(scenario)
