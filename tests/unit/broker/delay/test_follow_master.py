"""Delivery progress that a slave takes over: what its files have after a restart, and what its
timer takes in once it delivers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.delay.timer.check import TimerCheck
from orbitmq.broker.delay.timer.metrics import TimerMetrics
from orbitmq.broker.delay.timer.timer import QUEUE
from orbitmq.protocol.bodies.delay import DelayOffsets, TimingCount
from orbitmq.protocol.bodies.metadata_rows import TimingRow
from orbitmq.protocol.bodies.nameserver import DataVersion
from support.broker.delay import DelayRoom

VERSION = DataVersion(counter=42, timestamp=7)


@pytest.fixture
def room(tmp_path: Path) -> DelayRoom:
    return DelayRoom(tmp_path)


def check_of(room: DelayRoom) -> TimerCheck:
    assert room.later.timed is not None
    return room.later.timed.files.check


def fill_level(room: DelayRoom, count: int) -> None:
    for number in range(count):
        room.send(b"m%d" % number, DELAY="18")


# --- levels


@pytest.mark.parametrize("ends_by", ["stop", "kill"])
def test_progress_of_levels_outlives_its_process(room: DelayRoom, ends_by: str) -> None:
    fill_level(room, 5)
    levels = room.later.levels
    levels.take_over(DelayOffsets({18: 3}, VERSION), room.store.log.end_offset)
    assert levels.content() == DelayOffsets({18: 3}, VERSION)
    if ends_by == "stop":
        room.stop()
    else:
        room.kill(forgets=False)
    room.start()
    assert room.later.levels.content().offsets == {18: 3}
    room.stop()


def test_a_level_that_the_master_has_not_is_forgotten(room: DelayRoom) -> None:
    fill_level(room, 5)
    end = room.store.log.end_offset
    room.later.levels.take_over(DelayOffsets({18: 3, 17: 0}, VERSION), end)
    room.later.levels.take_over(DelayOffsets({18: 4}, VERSION), end)
    assert room.later.levels.content().offsets == {18: 4}
    room.stop()
    room.start()
    assert room.later.levels.content().offsets == {18: 4}
    room.stop()


def test_each_change_of_levels_has_a_number_and_a_repetition_has_none(room: DelayRoom) -> None:
    progress = room.later.levels.progress
    before = progress.changes
    for _ in range(2):
        room.later.levels.take_over(DelayOffsets({18: 0}, VERSION), 0)
    assert progress.changes == before + 1
    room.stop()


def test_an_offset_beyond_the_queue_is_moved_back_when_deliveries_begin(room: DelayRoom) -> None:
    fill_level(room, 2)
    room.later.levels.take_over(DelayOffsets({18: 9}, None), 0)
    room.run()
    assert room.later.levels.content().offsets == {18: 2}
    room.stop()


# --- timer


def test_a_check_point_is_served_and_saved_as_the_masters(room: DelayRoom) -> None:
    master = TimerCheck(room.clock.now_ms() + 5_000, 777, 9, 9, 2, 1_700_000_000_000, 31)
    room.timer.take_over(master, 0)
    expected = master._replace(
        read_time_ms=master.read_time_ms // 1000 * 1000, log_end=0, queue_offset=0
    )
    assert check_of(room) == expected
    room.store.flush()
    room.save()
    assert check_of(room) == expected
    room.stop()
    room.start()
    assert check_of(room)._replace(master_queue_offset=9) == expected  # bound by the queue
    room.stop()


def test_check_points_are_its_own_again_once_it_delivers(room: DelayRoom) -> None:
    room.timer.take_over(TimerCheck(room.clock.now_ms() - 5_000, 0, 9, 9, 0, 5, 31), 0)
    room.send(b"x", TIMER_DELAY_SEC="2")
    room.pass_ms(1_000)
    room.store.flush()
    room.save()
    check = check_of(room)
    assert (check.queue_offset, check.master_queue_offset, check.version_counter) == (1, 1, 32)
    assert check.version_time_ms == room.clock.now_ms()
    room.stop()


def test_what_the_master_settled_is_not_delivered_and_the_rest_is(room: DelayRoom) -> None:
    settled_ms = room.clock.now_ms() + 10_000
    for number in range(1, 5):
        room.send(b"%d" % number, TIMER_DELAY_SEC=str(5 * number))
    assert room.timer.queue_offset == 0
    room.clock.advance_ms(12_000)
    room.timer.take_over(TimerCheck(settled_ms + 1_000, 0, 2, 2, 0, 1, 1), 0)
    room.pass_ms(20_000)
    assert sorted(room.counts()) == [b"3", b"4"]  # the master had taken in two of them
    room.stop()


def test_a_check_point_behind_its_own_progress_makes_it_take_in_everything_again(
    room: DelayRoom,
) -> None:
    for number in (5, 10):
        room.send(b"%d" % number, TIMER_DELAY_SEC=str(number))
    begun_ms = room.clock.now_ms()
    room.pass_ms(7_000)
    assert list(room.counts()) == [b"5"]
    assert room.timer.queue_offset == 2
    room.timer.take_over(TimerCheck(begun_ms, 0, 1, 1, 0, 1, 1), 0)
    assert room.timer.queue_offset == room.store.queues.min_offset(*QUEUE)
    room.pass_ms(10_000)
    assert room.counts() == {b"5": 2, b"10": 1}
    room.stop()


def test_a_check_point_whose_copies_the_log_lost_does_not_count(room: DelayRoom) -> None:
    room.send(b"x", TIMER_DELAY_SEC="2")
    end = room.store.log.end_offset
    room.store.flush()
    room.clock.advance_ms(5_000)
    room.timer.take_over(TimerCheck(room.clock.now_ms(), 0, 1, 1, 0, 1, 1), end + 100)
    room.kill(forgets=False)
    room.start()
    room.pass_ms(2_000)
    assert room.counts() == {b"x": 1}
    room.stop()


# --- counts of pending messages


def test_counts_are_the_masters_until_its_own_wheel_takes_something_in(tmp_path: Path) -> None:
    metrics = TimerMetrics(tmp_path / "timermetrics")
    metrics.add("Own", 2, 5)
    metrics.take_over([TimingRow("T", TimingCount(4, 9))], ["Own", "No"], version=VERSION)
    assert metrics.counts == {"T": TimingCount(4, 9)}
    assert metrics.data_version == VERSION
    assert metrics.row("T") == TimingRow("T", TimingCount(4, 9))
    assert metrics.row("Own") is None
    (tmp_path / "timermetrics").write_bytes(metrics.encode())
    again = TimerMetrics(tmp_path / "timermetrics")
    again.load()
    assert again.counts == metrics.counts
    assert again.data_version == VERSION
    metrics.add("U", 1, 20)
    assert metrics.counts == {"U": TimingCount(1, 20)}
    assert metrics.data_version.counter == VERSION.counter + 1


def test_a_check_point_is_read_or_refused() -> None:
    check = TimerCheck(1, 2, 3, 4, 5, 6, 7)
    assert TimerCheck.decode(check.encode()) == check
    for content in (b"", check.encode()[:-1], b"\xff" * 56):
        with pytest.raises(ValueError, match="no check point"):
            TimerCheck.decode(content)
