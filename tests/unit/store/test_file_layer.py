"""The real file layer does all of what it says, or raises."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from orbitmq.store.file_layer import OsFileLayer

LAYER = OsFileLayer()


@pytest.fixture
def descriptor(tmp_path: Path) -> int:
    return LAYER.open(tmp_path / "file", create=True)


def test_a_file_is_not_created_over_another(tmp_path: Path, descriptor: int) -> None:
    with pytest.raises(FileExistsError):
        LAYER.open(tmp_path / "file", create=True)
    LAYER.close(descriptor)
    with pytest.raises(FileNotFoundError):
        LAYER.open(tmp_path / "other")


def test_what_is_written_is_read_and_shows_in_the_mapping(tmp_path: Path, descriptor: int) -> None:
    LAYER.truncate(descriptor, 10_000)
    mapping = LAYER.map(descriptor, 10_000)
    LAYER.pwrite(descriptor, memoryview(b"abc"), 9_997)
    assert mapping[9_990:] == bytes(7) + b"abc"
    assert LAYER.pread(descriptor, 100, 9_998) == b"bc"
    with pytest.raises(TypeError):
        mapping[0] = 1
    mapping.close()
    LAYER.close(descriptor)
    assert LAYER.size(tmp_path / "file") == 10_000


def test_a_write_that_the_disk_takes_in_parts_ends_in_the_reason_when_it_cannot_go_on(
    tmp_path: Path, descriptor: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            LAYER.pwrite(descriptor, bytes(600), 600)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    LAYER.close(descriptor)
    assert LAYER.size(tmp_path / "file") == 1000


def test_clearing_leaves_zeros_and_takes_no_space(tmp_path: Path, descriptor: int) -> None:
    LAYER.truncate(descriptor, 64 << 20)
    LAYER.pwrite(descriptor, b"x" * 10_000, 5_000)
    LAYER.pwrite(descriptor, b"y" * 100, 32 << 20)
    LAYER.fdatasync(descriptor)
    before = os.fstat(descriptor).st_blocks
    LAYER.clear(descriptor, 6_000, (64 << 20) - 6_000)
    LAYER.fdatasync(descriptor)
    assert os.fstat(descriptor).st_blocks == before
    content = (tmp_path / "file").read_bytes()
    assert content[:6_000] == bytes(5_000) + b"x" * 1_000
    assert content[6_000:].count(0) == len(content) - 6_000
    LAYER.close(descriptor)


def test_clearing_zeros_writes_nothing(tmp_path: Path, descriptor: int) -> None:
    LAYER.pwrite(descriptor, bytes(10_000), 0)
    os.utime(tmp_path / "file", (1, 1))
    LAYER.clear(descriptor, 0, 20_000)
    assert LAYER.modified_ms(tmp_path / "file") == 1000
    LAYER.close(descriptor)


def test_names_are_listed_in_order_and_a_missing_folder_has_none(tmp_path: Path) -> None:
    assert LAYER.list(tmp_path / "none") == []
    LAYER.make_folder(tmp_path / "a" / "b" / "c")
    LAYER.make_folder(tmp_path / "a" / "b" / "c")
    for name in ("2", "10", "1"):
        (tmp_path / "a" / name).touch()
    assert LAYER.list(tmp_path / "a") == ["1", "10", "2", "b"]
    LAYER.rename(tmp_path / "a" / "1", tmp_path / "a" / "b" / "3")
    LAYER.unlink(tmp_path / "a" / "2")
    LAYER.sync_dir(tmp_path / "a")
    LAYER.remove_folder(tmp_path / "a" / "b" / "c")
    LAYER.remove_folder(tmp_path / "a" / "b" / "c")
    assert (LAYER.list(tmp_path / "a"), LAYER.list(tmp_path / "a" / "b")) == (["10", "b"], ["3"])


def test_the_disk_is_used_to_some_part(tmp_path: Path) -> None:
    assert 0 < LAYER.disk_ratio(tmp_path) < 1
