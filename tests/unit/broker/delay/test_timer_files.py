"""The timer's files: byte for byte those of the original, and whole after whatever happened to
them.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from orbitmq.broker.delay.timer import check as timer_check
from orbitmq.broker.delay.timer import wheel as timer_wheel
from orbitmq.broker.delay.timer.check import TimerCheck
from orbitmq.broker.delay.timer.log import ENTRY_SIZE, NO_POSITION, TimerEntry, TimerLog
from orbitmq.broker.delay.timer.metrics import TimerMetrics
from orbitmq.broker.delay.timer.rules import Wheel, timing_of
from orbitmq.broker.delay.timer.wheel import Slot, TimerWheel
from orbitmq.message.properties import REAL_TOPIC
from orbitmq.message.tags import java_hash
from support.broker.delay import DelayRoom, timer_settings
from support.common.golden_data import files
from support.common.process_files import ProcessFiles
from support.store import golden_stores

GOLDEN = "store-5.5.0/timer/store"
WHEEL_RULES = Wheel(1000, 172_800)
LAYER = ProcessFiles()


def golden(name: str) -> bytes:
    return files("store-5.5.0")[f"{GOLDEN}/{name}"]


def entries_of_the_original() -> list[TimerEntry]:
    log = golden("timerlog/00000000000000000000")
    units = [
        struct.unpack(">iqiqiqiiq", log[at : at + ENTRY_SIZE]) for at in range(0, 884, ENTRY_SIZE)
    ]
    return [TimerEntry._make(unit[1:]) for unit in units]


def test_the_entries_that_we_make_of_the_messages_of_the_original_are_those_that_it_made(
    tmp_path: Path,
) -> None:
    log, wheel = TimerLog(LAYER, tmp_path / "timerlog", 5_200), TimerWheel(1000)
    for record in golden_stores.records(GOLDEN):
        if record.topic != "rmq_sys_wheel_timer":
            continue
        found = record.message.properties()
        timing = timing_of(record.message.store_time_ms, found.get, WHEEL_RULES)
        assert timing is not None
        enqueued_ms = wheel.time_of(record.store_time_ms)
        last = wheel.slot(timing.slot_ms).last
        topic = java_hash(found[REAL_TOPIC])
        entry = TimerEntry(
            last,
            timing.magic,
            enqueued_ms,
            timing.slot_ms - enqueued_ms,
            record.log_offset,
            record.size,
            topic,
            0,
        )
        wheel.add(entry, log.append(entry))
    log.write()
    theirs = entries_of_the_original()
    assert [log.read(at * ENTRY_SIZE) for at in range(len(theirs))] == theirs
    assert (tmp_path / "timerlog/00000000000000000000").read_bytes() == golden(
        "timerlog/00000000000000000000"
    )
    log.close()


def test_the_wheel_that_we_write_is_that_of_the_original(tmp_path: Path) -> None:
    wheel = TimerWheel(1000)
    for number, entry in enumerate(entries_of_the_original()):
        wheel.add(entry, number * ENTRY_SIZE)
    timer_wheel.write(LAYER, tmp_path / "timerwheel", 1000, wheel.changes())
    assert (tmp_path / "timerwheel").read_bytes() == gzip.decompress(golden("timerwheel.gz"))


def test_the_wheel_of_the_original_is_read_from_the_time_on_that_its_check_point_says(
    tmp_path: Path,
) -> None:
    (tmp_path / "timerwheel").write_bytes(gzip.decompress(golden("timerwheel.gz")))
    (tmp_path / "timercheck").write_bytes(golden("config/timercheck"))
    check = timer_check.load(LAYER, tmp_path / "timercheck")
    assert check == TimerCheck(1_794_787_477_000, 884, 17, 17, 0, 1_794_787_477_272, 141)
    assert check.encode() == golden("config/timercheck")[:56]
    wheel = TimerWheel(1000)
    assert wheel.load(LAYER, tmp_path / "timerwheel", check.read_time_ms)
    assert wheel.first_time() == 1_794_790_854_000
    assert (wheel.slot(1_794_790_854_000), wheel.slot(1_794_794_454_000)) == (
        Slot(208, 260, 0),
        Slot(104, 104, 1),
    )
    assert (len(wheel), wheel.count) == (3, 2)


def test_metrics_are_read_and_written_as_the_original_does(tmp_path: Path) -> None:
    (tmp_path / "timermetrics").write_bytes(golden("config/timermetrics"))
    metrics = TimerMetrics(tmp_path / "timermetrics")
    metrics.load()
    assert metrics.counts["GoldenTimer"].waiting == 2
    assert metrics.encode() == golden("config/timermetrics")


def entry(number: int, slot_ms: int, previous: int = -1, magic: int = 1) -> TimerEntry:
    return TimerEntry(previous, magic, slot_ms - 1000, 1000, number, 100, 7, slot_ms + 500)


@pytest.mark.parametrize("file_size", [120, 172, 173, 600])
def test_a_log_rolls_where_no_entry_and_no_end_mark_fits_any_more(
    tmp_path: Path, file_size: int
) -> None:
    log = TimerLog(LAYER, tmp_path, file_size)
    positions = [log.append(entry(number, 5_000)) for number in range(30)]
    log.write()
    assert all(at % file_size + ENTRY_SIZE + 16 <= file_size for at in positions)
    assert list(log.scan(0, log.end)) == [
        (at, entry(number, 5_000)) for number, at in enumerate(positions)
    ]
    log.close()
    again = TimerLog(LAYER, tmp_path, file_size)
    again.load()
    again.cut(positions[17])
    assert list(again.scan(0, again.end)) == [
        (at, entry(number, 5_000)) for number, at in enumerate(positions[:17])
    ]
    assert again.append(entry(99, 5_000)) == positions[17]
    again.close()


def test_files_go_whose_messages_are_gone(tmp_path: Path) -> None:
    log = TimerLog(LAYER, tmp_path, 172)
    for number in range(10):
        log.append(entry(number, 5_000))
    log.write()
    job = log.begin_sync()
    assert job is not None
    log.end_sync(job, None)
    assert log.delete_unused(lambda each: each.log_offset >= 6) == 2
    assert log.first == 2 * 172
    log.close()


def test_a_wheel_goes_back_to_where_its_check_point_was() -> None:
    wheel, kept = TimerWheel(1000), dict[int, TimerEntry]()
    for number, slot_ms in enumerate([5_000, 6_000, 5_000, 5_000, 7_000]):
        kept[number * 52] = made = entry(number, slot_ms, wheel.slot(slot_ms).last)
        wheel.add(made, number * 52)
    assert wheel.rewind(3 * 52, kept.get)
    assert (wheel.slot(5_000), wheel.slot(6_000), wheel.slot(7_000)) == (
        Slot(0, 104, 2),
        Slot(52, 52, 1),
        timer_wheel.EMPTY,
    )
    assert wheel.count == 3
    assert not wheel.rewind(52, lambda position: None)


@pytest.mark.parametrize(
    "damage",
    ["no wheel", "short wheel", "no log", "bad entry", "no check", "bad check", "no journal"],
)
def test_nothing_is_lost_with_a_file_of_the_timer(tmp_path: Path, damage: str) -> None:
    room = DelayRoom(tmp_path, timer_settings(mapped_file_size_timer_log=600))
    for number in range(30):
        room.send(b"%02d" % number, TIMER_DELAY_MS=str(1_000 + 900 * number))
    room.pass_ms(6_500)
    came = set(room.counts())
    assert 0 < len(came) < 30
    room.stop()
    store = tmp_path / "store"
    if damage == "no wheel":
        (store / "timerwheel").unlink()
    elif damage == "short wheel":
        (store / "timerwheel").write_bytes(b"x" * 100)
    elif damage == "no log":
        for file in (store / "timerlog").iterdir():
            file.unlink()
    elif damage == "bad entry":
        (store / "timerwheel").unlink()
        with (store / "timerlog/00000000000000000000").open("r+b") as log:
            log.write(bytes(52))
    elif damage in ("no check", "bad check"):
        (store / "config/timer.journal").unlink()
        (store / "config/timercheck").unlink()
        if damage == "bad check":
            (store / "config/timercheck").write_bytes(b"\xff" * 4096)
    else:
        (store / "config/timer.journal").unlink()
    room.start()
    room.pass_ms(60_000)
    assert room.counts().keys() == {b"%02d" % number for number in range(30)}
    if "check" not in damage:
        assert room.counts().total() == 30
    room.stop()


@pytest.mark.parametrize("precision_ms", [1000, 100, 1])
def test_the_wheel_says_how_many_messages_are_due_within_each_bound(precision_ms: int) -> None:
    wheel, now_ms = TimerWheel(precision_ms), 1_794_790_854_321
    delays_s = [0, 4, 5, 59, 60, 61, 3_599, 3_600, 86_399, 86_400]
    for number, delay_s in enumerate(delays_s):
        wheel.add(entry_at(wheel.time_of(now_ms) + 1000 * delay_s), number * ENTRY_SIZE)
    assert wheel.due_within(now_ms, [5, 60, 3_600, 86_400]) == [
        (5, 2),
        (60, 2),
        (3_600, 3),
        (86_400, 2),
    ]
    wheel.remove(wheel.time_of(now_ms) + 5_000)
    wheel.remove_before(wheel.time_of(now_ms) + 1_000)
    assert wheel.due_within(now_ms, [5, 60, 3_600]) == [(5, 1), (60, 1), (3_600, 3)]
    wheel.clear()
    assert wheel.due_within(now_ms, [86_400]) == [(86_400, 0)]


def entry_at(slot_ms: int) -> TimerEntry:
    return TimerEntry(NO_POSITION, 0, slot_ms, 0, 0, 100, 0, 0)
