"""Which files of the log are deleted when, and which are not: by age, hour, disk and hand."""

from __future__ import annotations

import errno
import gc
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.queue_retention import NO_RULES
from orbitmq.store.queues import Queues
from orbitmq.store.retention import FIRST_ROUND_MS, MANUAL_ROUNDS, Retention
from orbitmq.store.types import LogOffset
from orbitmq.testing.manual_clock import ManualClock
from support.common.process_files import ProcessFiles
from support.store.logs import HOST, NOW_MS, new_log
from support.store.retention import HOUR_MS, LOG_FILE_SIZE, NEVER, SmallStore

LONG_MS = 10 * 60_000  # sixty rounds
ALWAYS = tuple(range(24))


def at_hour(hour: int) -> int:
    """A moment of that local hour."""
    return int(time.mktime((2026, 3, 5, hour, 30, 0, 0, 0, -1))) * 1000


def open_files() -> list[str]:
    """What the descriptors of this process are of."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of this very listing
            found.append(str(link.readlink()))
    return found


# -- when


def test_the_first_round_comes_after_a_minute_and_the_next_after_ten_seconds(
    tmp_path: Path,
) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0)
    store.put_files(1)
    store.run(FIRST_ROUND_MS - 1)
    assert store.names() == [0, 1]
    store.run(1)
    assert store.names() == [1]
    store.run(1_000)
    store.put_files(1)
    store.run(8_999)
    assert store.names() == [1, 2]
    store.run(1)
    assert store.names() == [2]


def test_expired_files_go_at_their_hour_only_and_not_a_millisecond_early(tmp_path: Path) -> None:
    store = SmallStore(
        tmp_path, ManualClock(at_hour(3)), delete_hours=(4,), reserved_ms=HOUR_MS // 2 + 60_000
    )
    store.put_files(1)
    store.run(HOUR_MS // 2)  # 04:00, and the file has one more minute
    store.run(60_000 - 1)
    assert store.names() == [0, 1]
    store.run(10_000)
    assert store.names() == [1]
    store.put_files(1)
    store.run(2 * HOUR_MS)
    assert store.names() == [2], "it is still four o'clock when it expires"
    store.put_files(1)
    store.run(3 * HOUR_MS)
    assert store.names() == [2, 3], "it is long past four"


def test_deletion_stops_at_the_first_file_that_is_not_expired(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=LONG_MS)
    store.put_files(3)
    store.clock.advance_ms(LONG_MS)
    store.layer.written_ms[f"{LOG_FILE_SIZE:020}"] = store.clock.now_ms()
    store.run(FIRST_ROUND_MS)
    assert store.names() == [1, 2, 3]


def test_the_file_that_takes_messages_stays_and_so_does_what_is_not_flushed(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0)
    store.put_files(2)
    store.log.files.flushed_offset = LOG_FILE_SIZE
    store.run(FIRST_ROUND_MS)
    assert store.names() == [1, 2]
    store.log.flush()
    store.run(10_000)
    assert store.names() == [2]
    store.run(LONG_MS)
    assert store.names() == [2]
    assert store.put().queue_offset == 7


def test_what_somebody_else_needs_stays(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0)
    needed = LOG_FILE_SIZE + 1
    store.retention = Retention(
        store.disk,
        store.config,
        store.log,
        store.queues,
        None,
        store.quarantine,
        needed_from=lambda: LogOffset(needed),
        rules=NO_RULES,
    )
    store.put_files(3)
    store.fill_disk(0.99)
    store.run(FIRST_ROUND_MS)
    assert store.names() == [1, 2, 3]
    needed = LOG_FILE_SIZE * 3
    store.run(20_000)
    assert store.names() == [3]


def test_a_round_takes_ten_files_with_a_pause_between_them(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0)
    store.put_files(12)
    store.run(FIRST_ROUND_MS)
    assert len(store.names()) == 12
    store.run(99)
    assert len(store.names()) == 12
    store.run(1)
    assert len(store.names()) == 11
    store.run(5_000)
    assert len(store.names()) == 3
    store.run(10_000)
    assert store.names() == [12]


def test_rounds_and_pauses_are_as_long_and_as_large_as_is_said(tmp_path: Path) -> None:
    store = SmallStore(
        tmp_path,
        delete_hours=ALWAYS,
        reserved_ms=0,
        clean_interval_ms=1_000,
        delete_files_max=2,
        delete_pause_ms=300,
    )
    store.put_files(6)
    store.run(FIRST_ROUND_MS)
    assert store.names() == [1, 2, 3, 4, 5, 6]
    store.run(299)
    assert store.names() == [1, 2, 3, 4, 5, 6]
    store.run(1)
    assert store.names() == [2, 3, 4, 5, 6]
    store.run(699)
    assert store.names() == [2, 3, 4, 5, 6], "two of a round"
    store.run(1)
    assert store.names() == [3, 4, 5, 6]


def test_how_full_a_disk_may_be_is_what_is_said(tmp_path: Path) -> None:
    store = SmallStore(
        tmp_path,
        disk_used_ratio_max=0.4,
        folder_full_ratio=0.7,
        disk_warning_ratio=0.8,
        reserved_ms=0,
    )
    store.put_files(1)
    store.run(LONG_MS)
    assert store.names() == [1], "the disk is half full"
    store.fill_disk(0.75)
    store.retention.config = store.config = replace(store.config, reserved_ms=1000 * HOUR_MS)
    store.put_files(1)
    store.run(LONG_MS)
    assert store.names() == [2], "age does not count any more"
    assert store.retention.write_refusal is None
    store.fill_disk(0.85)
    store.run(LONG_MS)
    assert store.retention.write_refusal is not None


def test_a_request_by_hand_arms_twenty_rounds_and_deletes_only_what_is_expired(
    tmp_path: Path,
) -> None:
    store = SmallStore(tmp_path, reserved_ms=0)
    store.put_files(1)
    store.run(FIRST_ROUND_MS)
    assert store.names() == [0, 1], "nobody asked"
    store.retention.delete_expired_now()
    store.run(5_000 + 10_000 * (MANUAL_ROUNDS - 1))
    assert store.names() == [1]
    store.put_files(1)
    store.run(10_000)
    assert store.names() == [2], "the twentieth round"
    store.put_files(1)
    store.run(100_000)
    assert store.names() == [2, 3]


def test_a_file_that_an_operator_removed_counts_as_expired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=LONG_MS)
    store.put_files(2)
    store.log.files.files[0].path.unlink()
    store.run(FIRST_ROUND_MS + 10_000)
    assert store.names() == [1, 2]
    assert store.log.min_offset == LOG_FILE_SIZE
    assert "file_was_gone" in caplog.text


# -- the disk


def test_a_fuller_disk_deletes_what_is_expired_at_any_hour(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, reserved_ms=LONG_MS)
    store.put_files(2)
    store.fill_disk(0.80)
    store.run(FIRST_ROUND_MS)
    assert store.names() == [0, 1, 2]
    store.run(LONG_MS)
    assert store.names() == [2]


@pytest.mark.parametrize(("log_ratio", "queues_ratio"), [(0.86, 0.1), (0.1, 0.86)])
def test_above_the_forced_level_age_does_not_count(
    tmp_path: Path, log_ratio: float, queues_ratio: float
) -> None:
    store = SmallStore(tmp_path)
    store.put_files(2)
    store.fill_disk(log_ratio, queues_ratio)
    store.run(FIRST_ROUND_MS + 1_000)
    assert store.names() == [2]
    assert store.retention.write_refusal is None
    assert store.retention.disk_ratio == 0.86


def test_age_counts_above_the_forced_level_if_forcing_is_off(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, clean_forcibly=False, reserved_ms=LONG_MS)
    store.put_files(2)
    store.fill_disk(0.99)
    store.run(FIRST_ROUND_MS + 1_000)
    assert store.names() == [0, 1, 2]
    store.run(LONG_MS)
    assert store.names() == [2]


def test_no_more_files_are_forced_out_than_the_disk_needs(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)

    def unlink(call: Callable[[], None]) -> None:
        call()
        store.fill_disk(store.disk.ratios[tmp_path / "commitlog"] - 0.01)

    store.worker = unlink
    store.restart()
    store.put_files(9)
    store.fill_disk(0.875)
    store.run(FIRST_ROUND_MS + 100_000)
    assert store.names() == [3, 4, 5, 6, 7, 8, 9]


def test_one_log_folder_with_room_is_enough(tmp_path: Path) -> None:
    folders = (tmp_path / "a", tmp_path / "b")
    store = SmallStore(tmp_path, commit_log_folders=folders)
    store.put_files(3)
    store.disk.ratios[folders[0]] = 0.99
    store.run(FIRST_ROUND_MS)
    assert (store.names(), store.retention.write_refusal) == ([0, 1, 2, 3], None)
    store.disk.ratios[folders[1]] = 0.95
    store.run(15_000)
    assert store.names() == [3]
    assert str(folders[1]) in (store.retention.write_refusal or "")


def test_puts_are_refused_and_taken_again_as_the_disk_fills_and_empties(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = SmallStore(tmp_path)
    store.put()
    store.tick()
    assert store.retention.write_refusal is None
    store.fill_disk(0.88)
    store.run(10_000)
    assert store.retention.write_refusal is None
    assert "level=DELETE_FORCIBLY" in caplog.text, "there is a warning before"
    store.fill_disk(0.93)
    store.run(10_000)
    assert "93.0%" in (store.retention.write_refusal or ""), "whatever else is going on"
    store.fill_disk(0.90)
    store.run(10_000)
    assert store.retention.write_refusal is None, "without a restart, as soon as it is at the limit"
    assert store.names() == [0]


def test_a_full_disk_is_told_before_the_first_round(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    store.fill_disk(0.95)
    store.tick()
    assert store.retention.write_refusal is not None


def test_a_full_disk_that_no_deletion_helps_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SmallStore(tmp_path)
    store.put_files(1)
    store.fill_disk(0.95)
    store.run(FIRST_ROUND_MS + 100_000)
    assert store.names() == [1]
    assert caplog.text.count("nothing_left_to_delete") == 1


def test_a_disk_that_cannot_be_looked_at_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0)
    store.put_files(1)
    store.fill_disk(0.95)
    store.tick()
    store.disk.fail("disk_ratio", errno.EIO, times=1_000_000)
    store.run(FIRST_ROUND_MS)
    assert store.retention.write_refusal is not None
    assert store.names() == [1], "what has its time still goes"
    assert "disk_use_unknown" in caplog.text


def test_folders_that_are_not_made_yet_are_on_the_disk_of_those_above(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "not" / "made")
    retention = Retention(
        ProcessFiles(),
        config,
        new_log(tmp_path / "not" / "made"),
        Queues(ProcessFiles(), config.root),
        None,
        SmallStore(tmp_path).quarantine,
        rules=NO_RULES,
    )
    retention.tick(NOW_MS, 0)
    assert 0 < retention.disk_ratio < 1


# -- files that go


@pytest.mark.parametrize("call", ["unlink", "sync_dir"])
def test_a_file_that_cannot_be_deleted_is_tried_again_and_holds_up_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0)
    store.put_files(3)
    for rounds in (1, 2):
        store.disk.fail(call, errno.EIO)
        store.run(FIRST_ROUND_MS + 5_000 if rounds == 1 else 10_000)
        assert caplog.text.count("file_not_deleted") == rounds
        assert 1 in store.names(), "the next one did not overtake it"
        assert store.log.min_offset == LOG_FILE_SIZE
    store.run(10_000)
    assert store.names() == [3]


def test_a_store_that_is_opened_on_a_full_disk_deletes_at_once(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0)
    store.put_files(2)
    store.fill_disk(0.95)
    store.run(5_000)
    assert store.names() == [2]


def test_a_file_that_could_not_be_deleted_needs_no_reason_to_be_tried_again(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    store.put_files(2)
    store.fill_disk(0.95)
    store.disk.fail("unlink", errno.EIO)
    store.run(5_000)  # the disk is full, so the first round is at once
    assert store.names() == [0, 1, 2]
    store.fill_disk(0.5)
    store.run(10_000)
    assert store.names() == [1, 2]


def test_the_worker_unlinks_and_the_next_file_waits_for_it(tmp_path: Path) -> None:
    calls: list[Callable[[], None]] = []
    store = SmallStore(tmp_path, delete_hours=ALWAYS, reserved_ms=0)
    store.worker = calls.append
    store.restart()
    store.put_files(2)
    store.run(FIRST_ROUND_MS + 30_000)
    assert (len(calls), store.names(), store.log.min_offset) == (1, [0, 1, 2], LOG_FILE_SIZE)
    calls[0]()
    store.run(1_000)
    assert (len(calls), store.names(), store.log.min_offset) == (2, [1, 2], 2 * LOG_FILE_SIZE)
    store.restart()
    assert store.log.min_offset == LOG_FILE_SIZE, "a stop before the unlink leaves a whole log"


def test_who_reads_a_file_keeps_its_bytes_and_nobody_else_keeps_anything(tmp_path: Path) -> None:
    layer = ProcessFiles()
    store = SmallStore(tmp_path)
    store.put_files(1)
    store.index.stop()
    store.log.close()
    config = StoreConfig(
        root=tmp_path, commit_log_file_size=LOG_FILE_SIZE, delete_hours=ALWAYS, reserved_ms=0
    )
    log = CommitLog(layer, config, HOST, store.log.offsets)
    log.load()
    log.flush()
    path = log.files.files[0].path
    first = log.read(LogOffset(0), 300)
    assert first is not None
    before = bytes(first)
    retention = Retention(layer, config, log, store.queues, None, store.quarantine, rules=NO_RULES)
    retention.tick(NOW_MS, 0)
    retention.tick(int(time.time() * 1000) + 1, FIRST_ROUND_MS)
    assert not path.exists()
    assert log.read(LogOffset(0), 300) is None
    assert bytes(first) == before
    assert f"{path} (deleted)" in Path("/proc/self/maps").read_text()
    del first
    gc.collect()
    assert str(path) not in Path("/proc/self/maps").read_text(), "the system has the space back"
    assert f"{path} (deleted)" not in open_files(), (
        "a mapping has a descriptor of its own, which went with it"
    )
    log.files.close()


def test_hours_that_never_come_and_an_empty_disk_delete_nothing(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, delete_hours=NEVER, reserved_ms=0)
    store.put_files(2)
    store.run(LONG_MS)
    assert store.names() == [0, 1, 2]
