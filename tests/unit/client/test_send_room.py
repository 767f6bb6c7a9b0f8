"""Room for messages that are under way: first come, first served, and no place is lost."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.client.send_room import SendRoom


async def take(room: SendRoom, timeout_ms: int = 10_000) -> None:
    if room.free > 0:
        room.free -= 1
    else:
        await room.wait(timeout_ms)


def test_who_comes_when_it_is_full_waits_its_turn() -> None:
    async def main() -> None:
        room, order = SendRoom(2), list[int]()

        async def work(number: int) -> None:
            await take(room)
            order.append(number)
            await asyncio.sleep(0)
            room.leave()

        await asyncio.gather(*(work(number) for number in range(20)))
        assert order == list(range(20))
        assert room.free == 2

    asyncio.run(main())


def test_who_gives_up_waiting_leaves_its_turn_to_the_next() -> None:
    async def main() -> None:
        room = SendRoom(1)
        await take(room)
        with pytest.raises(TimeoutError):
            await take(room, 1)
        given_up, patient = asyncio.create_task(take(room)), asyncio.create_task(take(room))
        await asyncio.sleep(0)
        room.leave()  # to the one that is given up at the same moment
        given_up.cancel()
        await patient
        assert given_up.cancelled()
        assert room.free == 0
        room.leave()
        assert room.free == 1

    asyncio.run(main())
