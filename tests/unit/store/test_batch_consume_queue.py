"""A batch consume queue: entries that stand for several messages, found by queue offset and by
time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.store.batch_consume_queue import ENTRY_SIZE, BatchConsumeQueue, BatchEntry
from orbitmq.store.consume_queue import Boundary
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.queue_files import QueueFiles
from orbitmq.store.types import LogOffset, QueueOffset, StoreTimeMs
from support.store.indexes import UnsyncedLayer

PER_FILE = 4
SIZES = (3, 1, 5, 2, 4, 1, 1, 7, 2, 3)
TIMES = (10, 20, 20, 20, 30, 40, 40, 50, 60, 60)


def make_queue(folder: Path) -> BatchConsumeQueue:
    return BatchConsumeQueue(
        QueueFiles(OpenFiles(UnsyncedLayer()), str(folder), PER_FILE * ENTRY_SIZE)
    )


def batches(first: int = 0) -> list[BatchEntry]:
    found, offset = [], first
    for number, (size, time_ms) in enumerate(zip(SIZES, TIMES, strict=True)):
        found.append(
            BatchEntry(
                LogOffset(number * 100),
                100,
                -number,
                StoreTimeMs(time_ms),
                QueueOffset(offset),
                size,
            )
        )
        offset += size
    return found


def filled(folder: Path, first: int = 0) -> BatchConsumeQueue:
    queue = make_queue(folder)
    for entry in batches(first):
        queue.put(entry)
    queue.commit()
    return queue


@pytest.mark.parametrize("first", [0, 1000])
def test_every_message_is_found_in_its_batch(tmp_path: Path, first: int) -> None:
    queue = filled(tmp_path, first)
    assert ENTRY_SIZE == 46
    assert (queue.min_offset, queue.max_offset) == (first, first + sum(SIZES))
    for entry in batches(first):
        for offset in range(entry.base_offset, entry.next_offset):
            assert queue.get(QueueOffset(offset)) == entry
            assert queue.entries(QueueOffset(offset), 1) == queue.entries(entry.base_offset, 1)
    for offset in (-1, first - 1, first + sum(SIZES)):
        assert queue.get(QueueOffset(offset)) is None
        assert queue.entries(QueueOffset(offset), 2) == b""
    assert len(queue.entries(QueueOffset(first), 100)) == len(SIZES) * ENTRY_SIZE


def test_an_empty_queue_has_nothing(tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "none")
    queue.recover(0)
    assert (queue.min_offset, queue.max_offset, queue.last_physical_offset()) == (0, 0, -1)
    assert queue.get(QueueOffset(0)) is None
    assert queue.offset_by_time(StoreTimeMs(5), Boundary.LOWER) == 0


def test_a_record_that_was_put_before_is_passed_over_also_after_a_restart(tmp_path: Path) -> None:
    filled(tmp_path)
    queue = make_queue(tmp_path)
    queue.recover(1 << 62)
    for entry in batches():
        queue.put(entry)
    queue.commit()
    assert queue.max_offset == sum(SIZES)
    assert queue.files.end == len(SIZES) * ENTRY_SIZE


@pytest.mark.parametrize("kept", range(len(SIZES) + 1))
def test_a_log_that_lost_its_end_takes_its_batches_with_it(tmp_path: Path, kept: int) -> None:
    queue = filled(tmp_path)
    queue.truncate_physical(100 * kept)
    assert queue.max_offset == sum(SIZES[:kept])
    again = make_queue(tmp_path)
    again.recover(1 << 62)
    assert again.max_offset == sum(SIZES[:kept])


def test_the_minimum_moves_with_the_log_by_whole_batches(tmp_path: Path) -> None:
    queue = filled(tmp_path)
    queue.correct_min(150)
    assert queue.min_offset == sum(SIZES[:2])
    assert queue.delete_before(600) == 1
    assert queue.min_offset == sum(SIZES[:6])
    assert queue.get(QueueOffset(0)) is None
    queue.delete_before(1 << 60)
    assert queue.min_offset == queue.max_offset == sum(SIZES)


@pytest.mark.parametrize("damage", [(28, b"\xff"), (36, b"\x80"), (0, b"\xff"), (8, b"\x80")])
def test_an_entry_that_cannot_be_one_ends_the_queue(
    tmp_path: Path, damage: tuple[int, bytes]
) -> None:
    filled(tmp_path)
    at, content = damage
    path = tmp_path / f"{PER_FILE * ENTRY_SIZE:020}"
    data = bytearray(path.read_bytes())
    data[ENTRY_SIZE + at : ENTRY_SIZE + at + 1] = content
    path.write_bytes(data)
    queue = make_queue(tmp_path)
    queue.recover(1 << 62)
    assert queue.max_offset == sum(SIZES[:5])


@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"),  # numbers of batches; files of four
    [
        (5, 0, 0),
        (10, 0, 0),
        (15, 1, 0),  # as the original does
        (20, 3, 3),  # the time of the first file's last batch
        (25, 3, 3),
        (30, 4, 4),
        (35, 5, 0),
        (40, 5, 6),
        (45, 7, 7),
        (50, 7, 7),
        (60, 9, 9),
        (99, 9, 9),
    ],
)
def test_the_batch_at_a_time(tmp_path: Path, time_ms: int, lower: int, upper: int) -> None:
    queue, bases = filled(tmp_path), [entry.base_offset for entry in batches()]
    assert queue.offset_by_time(StoreTimeMs(time_ms), Boundary.LOWER) == bases[lower]
    assert queue.offset_by_time(StoreTimeMs(time_ms), Boundary.UPPER) == bases[upper]
