"""Roll windows: none is longer than files are kept, and a message keeps the one that it came
with.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.broker.delay.timer.rules import safe_window
from orbitmq.broker.delay.timer.windows import RollWindows
from support.broker.delay import DelayRoom, timer_settings

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("window", "reserved_ms", "precision_ms", "safe"),
    [
        (172_800, 96 * HOUR_MS, 1000, 172_800),
        (172_800, 72 * HOUR_MS, 1000, 129_600),
        (172_800, HOUR_MS, 1000, 1_800),
        (172_800, HOUR_MS, 100, 18_000),
        (172_800, 0, 1000, 60),
        (10, 0, 1000, 10),
    ],
)
def test_a_message_is_rolled_before_half_of_the_time_is_over_for_which_its_file_is_kept(
    window: int, reserved_ms: int, precision_ms: int, safe: int
) -> None:
    assert safe_window(window, reserved_ms, precision_ms) == safe


def windows_of(path: Path, slots: int, queue_begin: int, queue_end: int) -> RollWindows:
    windows = RollWindows(path, 1000, slots, slots_before=50)
    windows.load(queue_begin, queue_end)
    return windows


def test_a_window_holds_for_messages_that_come_after_the_start_that_brought_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "config/timerwindows.json"
    assert windows_of(path, 10, 0, 7).of(6) == (1000, 50, 0)
    assert json.loads(path.read_bytes())["windows"] == [[0, 50], [7, 10]]
    again = windows_of(path, 20, 0, 9)
    assert [again.of(offset).roll_window_slots for offset in (0, 6, 7, 8, 9, 99)] == [
        50,
        50,
        10,
        10,
        20,
        20,
    ]
    assert windows_of(path, 20, 8, 30).of(8).roll_window_slots == 10
    assert json.loads(path.read_bytes())["windows"] == [[0, 10], [9, 20]]
    windows_of(path, 20, 9, 30)
    assert json.loads(path.read_bytes())["windows"] == [[0, 20]]


def test_a_queue_that_a_power_cut_made_shorter_goes_on_with_the_newest_window(
    tmp_path: Path,
) -> None:
    path = tmp_path / "timerwindows.json"
    windows_of(path, 10, 0, 7)
    assert [windows_of(path, 10, 0, 5).of(offset).roll_window_slots for offset in (4, 5, 6)] == [
        50,
        10,
        10,
    ]


def test_a_file_that_is_damaged_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "timerwindows.json"
    for content in (
        b"{",
        b"7",
        b"[]",
        b"{}",
        *(b'{"windows": %s}' % text for text in (b"[[1]]", b"[]", b"[[5, 10]]", b"[[0, 0]]", b"7")),
    ):
        path.write_bytes(content)
        assert windows_of(path, 10, 0, 7).of(6).roll_window_slots == 50
        assert "timer_windows_unusable" in caplog.text
        caplog.clear()
        path.with_name(path.name + ".bak").unlink()


@pytest.mark.parametrize(("before", "after"), [(40, 10), (10, 40)])
def test_a_wheel_that_is_made_anew_after_a_change_of_the_window_loses_none_and_brings_none_twice(
    tmp_path: Path, before: int, after: int
) -> None:
    room = DelayRoom(tmp_path, timer_settings(timer_roll_window_slot=before))
    for number in range(20):
        room.send(b"%d" % number, TIMER_DELAY_MS=str(2_000 * number + 1_500))
    room.pass_ms(15_000)
    room.stop()
    (tmp_path / "store/timerwheel").unlink()
    for file in (tmp_path / "store/timerlog").iterdir():
        file.unlink()
    room.settings.timer_roll_window_slot = after
    room.start()
    room.pass_ms(60_000)
    assert room.counts() == dict.fromkeys((b"%d" % number for number in range(20)), 1)
    room.stop()
