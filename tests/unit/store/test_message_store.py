"""A whole store: what it refuses and when it recovers, what is seen before it is flushed, and how
it opens after damage.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from orbitmq.common.errors import StoreError, StoreFullError, StoreReadOnlyError
from orbitmq.store.config import FlushMode
from orbitmq.store.flush.group_commit import Outcome
from orbitmq.store.recovery import CorruptLogError, Progress, ProgressLog
from orbitmq.store.types import LogOffset, QueueKey
from orbitmq.testing.faulty_disk import FaultyDisk
from orbitmq.testing.manual_clock import ManualClock
from support.common.process_files import ProcessFiles
from support.store import derived_files
from support.store.stores import batch, kill, new_store, numbers, opened_store, order


def damage(root: Path, offset: int, data: bytes) -> None:
    """Write into the commit log behind everybody's back."""
    start = offset - offset % 4096
    with (root / "commitlog" / f"{start:020}").open("r+b") as file:
        file.seek(offset - start)
        file.write(data)


# -- opening


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_bad_record_in_the_middle_costs_itself_and_nothing_else(tmp_path: Path, end: str) -> None:
    store = opened_store(tmp_path)
    places = [store.put(order(number)) for number in range(40)]
    store.close() if end == "close" else kill(store)
    damage(tmp_path, places[13].offset + 100, b"!")  # its body
    damage(tmp_path, places[20].offset + 4, b"!!!!")  # its magic
    again = opened_store(tmp_path)
    left = [number for number in range(40) if number not in (13, 20)]
    assert numbers(again) == left
    assert [bad.offset for bad in again.quarantine] == [places[13].offset, places[20].offset]
    assert again.put(order(40)).queue_offset == 40
    assert numbers(again) == [*left, 40]
    assert [again.reads.query("orders", f"k{number}") for number in (13, 20)] == [[], []]
    assert len(again.reads.query("orders", "k21")) == 1
    again.close()
    third = opened_store(tmp_path)
    assert numbers(third) == [*left, 40]
    third.close()


def test_the_original_rule_gives_up_everything_behind_a_bad_record_when_it_is_asked_for(
    tmp_path: Path,
) -> None:
    store = opened_store(tmp_path)
    places = [store.put(order(number)) for number in range(40)]
    kill(store)
    damage(tmp_path, places[13].offset + 100, b"!")
    again = new_store(tmp_path, truncate_damage=True)
    recovered = again.open()
    assert (recovered.end, recovered.quarantined) == (places[13].offset, 0)
    assert recovered.lost_reason is not None
    assert "its body does not have the checksum" in recovered.lost_reason
    assert numbers(again) == list(range(13))
    assert again.put(order(13)).queue_offset == 13
    again.close()


def test_where_the_log_goes_on_is_never_guessed(tmp_path: Path) -> None:
    store = opened_store(tmp_path)
    for number in range(3):
        store.put(order(number))
    inner = store.log.read(LogOffset(0), 300)
    assert inner is not None
    outer = store.put(order(3, size=1000))
    copy = bytearray(inner[: int.from_bytes(inner[:4])])
    copy[28:36] = (outer.offset + 300).to_bytes(8)
    store.put(order(4))
    kill(store)
    damage(tmp_path, outer.offset + 300, bytes(copy) + b"no record")
    damage(tmp_path, outer.offset + 28, b"\x01")
    before = [
        path.read_bytes()
        for path in (
            tmp_path / "commitlog" / f"{0:020}",
            *(tmp_path / "consumequeue/orders/0").iterdir(),
        )
    ]
    with pytest.raises(
        CorruptLogError,
        match=(
            rf"no record at {outer.offset}|the record at {outer.offset} .*recoverBadRecord=truncate"
        ),
    ):
        new_store(tmp_path).open()
    after = [
        path.read_bytes()
        for path in (
            tmp_path / "commitlog" / f"{0:020}",
            *(tmp_path / "consumequeue/orders/0").iterdir(),
        )
    ]
    assert after == before
    again = opened_store(tmp_path, truncate_damage=True)
    assert numbers(again) == [0, 1, 2]
    again.close()


def test_a_clean_start_reads_no_body_again_and_dispatches_nothing(tmp_path: Path) -> None:
    store = opened_store(tmp_path)
    for number in range(40):
        store.put(order(number))
    store.close()
    again = new_store(tmp_path)
    seen: list[Progress] = []
    recovered = again.open(seen.append)
    assert recovered.clean
    assert recovered.lost_reason is None
    assert [progress for progress in seen if progress.step == "dispatching"] == []
    assert numbers(again) == list(range(40))
    again.close()


def test_a_long_recovery_says_how_far_it_is_and_how_long_it_takes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(0)
    told = ProgressLog(clock.monotonic_ms)
    with caplog.at_level("INFO"):
        for percent in range(0, 101, 5):
            told(Progress("checking", LogOffset(1000), LogOffset(1000 + percent), LogOffset(1100)))
            clock.advance_ms(500)
    assert [record.getMessage() for record in caplog.records][:2] == [
        "recovering step=checking percent=20 bytes=20 of=100 seconds_left=8",
        "recovering step=checking percent=40 bytes=40 of=100 seconds_left=6",
    ]


