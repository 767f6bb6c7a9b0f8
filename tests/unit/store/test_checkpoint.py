"""The checkpoint file: what it holds, and what is made of one that says nothing."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from orbitmq.store.checkpoint import Checkpoint
from orbitmq.testing.faulty_disk import FaultyDisk
from support.common.process_files import ProcessFiles


def loaded(path: Path) -> Checkpoint:
    checkpoint = Checkpoint(ProcessFiles(), path)
    checkpoint.load()
    return checkpoint


def test_a_new_file_has_its_size_and_zeros(tmp_path: Path) -> None:
    checkpoint = loaded(tmp_path / "store" / "checkpoint")
    checkpoint.close()
    assert (tmp_path / "store" / "checkpoint").read_bytes() == bytes(4096)
    assert checkpoint.min_time_ms == 0


def test_six_numbers_are_kept_in_their_order(tmp_path: Path) -> None:
    checkpoint = loaded(tmp_path / "checkpoint")
    checkpoint.log_time_ms, checkpoint.queues_time_ms, checkpoint.index_time_ms = (
        10_000,
        20_000,
        30_000,
    )
    checkpoint.master_flushed_offset, checkpoint.confirmed_offset, checkpoint.queues_offset = (
        4,
        5,
        6,
    )
    checkpoint.flush()
    checkpoint.close()
    content = (tmp_path / "checkpoint").read_bytes()
    assert struct.unpack_from(">6q", content) == (10_000, 20_000, 30_000, 4, 5, 6)
    again = loaded(tmp_path / "checkpoint")
    assert (again.log_time_ms, again.queues_offset) == (10_000, 6)
    again.close()


@pytest.mark.parametrize(
    ("log_ms", "queues_ms", "expected"),
    [(0, 0, 0), (2999, 9000, 0), (9000, 5000, 2000), (5000, 9000, 2000)],
)
def test_three_seconds_before_the_earlier_of_both_everything_is_safe(
    tmp_path: Path, log_ms: int, queues_ms: int, expected: int
) -> None:
    checkpoint = loaded(tmp_path / "checkpoint")
    checkpoint.log_time_ms, checkpoint.queues_time_ms, checkpoint.index_time_ms = (
        log_ms,
        queues_ms,
        1,
    )
    assert checkpoint.min_time_ms == expected
    checkpoint.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01" * 47,
        bytes(8) * 500 + b"\x00",
        struct.pack(">6q", 1, 2, -3, 4, 5, 6) + bytes(4048),
    ],
)
def test_a_file_that_says_nothing_reads_as_zeros_and_gets_its_size(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "checkpoint").write_bytes(content)
    checkpoint = loaded(tmp_path / "checkpoint")
    assert (
        checkpoint.log_time_ms,
        checkpoint.queues_time_ms,
        checkpoint.index_time_ms,
        checkpoint.queues_offset,
    ) == (0, 0, 0, 0)
    checkpoint.flush()
    checkpoint.close()
    assert (tmp_path / "checkpoint").read_bytes() == bytes(4096)


def test_power_loss_leaves_the_old_numbers_or_the_new(tmp_path: Path) -> None:
    seen = set()
    for seed in range(20):
        folder = tmp_path / f"disk{seed}"
        folder.mkdir()
        disk = FaultyDisk(ProcessFiles(), folder, seed=seed)
        checkpoint = Checkpoint(disk, folder / "checkpoint")
        checkpoint.load()
        checkpoint.log_time_ms = checkpoint.queues_offset = 1
        checkpoint.flush()
        checkpoint.log_time_ms = checkpoint.queues_offset = 2
        checkpoint.write()
        disk.power_cut(tmp_path / f"after{seed}")
        checkpoint.close()
        again = loaded(tmp_path / f"after{seed}" / "checkpoint")
        seen.add((again.log_time_ms, again.queues_offset))
        again.close()
    assert seen == {(1, 1), (2, 2)}
