"""Tests that a log is cut at record boundaries near the wanted size, and that its end is found for
any writer and shutdown.
"""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from orbitmq.common.errors import CorruptRecordError, StoreError
from orbitmq.spark.commitlog import pieces as log_pieces
from orbitmq.testing.manual_clock import ManualClock
from support.common.golden_data import RECORDS_IN_LOG
from support.spark.commitlog import offsets, pieces
from support.store import golden_stores
from support.store.tools import filled, golden, held, overwrite, own_store, put

CLOCK_STEP_MS = 700  # of `filled`


@pytest.mark.parametrize("folder", golden_stores.folders())
@pytest.mark.parametrize("size", ["500", "9000", "1000000000"])
def test_pieces_of_real_logs_follow_each_other_from_record_to_record(
    tmp_path: Path, folder: str, size: str
) -> None:
    found = pieces(golden(tmp_path, folder), maxPartitionBytes=size)
    begins = {record.log_offset for record in golden_stores.records(folder)}
    assert found[0].begin == min(begins)
    assert all(before.end == after.begin for before, after in pairwise(found))
    if (
        "badcrc/store" not in folder
    ):  # Apache drops the valid records after the corrupt one; OrbitMQ reads them
        assert {piece.begin for piece in found} <= begins
        assert found[-1].end == golden_stores.log_end(folder)


@pytest.mark.parametrize(
    "folder", [folder for folder in RECORDS_IN_LOG if folder.endswith("clean/store")]
)
def test_pieces_are_about_as_large_as_wanted(tmp_path: Path, folder: str) -> None:
    root = golden(tmp_path, folder)
    assert len(pieces(root)) == 1
    sizes = [piece.end - piece.begin for piece in pieces(root, maxPartitionBytes="9000")]
    assert max(sizes) < 2 * 9000
    assert len(sizes) > golden_stores.log_end(folder) / 9000 / 2


def test_a_log_without_queues_is_cut_between_its_files(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    found = pieces(tmp_path / "store", maxPartitionBytes="1000")
    assert [piece.begin for piece in found] == [4096 * number for number in range(len(found))]
    assert len(found) > 2


def test_a_log_alone_is_read_from_its_own_folder(tmp_path: Path) -> None:
    known = filled(tmp_path / "store")
    shutil.copytree(tmp_path / "store" / "commitlog", tmp_path / "log")
    assert offsets(tmp_path / "log") == offsets(tmp_path / "store" / "commitlog") == known


def test_queues_that_point_nowhere_give_no_cuts(tmp_path: Path) -> None:
    known = filled(tmp_path / "store")
    for path in (tmp_path / "store" / "consumequeue").rglob("*"):
        if path.is_file():
            overwrite(path, 0, bytes(7) + b"\x09" + path.read_bytes()[8:])
    assert offsets(tmp_path / "store", maxPartitionBytes="700") == known


def test_an_empty_log_has_no_pieces(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert pieces(tmp_path / "store") == []
    (tmp_path / "store" / "commitlog" / f"{0:020}").write_bytes(bytes(4096))
    assert pieces(tmp_path / "store") == []


def test_a_store_in_use_is_read_up_to_its_last_whole_record(tmp_path: Path) -> None:
    known = filled(tmp_path / "store")
    (tmp_path / "store" / "abort").touch()
    last = tmp_path / "store" / "commitlog" / f"{known[-1] // 4096 * 4096:020}"
    overwrite(last, known[-1] % 4096 + 60, bytes(400))
    with held(tmp_path / "store"):
        assert offsets(tmp_path / "store") == known[:-1]
    assert offsets(tmp_path / "store") == known[:-1]


def test_a_last_record_that_is_not_whole_is_damage_if_the_store_was_stopped(tmp_path: Path) -> None:
    known = filled(tmp_path / "store")
    last = tmp_path / "store" / "commitlog" / f"{known[-1] // 4096 * 4096:020}"
    overwrite(last, known[-1] % 4096 + 60, bytes(400))
    with pytest.raises(
        CorruptRecordError,
        match=(
            f"corrupt at byte {known[-1] % 4096} .log offset {known[-1]}.: the last record is"
            f" truncated"
        ),
    ):
        pieces(tmp_path / "store")
    assert offsets(tmp_path / "store", onDamage="skip") == known[:-1]


def test_a_read_while_the_broker_writes_ends_where_the_log_did_when_it_was_planned(
    tmp_path: Path,
) -> None:
    known = filled(tmp_path / "store")
    planned = pieces(tmp_path / "store")
    clock = ManualClock()
    clock.advance_ms(100 * CLOCK_STEP_MS)
    store = own_store(tmp_path / "store", clock)
    more = put(store, 999)
    store.close()
    assert planned[-1].end == more > known[-1]
    assert offsets(tmp_path / "store") == [*known, more]


def test_a_log_file_that_is_missing_is_damage(tmp_path: Path) -> None:
    known = filled(tmp_path / "store")
    (tmp_path / "store" / "commitlog" / f"{4096:020}").unlink()
    with pytest.raises(
        CorruptRecordError,
        match="the 4096 bytes of the log before it are missing; read it with onDamage=skip",
    ):
        pieces(tmp_path / "store")
    assert offsets(tmp_path / "store", onDamage="skip") == [
        offset for offset in known if not 4096 <= offset < 8192
    ]


def test_a_log_file_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    log = tmp_path / "store" / "commitlog"
    shutil.copy(log / f"{4096:020}", log / f"{4100:020}")
    with pytest.raises(StoreError, match="00000000000000004100 overlaps the log file before it"):
        pieces(tmp_path / "store")


def test_pieces_of_another_time_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pieces, "CLOCK_BACK_MS_MAX", 5_000)
    known = filled(tmp_path / "store", 150)
    root, begin_ms = tmp_path / "store", 50_000
    whole = pieces(root, maxPartitionBytes="4000")
    first_ms = whole[0].begin_ms
    wanted = {
        "startTimestamp": str(first_ms + begin_ms),
        "endTimestamp": str(first_ms + begin_ms + 7 * CLOCK_STEP_MS),
    }
    fewer = pieces(root, maxPartitionBytes="4000", **wanted)
    assert len(fewer) < len(whole)
    first = -(-begin_ms // CLOCK_STEP_MS)
    assert offsets(root, maxPartitionBytes="4000", **wanted) == known[first : first + 7]
    assert offsets(root, startTimestamp=wanted["startTimestamp"]) == known[first:]
    assert offsets(root, endTimestamp=wanted["endTimestamp"]) == known[: first + 7]