@pytest.mark.parametrize("folder", ["consumequeue", "index", "checkpoint"])
@pytest.mark.parametrize("end", ["close", "kill"])
def test_what_is_made_from_the_log_is_made_again_when_it_is_missing(
    tmp_path: Path, folder: str, end: str
) -> None:
    store = opened_store(tmp_path)
    for number in range(60):
        store.put(order(number, QueueKey("orders", number % 3)))
    store.close() if end == "close" else kill(store)
    shutil.rmtree(tmp_path / folder) if folder != "checkpoint" else (tmp_path / folder).unlink()
    seen: list[Progress] = []
    again = new_store(tmp_path)
    again.open(seen.append)
    assert sorted(
        number for queue_id in range(3) for number in numbers(again, QueueKey("orders", queue_id))
    ) == list(range(60))
    assert all(len(again.reads.query("orders", f"k{number}")) == 1 for number in range(60))
    assert {progress.step for progress in seen} >= {"dispatching"} or folder == "checkpoint"
    again.close()


def test_a_queue_that_proves_damaged_when_it_is_opened_is_filled_from_the_log(
    tmp_path: Path,
) -> None:
    store = opened_store(tmp_path)
    for number in range(90):
        store.put(order(number))
    store.close()
    files = sorted((tmp_path / "consumequeue/orders/0").iterdir())
    with files[-1].open("r+b") as file:
        file.write(b"\xff" * 40)
    again = opened_store(tmp_path)
    assert numbers(again) == list(range(90))
    assert again.put(order(90)).queue_offset == 90
    again.close()


@pytest.mark.parametrize(
    "at",
    [14, 22, 41, 57, 88 + 200 + 3, 88 + 200 + 10],
    ids=["queue", "offset", "born", "stored", "topic", "properties"],
)
def test_with_a_checksum_of_the_whole_record_every_changed_byte_is_noticed(
    tmp_path: Path, at: int
) -> None:
    store = opened_store(tmp_path, record_crc=True, record_crc_required=True)
    places = [store.put(order(number)) for number in range(10)]
    store.close()
    damage(tmp_path, places[4].offset + at, b"\x7e")
    again = opened_store(tmp_path, record_crc=True, record_crc_required=True)
    assert numbers(again) == [number for number in range(10) if number != 4]
    assert again.reads.message_at(places[4].offset) is None
    assert [bad.offset for bad in again.quarantine] == [places[4].offset]
    again.close()


def test_a_queue_whose_messages_are_all_deleted_goes_on_where_it_was(tmp_path: Path) -> None:
    store = opened_store(tmp_path)
    old = QueueKey("old", 0)
    for number in range(3):
        store.put(order(number, old))
    for number in range(60):
        store.put(order(number))
    store.close()
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    again = opened_store(tmp_path)
    assert numbers(again, old) == []
    assert again.put(order(3, old)).queue_offset == 3
    assert numbers(again, old) == [3]
    again.close()


@pytest.mark.parametrize("harm", ["a changed queue", "no queue", "no manifest"])
def test_a_batch_queue_whose_messages_are_all_deleted_goes_on_where_it_was(
    harm: str, tmp_path: Path
) -> None:
    store, old = opened_store(tmp_path), QueueKey("old", 0)
    for number in range(4):
        store.put(batch(number, old))
    for number in range(60):
        store.put(order(number))
    store.close()
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    if harm == "no manifest":
        (tmp_path / "queues.manifest").unlink()
    elif harm == "no queue":
        shutil.rmtree(tmp_path / "batchconsumequeue")
    else:
        derived_files.flip(tmp_path / "batchconsumequeue/old/0" / f"{0:020}", 0.5, 1)
    for _ in range(2):
        again = opened_store(tmp_path)
        assert (again.queues.min_offset("old", 0), again.queues.max_offset("old", 0)) == (12, 12)
        again.close()
    again = opened_store(tmp_path)
    assert again.put(batch(4, old)).queue_offset == 12
    assert numbers(again, old) == [4]
    again.close()
    again = opened_store(tmp_path)
    assert numbers(again, old) == [4]
    again.close()


@pytest.mark.parametrize(
    ("at", "data"),
    [(12, b"\xff"), (20, b"\x00\x00\x70"), (88 + 200 + 1, b"a/b")],
    ids=["queue id", "queue offset", "topic"],
)
def test_a_record_whose_place_cannot_be_costs_itself_alone(
    tmp_path: Path, at: int, data: bytes
) -> None:
    store = opened_store(tmp_path)
    places = [store.put(order(number)) for number in range(10)]
    kill(store)
    shutil.rmtree(tmp_path / "consumequeue")
    damage(tmp_path, places[4].offset + at, data)
    again = opened_store(tmp_path)
    assert [bad.offset for bad in again.quarantine] == [places[4].offset]
    assert numbers(again) == [number for number in range(10) if number != 4]
    again.close()


