"""What a broker does as time passes: chores go on whatever happens to one of them, and end with the
broker.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq.broker.periodic_tasks import PeriodicTask, PeriodicTasks, StoreTicks
from orbitmq.common.slices import Slices
from orbitmq.store.config import FlushMode
from support.broker.socketless import BrokerRoom
from support.common.waiting import until
from support.remoting.peers import run


def test_a_chore_that_fails_goes_on_and_all_end_with_the_broker(
    room: BrokerRoom, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def fail() -> None:
        done.append("failed")
        raise ValueError("no such luck")

    async def scenario() -> None:
        upkeep = PeriodicTasks(
            [PeriodicTask(0.001, fail), PeriodicTask(0.001, lambda: done.append("done"))]
        )
        upkeep.start()
        await until(lambda: done.count("failed") > 2 and done.count("done") > 2, "both go on")
        await upkeep.stop()
        count = len(done)
        await asyncio.sleep(0.01)
        assert len(done) == count

    run(scenario)
    assert "upkeep_failed" in caplog.text
    assert "no such luck" in caplog.text


def test_a_tick_of_the_store_that_fails_is_tried_again(
    room: BrokerRoom, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        raise OSError("the disk is gone")

    monkeypatch.setattr(room.store, "tick", tick)
    monkeypatch.setattr(
        type(room.store), "next_tick_ms", property(lambda _: room.clock.monotonic_ms() + 1)
    )

    async def scenario() -> None:
        store_ticks = StoreTicks(room.clock, room.store)
        store_ticks.start()
        await until(lambda: len(ticks) > 2, "it is tried again")
        store_ticks.stop()
        store_ticks.tick()
        count = len(ticks)
        await asyncio.sleep(0.01)
        assert len(ticks) == count

    run(scenario)
    assert "store_tick_failed" in caplog.text


def test_queues_that_fall_behind_the_log_are_told(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    room = BrokerRoom(tmp_path_factory.mktemp("room"), flush_mode=FlushMode.SYNC)
    store_ticks = StoreTicks(room.clock, room.store)
    with caplog.at_level(logging.INFO):
        store_ticks.log_dispatch()
        assert "dispatch_behind" not in caplog.text
        room.store.flushing.flush_log()
        behind = room.put(b"x").end - room.store.dispatcher.offset
        store_ticks.log_dispatch()
    assert f"dispatch_behind bytes={behind}" in caplog.text
    room.close()


def test_a_chore_in_slices_lets_others_run_between_two_of_them(room: BrokerRoom) -> None:
    done: list[str] = []

    def in_slices() -> Slices[None]:
        for _ in range(3):
            done.append("slice")
            asyncio.get_running_loop().call_soon(done.append, "another")
            yield

    async def scenario() -> None:
        upkeep = PeriodicTasks([PeriodicTask(0.001, in_slices)])
        upkeep.start()
        await until(lambda: len(done) >= 6, "all slices ran")
        await upkeep.stop()

    run(scenario)
    assert done[:6] == ["slice", "another"] * 3
