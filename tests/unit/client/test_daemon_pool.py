"""The daemon pool: threads on demand, none of which keeps the process alive."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading

import pytest

from orbitmq.client.background import DaemonPool


def test_functions_run_side_by_side_in_no_more_threads_than_allowed_and_idle_ones_are_used_again() -> (
    None
):
    async def main() -> None:
        pool, meeting = DaemonPool(2, "pool"), threading.Barrier(2)

        def meet() -> str:
            meeting.wait(60)
            return threading.current_thread().name

        found = await pool.run(threading.current_thread)
        assert {await pool.run(threading.current_thread) for _ in range(5)} == {found}
        assert found.name == "pool_0"
        assert found.daemon
        assert set(await asyncio.gather(*(pool.run(meet) for _ in range(6)))) == {
            "pool_0",
            "pool_1",
        }
        pool.close()
        await asyncio.to_thread(found.join, 10)
        assert not found.is_alive()

    asyncio.run(main())


def test_what_a_function_raises_arrives_and_what_was_not_begun_is_not_called() -> None:
    async def main() -> None:
        pool, begun, may_end = DaemonPool(1, "pool"), threading.Event(), threading.Event()

        def block() -> bool:
            begun.set()
            return may_end.wait(60)

        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 / 0)
        calls: list[int] = []
        first = asyncio.create_task(pool.run(block))
        others = [asyncio.create_task(pool.run(calls.append, number)) for number in range(3)]
        await asyncio.to_thread(begun.wait, 10)
        others[0].cancel()
        pool.close()
        ends = await asyncio.gather(*others, return_exceptions=True)
        assert {type(end) for end in ends} == {asyncio.CancelledError}
        may_end.set()
        assert await first
        assert calls == []

    asyncio.run(main())


def test_a_function_that_blocks_does_not_keep_its_process_alive() -> None:
    program = """
        import asyncio, threading
        from orbitmq.client.background import DaemonPool

        async def main():
            begun = threading.Event()
            task = asyncio.create_task(DaemonPool(1, "pool").run(lambda: begun.set() or threading.Event().wait()))
            await asyncio.to_thread(begun.wait)
            task.cancel()

        asyncio.run(main())
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
