"""Deferred messages when the wall clock is set: none is lost, none is early by the clock as it is,
none is later than the jump.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.common.topic_names import TIMER_TOPIC
from orbitmq.store.types import QueueKey
from support.broker.delay import DelayRoom, timer_settings
from support.broker.manual_worker import Killed

DAY_MS = 86_400_000
TIMER_QUEUE = QueueKey(TIMER_TOPIC, 0)


def nothing(room: DelayRoom) -> None:
    """The broker goes on running."""


def stop_and_start(room: DelayRoom) -> None:
    room.stop()
    room.start()


def kill_and_start(room: DelayRoom) -> None:
    room.kill(forgets=False)
    room.start()


def save_kill_and_start(room: DelayRoom) -> None:
    room.save()
    kill_and_start(room)


restarts = pytest.mark.parametrize(
    "restart", [nothing, stop_and_start, kill_and_start, save_kill_and_start]
)


def jump(room: DelayRoom, by_ms: int) -> None:
    room.clock.set_wall_ms(room.clock.now_ms() + by_ms)


def bodies(room: DelayRoom) -> list[bytes]:
    return [each.body for each in room.delivered()]


def send_at(room: DelayRoom, body: bytes, after_ms: int) -> None:
    room.send(body, TIMER_DELIVER_MS=str(room.clock.now_ms() + after_ms))


@restarts
@pytest.mark.parametrize("back_ms", [300, 1_000, 40_000, 10 * DAY_MS, 400 * DAY_MS])
def test_a_message_that_is_sent_after_the_clock_was_set_back_comes_at_its_millisecond(
    tmp_path: Path, back_ms: int, restart: Callable[[DelayRoom], None]
) -> None:
    room = DelayRoom(tmp_path)
    send_at(room, b"before", 500)
    room.pass_ms(5_000)
    jump(room, -back_ms)
    restart(room)
    send_at(room, b"after", 2_000)
    restart(room)
    room.pass_ms(1_999, 1_000)
    assert bodies(room) == [b"before"]
    room.pass_ms(1)
    assert bodies(room) == [b"before", b"after"]
    restart(room)
    room.pass_ms(60_000)
    assert bodies(room) == [b"before", b"after"]
    room.stop()


@restarts
def test_a_clock_that_was_ten_days_ahead_for_a_while_holds_nothing_up(
    tmp_path: Path, restart: Callable[[DelayRoom], None]
) -> None:
    room = DelayRoom(tmp_path)
    send_at(room, b"sent before, due while it was ahead", 60_000)
    room.pass_ms(1_000)
    jump(room, 10 * DAY_MS)
    room.pass_ms(3_000)
    assert bodies(room) == [b"sent before, due while it was ahead"]
    restart(room)
    jump(room, -10 * DAY_MS)
    restart(room)
    for number in range(3):
        send_at(room, b"%d" % number, 1_500)
        room.pass_ms(1_499, 499)
        assert len(bodies(room)) == 1 + number
        room.pass_ms(1)
        assert bodies(room)[1:] == [b"%d" % each for each in range(number + 1)]
        restart(room)
    room.pass_ms(60_000, 1_000)
    assert len(bodies(room)) == 4
    room.stop()


@restarts
def test_what_is_left_of_the_second_that_was_begun_comes_at_its_time_and_the_rest_not_again(
    tmp_path: Path, restart: Callable[[DelayRoom], None]
) -> None:
    room = DelayRoom(tmp_path)
    begin_ms = room.clock.now_ms()
    for number in range(10):
        send_at(room, b"%d" % number, 5_000 + 100 * number)
    taker_ms = str((begin_ms + 5_900 - 1) // 1000 * 1000 + 1)
    room.send(b"taker", TIMER_DELIVER_MS=taker_ms, TIMER_DEL_UNIQKEY="9")
    room.pass_ms(5_350, 50)
    assert bodies(room) == [b"0", b"1", b"2", b"3"]
    jump(room, -4_000)
    restart(room)
    room.pass_ms(3_000)
    restart(room)
    assert bodies(room) == [b"0", b"1", b"2", b"3"]
    for number in range(4, 9):
        room.clock.advance_ms(begin_ms + 5_000 + 100 * number - 1 - room.clock.now_ms())
        room.run()
        assert len(bodies(room)) == number
        room.pass_ms(1)
        assert bodies(room) == [b"%d" % each for each in range(number + 1)]
    room.pass_ms(20_000)
    assert bodies(room) == [b"%d" % number for number in range(9)]
    room.stop()


@restarts
def test_messages_of_a_future_that_was_taken_back_are_kept_for_their_time(
    tmp_path: Path, restart: Callable[[DelayRoom], None]
) -> None:
    room = DelayRoom(tmp_path, timer_settings(timer_roll_window_slot=36_000))
    jump(room, 30 * DAY_MS)
    due_ms = room.clock.now_ms() + 600_000
    for number in range(80):
        send_at(room, b"%03d" % number, 600_000)
    room.pass_ms(2_000)
    restart(room)
    jump(room, -30 * DAY_MS)
    restart(room)
    room.pass_ms(2_000)
    assert room.later.timed is not None
    assert all(
        time_ms < room.clock.now_ms() + 14 * 3_600_000
        for time_ms in room.later.timed.files.wheel.times(0)
    )
    assert len(room.stored(TIMER_QUEUE)) >= 160, "they are at the end of the log anew"
    restart(room)
    while room.clock.now_ms() < due_ms - 1:
        room.clock.advance_ms(min(DAY_MS // 4, due_ms - 1 - room.clock.now_ms()))
        room.run()
    assert bodies(room) == []
    room.pass_ms(1)
    assert bodies(room) == [b"%03d" % number for number in range(80)]
    room.stop()


def test_a_message_that_waits_for_long_is_rolled_in_time_while_store_times_are_ahead_of_the_clock(
    tmp_path: Path,
) -> None:
    room = DelayRoom(tmp_path, timer_settings(timer_roll_window_slot=100))
    room.send(b"now")
    jump(room, -10 * DAY_MS)
    send_at(room, b"far away", 1_000_000)
    for _ in range(10):
        room.pass_ms(99_999, 1_000)
        assert bodies(room) == [b"now"]
        assert room.later.timed is not None
        (time_ms,) = room.later.timed.files.wheel.times(0)
        assert 0 <= time_ms - room.clock.now_ms() + 1_000 <= 130_000
        stop_and_start(room)
    rolled = len(room.stored(TIMER_QUEUE))
    assert 10 <= rolled <= 25
    room.pass_ms(9)
    assert bodies(room) == [b"now"]
    room.pass_ms(1)
    assert bodies(room) == [b"now", b"far away"]
    leads = json.loads((tmp_path / "store/config/timerwindows.json").read_bytes())["leads"]
    assert 10 * DAY_MS - 2_000 < leads[0][1] <= 10 * DAY_MS
    room.stop()


@restarts
def test_a_level_waits_for_its_delay_while_store_times_are_ahead_of_the_clock(
    tmp_path: Path, restart: Callable[[DelayRoom], None]
) -> None:
    room = DelayRoom(tmp_path)
    room.send(b"before", DELAY="4")
    room.pass_ms(10_000)
    jump(room, 10 * DAY_MS)
    room.send(b"ahead", DELAY="4")
    jump(room, -10 * DAY_MS)
    restart(room)
    room.run()
    for number in range(5):
        room.send(b"%d" % number, DELAY="4")
        room.pass_ms(4_000)
    assert bodies(room) == [b"before"]
    room.pass_ms(9_999, 1_000)
    assert bodies(room) == [b"before"]
    room.pass_ms(1_001)
    assert bodies(room)[:3] == [b"before", b"ahead", b"0"]
    for number in range(1, 5):
        room.pass_ms(4_000)
        assert bodies(room)[2:] == [b"%d" % each for each in range(number + 1)], (
            "each a second late at the most"
        )
    room.stop()


def send_some(room: DelayRoom) -> None:
    for number in range(6):
        room.send(b"level %d" % number, DELAY="1")
        room.send(b"timed %d" % number, TIMER_DELAY_MS=str(1_000 + 100 * number))


@pytest.mark.parametrize("back_ms", [0, 5_000, 10 * DAY_MS])
def test_a_kill_before_any_change_of_the_disk_loses_nothing_and_brings_nothing_twice(
    tmp_path: Path, back_ms: int
) -> None:
    changes = 0
    while True:
        room = DelayRoom(
            tmp_path / str(changes),
            timer_settings(timer_roll_window_slot=4, mapped_file_size_timer_log=600),
        )
        send_some(room)
        room.pass_ms(1_150)
        jump(room, -back_ms)
        send_some(room)
        room.disk.changes_left = changes
        try:
            room.run(5)
            room.clock.advance_ms(1_600)
            room.run(5)
            room.save()
            was_killed = False
        except Killed:
            was_killed = True
        room.kill(forgets=False)
        room.start()
        room.pass_ms(back_ms % DAY_MS + 20_000, 997)
        if back_ms >= DAY_MS:
            jump(room, back_ms)
            room.pass_ms(20_000, 997)
        counts = room.counts()
        assert counts == dict.fromkeys(counts, 2), f"killed before change {changes}"
        assert len(counts) == 12, f"killed before change {changes}"
        room.stop()
        if not was_killed:
            assert changes > 15
            return
        changes += 1