def test_entries_that_a_power_cut_took_from_an_early_file_of_a_queue_are_put_again(
    tmp_path: Path,
) -> None:
    store = opened_store(tmp_path)
    for number in range(150):
        store.put(order(number))
    kill(store)
    files = sorted((tmp_path / "consumequeue/orders/0").iterdir())
    assert len(files) > 5
    with files[1].open("r+b") as file:
        file.seek(100)
        file.write(bytes(60))
    again = opened_store(tmp_path)
    assert numbers(again) == list(range(150))
    again.close()


def test_a_store_time_that_cannot_be_does_not_become_the_time_of_all_that_follow(
    tmp_path: Path,
) -> None:
    clock = ManualClock(1_700_000_000_000)
    store = opened_store(tmp_path, clock=clock)
    last = [store.put(order(number)) for number in range(3)][-1]
    kill(store)
    damage(tmp_path, last.offset + 56, b"\x7f")
    again = opened_store(tmp_path, clock=clock)
    assert again.put(order(3)).store_time_ms <= clock.now_ms() + 24 * 3_600_000
    again.close()


def test_a_store_that_does_not_open_is_left_unlocked(tmp_path: Path) -> None:
    store = opened_store(tmp_path)
    store.put(order(0))
    store.close()
    with pytest.raises(StoreError, match="configure the file size"):
        new_store(tmp_path, commit_log_file_size=8192).open()
    again = opened_store(tmp_path)
    assert numbers(again) == [0]
    again.close()


# -- flushing


def test_with_sync_flush_nobody_reads_what_the_disk_does_not_have_yet(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    store = opened_store(tmp_path, clock=clock, flush_mode=FlushMode.SYNC)
    outcomes: list[tuple[Outcome, list[int]]] = []
    appended = store.append(order(0))
    store.log.commit()
    assert numbers(store) == []
    store.when_durable(appended.end, lambda outcome: outcomes.append((outcome, numbers(store))))
    store.flush()
    assert outcomes == [(Outcome.DONE, [0])]
    store.put(order(1))
    store.close()
    again = opened_store(tmp_path, clock=clock, flush_mode=FlushMode.SYNC)
    assert numbers(again) == [0, 1]
    again.close()


def test_a_failed_flush_makes_the_store_read_only_and_the_stop_unclean(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    store = opened_store(tmp_path, disk)
    store.put(order(0))
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(StoreReadOnlyError, match="flushing the commit log failed"):
        store.flush()
    with pytest.raises(StoreReadOnlyError, match="restart the broker"):
        store.put(order(1))
    store.close()
    assert (tmp_path / "abort").exists()
    again = opened_store(tmp_path)
    assert set(numbers(again)) <= {0}
    again.close()


# -- refusals


def test_queues_that_cannot_be_written_stop_new_messages_until_they_can(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    store = opened_store(tmp_path, disk)
    store.put(order(0))
    disk.fail("pwrite", errno.ENOSPC, after=1, times=2)
    assert store.put(order(1)).queue_offset == 1  # it is in the log
    with pytest.raises(
        StoreFullError,
        match=r"could not be written: .*No space left.* no more are accepted until this succeeds",
    ):
        store.put(order(2))
    refusals = []
    for _ in range(2):
        store.tick()
        refusals.append(store.refusal is not None)
    assert refusals == [True, False]
    store.put(order(2))
    assert numbers(store) == [0, 1, 2]
    store.close()


def test_a_full_disk_refuses_messages_until_there_is_room(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    store = opened_store(tmp_path, disk, clock)
    disk.ratios.update({tmp_path / "commitlog": 0.95, tmp_path / "consumequeue": 0.5})
    store.put(order(0))
    store.tick()
    with pytest.raises(StoreFullError, match="commitlog"):
        store.put(order(1))
    assert numbers(store) == [0]
    disk.ratios[tmp_path / "commitlog"] = 0.5
    clock.advance_ms(10_000)
    store.tick()
    assert store.put(order(1)).queue_offset == 1
    store.close()


def test_a_store_that_refuses_to_open_leaves_every_file_of_the_log(tmp_path: Path) -> None:
    store = opened_store(tmp_path)
    for number in range(60):
        store.put(order(number))
    store.close()
    files = sorted((tmp_path / "commitlog").iterdir())
    assert len(files) > 3
    files[1].rename(tmp_path / "elsewhere")
    left = {path.name: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()}
    with pytest.raises(StoreError, match="a file is missing between them"):
        new_store(tmp_path).open()
    assert {path.name: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()} == left
    (tmp_path / "elsewhere").rename(files[1])
    store = opened_store(tmp_path)
    assert numbers(store) == list(range(60))
    store.close()
