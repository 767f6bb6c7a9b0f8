"""The faulty disk keeps, loses and tears what a real disk may."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from orbitmq.testing.faulty_disk import SECTOR, FaultyDisk
from support.common.process_files import ProcessFiles

SEEDS = range(60)


@pytest.fixture
def disk(tmp_path: Path) -> FaultyDisk:
    (tmp_path / "real").mkdir()
    return FaultyDisk(ProcessFiles(), tmp_path / "real")


def after_cuts(
    disk: FaultyDisk, tmp_path: Path, seeds: Iterable[int] = SEEDS
) -> list[dict[str, bytes]]:
    """Return the files as found after a power loss now, for many random outcomes."""
    found = []
    for seed in seeds:
        target = tmp_path / f"cut-{len(list(tmp_path.iterdir()))}"
        disk.power_cut(target, Random(seed))
        found.append(
            {
                str(path.relative_to(target)): path.read_bytes()
                for path in target.rglob("*")
                if path.is_file()
            }
        )
    return found


def synced_file(disk: FaultyDisk, tmp_path: Path, content: bytes, name: str = "file") -> int:
    descriptor = disk.open(tmp_path / "real" / name, create=True)
    disk.pwrite(descriptor, content, 0)
    disk.fdatasync(descriptor)
    disk.sync_dir(tmp_path / "real")
    return descriptor


def test_what_was_there_before_and_what_is_synced_survives_every_cut(tmp_path: Path) -> None:
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "real" / "sub" / "old").write_bytes(b"old")
    disk = FaultyDisk(ProcessFiles(), tmp_path / "real")
    synced_file(disk, tmp_path, b"new")
    assert all(found == {"sub/old": b"old", "file": b"new"} for found in after_cuts(disk, tmp_path))


def test_a_name_that_is_not_synced_is_there_or_not(disk: FaultyDisk, tmp_path: Path) -> None:
    descriptor = disk.open(tmp_path / "real" / "file", create=True)
    disk.pwrite(descriptor, b"x", 0)
    disk.fdatasync(descriptor)
    assert {tuple(found.items()) for found in after_cuts(disk, tmp_path)} == {(), (("file", b"x"),)}


def test_a_write_that_is_not_synced_is_there_or_not_or_torn_at_sectors(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    descriptor = synced_file(disk, tmp_path, b"a" * 2000)
    disk.pwrite(descriptor, b"b" * 1500, 300)
    seen = {found["file"] for found in after_cuts(disk, tmp_path)}
    whole = b"a" * 300 + b"b" * 1500 + b"a" * 200
    assert {b"a" * 2000, whole} < seen
    for content in seen:
        assert len(content) == 2000
        assert content[:300] + content[1800:] == b"a" * 500
        for begin in range(0, 2000, SECTOR):
            sector = content[begin : begin + SECTOR]
            assert sector in (b"a" * len(sector), whole[begin : begin + SECTOR])
    assert (tmp_path / "real" / "file").read_bytes() == whole, (
        "the running system sees what it wrote"
    )


def test_a_length_that_is_not_synced_is_there_or_not(disk: FaultyDisk, tmp_path: Path) -> None:
    descriptor = synced_file(disk, tmp_path, b"abc")
    disk.truncate(descriptor, 10)
    assert {found["file"] for found in after_cuts(disk, tmp_path)} == {b"abc", b"abc" + bytes(7)}
    disk.truncate(descriptor, 2)
    disk.fdatasync(descriptor)
    assert {found["file"] for found in after_cuts(disk, tmp_path)} == {b"ab"}


def test_clearing_is_a_write(disk: FaultyDisk, tmp_path: Path) -> None:
    descriptor = synced_file(disk, tmp_path, b"a" * 100)
    disk.clear(descriptor, 10, 90)
    assert {found["file"] for found in after_cuts(disk, tmp_path)} == {
        b"a" * 100,
        b"a" * 10 + bytes(90),
    }


def test_renames_and_removals_are_durable_with_their_folder_only(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    real = tmp_path / "real"
    synced_file(disk, tmp_path, b"1", "one")
    synced_file(disk, tmp_path, b"2", "two")
    disk.rename(real / "one", real / "two")
    assert {tuple(sorted(found.items())) for found in after_cuts(disk, tmp_path)} == {
        (("one", b"1"), ("two", b"2")),
        (("two", b"1"),),
    }
    disk.sync_dir(real)
    disk.unlink(real / "two")
    assert {tuple(found.items()) for found in after_cuts(disk, tmp_path)} == {(("two", b"1"),), ()}
    disk.sync_dir(real)
    assert not any(after_cuts(disk, tmp_path))


def test_a_failed_sync_forgets_writes_that_the_next_one_does_not_bring_back(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    descriptors = {name: synced_file(disk, tmp_path, b"a", name) for name in map(str, range(30))}
    for descriptor in descriptors.values():
        disk.pwrite(descriptor, b"b", 0)
        disk.fail("fdatasync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            disk.fdatasync(descriptor)
        disk.fdatasync(descriptor)
    [found] = after_cuts(disk, tmp_path, [1])
    assert set(found.values()) == {b"a", b"b"}
    assert all(found == again for again in after_cuts(disk, tmp_path))


def test_calls_fail_when_and_as_often_as_they_are_told_to(disk: FaultyDisk, tmp_path: Path) -> None:
    descriptor = synced_file(disk, tmp_path, b"a" * 10)
    disk.fail("pwrite", errno.ENOSPC, after=1, times=2, partial_bytes=3)
    disk.pwrite(descriptor, b"b", 0)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left") as caught:
            disk.pwrite(descriptor, b"c" * 5, 5)
        assert caught.value.errno == errno.ENOSPC
    assert (tmp_path / "real" / "file").read_bytes() == b"baaaacccaa"
    disk.pwrite(descriptor, b"d", 0)
    disk.fail("fdatasync", errno.EIO, times=100)
    disk.heal()
    disk.fdatasync(descriptor)
    assert (disk.calls["pwrite"], disk.calls["fdatasync"]) == (5, 2)


def test_the_same_seed_loses_the_same(tmp_path: Path) -> None:
    outcomes = []
    for run in range(2):
        folder = tmp_path / str(run)
        (folder / "real").mkdir(parents=True)
        disk = FaultyDisk(ProcessFiles(), folder / "real", seed=7)
        for number in range(20):
            disk.pwrite(disk.open(folder / "real" / str(number), create=True), b"x" * 3000, 0)
        disk.power_cut(folder / "cut")
        outcomes.append({path.name: path.read_bytes() for path in (folder / "cut").iterdir()})
    assert outcomes[0] == outcomes[1]
    assert 0 < len(outcomes[0]) < 20
