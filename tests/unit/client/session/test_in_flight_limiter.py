"""The in-flight limiter: first come, first served, and no slot is lost."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.client.session.in_flight_limiter import InFlightLimiter


async def take(room: InFlightLimiter, timeout_ms: int = 10_000) -> None:
    if room.free > 0:
        room.free -= 1
    else:
        await room.acquire(timeout_ms)


def test_who_comes_when_it_is_full_waits_its_turn() -> None:
    async def main() -> None:
        room, order = InFlightLimiter(2), list[int]()

        async def work(number: int) -> None:
            await take(room)
            order.append(number)
            await asyncio.sleep(0)
            room.release()

        await asyncio.gather(*(work(number) for number in range(20)))
        assert order == list(range(20))
        assert room.free == 2

    asyncio.run(main())


def test_who_gives_up_waiting_leaves_its_turn_to_the_next() -> None:
    async def main() -> None:
        room = InFlightLimiter(1)
        await take(room)
        with pytest.raises(TimeoutError):
            await take(room, 1)
        given_up, patient = asyncio.create_task(take(room)), asyncio.create_task(take(room))
        await asyncio.sleep(0)
        room.release()  # granted to the caller that gives up at the same moment
        given_up.cancel()
        await patient
        assert given_up.cancelled()
        assert room.free == 0
        room.release()
        assert room.free == 1

    asyncio.run(main())
