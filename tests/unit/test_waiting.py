"""The helpers that tests wait with: what they return, and what they say when it does not come."""

from __future__ import annotations

import asyncio
import threading

import pytest

from support.common.waiting import until, wait_until


def test_a_wait_returns_the_first_true_value() -> None:
    found: list[int] = []

    async def grown() -> list[int]:
        found.append(len(found))
        return found if len(found) > 3 else []

    assert asyncio.run(until(grown)) == [0, 1, 2, 3]
    assert wait_until(lambda: found) == [0, 1, 2, 3]


def test_other_tasks_run_while_one_waits() -> None:
    async def scenario() -> None:
        came = asyncio.Event()
        asyncio.get_running_loop().call_soon(came.set)
        await until(came.is_set)

    asyncio.run(scenario())


def test_threads_run_while_one_waits() -> None:
    came = threading.Event()
    threading.Timer(0, came.set).start()
    wait_until(came.is_set)


def test_a_wait_that_fails_says_what_it_saw_last() -> None:
    received = [b"one"]
    with pytest.raises(
        AssertionError,
        match=r"^two messages \(within 0 s\) did not come true; "
        r"last seen: False, received = \[b'one'\]$",
    ):
        wait_until(lambda: len(received) == 2, "two messages", seconds=0)
    with pytest.raises(AssertionError, match=r"within 0 s.*received = \[b'one'\]"):
        asyncio.run(until(lambda: len(received) == 2, seconds=0))


def test_a_deadline_around_a_wait_says_it_too() -> None:
    received = [b"one"]

    async def scenario() -> None:
        async with asyncio.timeout(0):
            await until(lambda: len(received) == 2, "two messages")

    with pytest.raises(TimeoutError) as failed:
        asyncio.run(scenario())
    assert failed.value.__cause__ is not None
    assert failed.value.__cause__.__notes__ == [
        "two messages did not come true; last seen: False, received = [b'one']"
    ]


def test_a_condition_that_fails_ends_the_wait() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 // 0)
