"""A consume queue: building, reading, cleaning, and what a crash or damage leaves of it."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from orbitmq.common.errors import StoreError, WriteFailedError
from orbitmq.store.consume_queue import ENTRY, ENTRY_SIZE, Boundary, ConsumeQueue, Entry, edge
from orbitmq.store.consume_queue_ext import ConsumeQueueExt, ExtUnit
from orbitmq.store.entry_queue import whole_entries
from orbitmq.store.entry_scan import FILLER_SIZE
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.queue_files import QueueFiles
from orbitmq.store.types import LogOffset, QueueOffset, StoreTimeMs
from orbitmq.testing.faulty_disk import FaultyDisk
from support.common.process_files import ProcessFiles

PER_FILE = 5
FILE_SIZE = PER_FILE * ENTRY_SIZE
SIZE = 100  # of every record
NO_END = 1 << 62


def make_queue(
    folder: Path, layer: FileLayer | None = None, ext_file_size: int = 0
) -> ConsumeQueue:
    files = OpenFiles(layer or ProcessFiles())
    ext = (
        ConsumeQueueExt(QueueFiles(files, str(folder / "ext"), ext_file_size))
        if ext_file_size
        else None
    )
    return ConsumeQueue(QueueFiles(files, str(folder / "queue"), FILE_SIZE), ext)


def filled(folder: Path, count: int, first: int = 0) -> ConsumeQueue:
    """A queue of `count` messages, the record of offset n at n times SIZE."""
    queue = make_queue(folder)
    put(queue, range(first, first + count))
    queue.commit()
    return queue


def put(queue: ConsumeQueue, offsets: range) -> None:
    for offset in offsets:
        queue.put(offset * SIZE, SIZE, offset + 1000, offset)


def reopened(folder: Path, log_end: int = NO_END) -> ConsumeQueue:
    queue = make_queue(folder)
    queue.recover(log_end)
    return queue


def names(folder: Path) -> list[int]:
    return sorted(int(path.name) // ENTRY_SIZE for path in (folder / "queue").iterdir())


def offsets(queue: ConsumeQueue) -> list[int]:
    """The queue offsets whose entries can be read, each checked."""
    found = []
    for offset in range(queue.min_offset, queue.max_offset):
        entry = queue.get(QueueOffset(offset))
        assert entry == Entry(LogOffset(offset * SIZE), SIZE, offset + 1000)
        found.append(offset)
    return found


def test_entries_are_read_when_they_are_committed_and_over_files(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    put(queue, range(12))
    assert (queue.min_offset, queue.max_offset) == (0, 0)
    queue.commit()
    assert offsets(queue) == list(range(12))
    assert names(tmp_path) == [0, 5, 10]
    span = queue.entries(QueueOffset(3), 8)
    assert [log_offset // SIZE for log_offset, _, _ in ENTRY.iter_unpack(span)] == list(
        range(3, 11)
    )
    assert len(queue.entries(QueueOffset(10), 100)) == 2 * ENTRY_SIZE
    assert queue.entries(QueueOffset(12), 1) == b""


def test_a_batch_of_entries_is_one_write_for_each_file(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    queue = make_queue(tmp_path, disk)
    put(queue, range(5))
    queue.commit()
    queue.commit()
    assert disk.calls["pwrite"] == 1
    put(queue, range(5, 11))
    queue.commit()
    assert disk.calls["pwrite"] == 3


def test_a_record_that_was_put_before_is_passed_over(tmp_path: Path) -> None:
    queue = filled(tmp_path, 4)
    put(queue, range(6))
    queue.commit()
    assert offsets(queue) == list(range(6))
    queue = reopened(tmp_path)
    put(queue, range(7))
    queue.commit()
    assert offsets(queue) == list(range(7))


def test_an_offset_that_has_an_entry_is_passed_over_even_if_its_record_is_new(
    tmp_path: Path,
) -> None:
    queue = filled(tmp_path, 4)
    queue.put(1000, SIZE, 0, 2)
    queue.commit()
    assert offsets(queue) == list(range(4))


def test_a_queue_that_begins_later_is_filled_from_the_beginning_of_its_file(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3, first=13)
    assert names(tmp_path) == [10, 15]
    content = (tmp_path / "queue" / f"{10 * ENTRY_SIZE:020}").read_bytes()
    assert list(ENTRY.iter_unpack(content))[:3] == [(0, 0x7FFFFFFF, 0)] * 3
    assert offsets(queue) == [13, 14, 15]
    assert queue.get(QueueOffset(12)) is None


def test_fillers_never_count_as_messages_after_a_restart(tmp_path: Path) -> None:
    """In the original they do while the log still begins at 0."""
    filled(tmp_path, 3, first=13)
    queue = reopened(tmp_path)
    queue.correct_min(0)
    assert offsets(queue) == [13, 14, 15]
    queue.truncate_physical(0)
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (13, 13, 0)
    put(queue, range(13, 15))
    queue.commit()
    assert offsets(queue) == [13, 14]


def test_a_gap_is_filled_so_that_later_entries_keep_their_place(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    put(queue, range(5, 7))
    queue.commit()
    assert queue.get(QueueOffset(4)) == Entry(LogOffset(3 * SIZE), 0x7FFFFFFF, 0)
    assert queue.get(QueueOffset(6)) == Entry(LogOffset(6 * SIZE), SIZE, 1006)
    queue = reopened(tmp_path)
    assert (queue.max_offset, queue.max_physical_offset) == (7, 7 * SIZE)
    queue.correct_min(2 * SIZE)
    assert queue.min_offset == 2
    queue.truncate_physical(5 * SIZE)
    assert (queue.max_offset, queue.max_physical_offset) == (5, 3 * SIZE)


def test_a_gap_of_more_than_a_file_is_filled_too(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    put(queue, range(19, 20))
    queue.commit()
    assert queue.max_offset == 20
    assert [queue.get(QueueOffset(offset)) for offset in (3, 18)] == [
        Entry(LogOffset(3 * SIZE), FILLER_SIZE, 0)
    ] * 2
    assert queue.get(QueueOffset(19)) == Entry(LogOffset(19 * SIZE), SIZE, 1019)


@pytest.mark.parametrize("after", range(5))
@pytest.mark.parametrize("kind", ["pwrite", "truncate", "sync_dir", "open", "fdatasync"])
def test_what_the_disk_does_not_take_can_be_put_again(
    tmp_path: Path, kind: str, after: int
) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    queue = make_queue(tmp_path, disk)
    put(queue, range(5))
    queue.commit()
    disk.fail(kind, errno.ENOSPC, after=after, times=2, partial_bytes=30 if kind == "pwrite" else 0)
    for _ in range(3):
        put(queue, range(23))  # four more files
        with suppress(WriteFailedError):
            queue.commit()
            break
        assert (
            queue.max_offset,
            queue.next_offset,
            queue.max_physical_offset,
            names(tmp_path),
        ) == (5, 5, 5 * SIZE, [0])
    disk.heal()
    put(queue, range(23))
    queue.commit()
    assert offsets(queue) == list(range(23))
    assert offsets(reopened(tmp_path)) == list(range(23))


def test_the_minimum_is_the_first_entry_whose_record_the_log_still_has(tmp_path: Path) -> None:
    queue = filled(tmp_path, 12)
    for log_min, expected in (
        (0, 0),
        (1, 1),
        (SIZE, 1),
        (7 * SIZE - 1, 7),
        (7 * SIZE, 7),
        (3 * SIZE, 7),
        (100 * SIZE, 12),
    ):
        queue.correct_min(log_min)
        assert queue.min_offset == expected
    assert queue.entries(QueueOffset(11), 1) == b""
    put(queue, range(12, 14))
    queue.commit()
    queue.correct_min(100 * SIZE)
    assert queue.min_offset == 14


def test_files_whose_records_are_all_gone_are_removed_but_never_the_last(tmp_path: Path) -> None:
    queue = filled(tmp_path, 12)
    assert queue.delete_before(4 * SIZE) == 0
    assert queue.delete_before(9 * SIZE) == 1
    assert names(tmp_path) == [5, 10]
    assert offsets(queue) == [9, 10, 11]
    assert queue.delete_before(100 * SIZE) == 1
    assert names(tmp_path) == [10]
    assert (queue.min_offset, queue.max_offset) == (12, 12)
    queue = reopened(tmp_path)
    queue.correct_min(100 * SIZE)
    assert (queue.min_offset, queue.max_offset) == (12, 12)
    put(queue, range(12, 13))
    queue.commit()
    assert queue.get(QueueOffset(12)) is not None


@pytest.mark.parametrize("kept", range(13))
def test_a_log_that_lost_its_end_takes_its_entries_with_it_for_good(
    tmp_path: Path, kept: int
) -> None:
    queue = filled(tmp_path, 12)
    queue.truncate_physical(kept * SIZE)
    for each in (queue, reopened(tmp_path)):
        assert offsets(each) == list(range(min(kept, 12)))
        assert each.max_physical_offset == min(kept, 12) * SIZE
    content = (
        b"".join(path.read_bytes() for path in sorted((tmp_path / "queue").iterdir()))
        if kept
        else b""
    )
    assert not content[min(kept, 12) * ENTRY_SIZE :].strip(b"\0")
    put(queue, range(12))
    queue.commit()
    assert offsets(queue) == list(range(12))


@pytest.mark.parametrize("log_end", range(0, 13 * SIZE, SIZE // 2))
def test_entries_of_records_that_the_log_has_not_are_cut_at_the_start(
    tmp_path: Path, log_end: int
) -> None:
    filled(tmp_path, 12)
    queue = reopened(tmp_path, log_end)
    assert offsets(queue) == list(range(min(log_end // SIZE, 12)))
    assert offsets(reopened(tmp_path)) == offsets(queue)


def test_recovery_looks_at_the_last_three_files_only(tmp_path: Path) -> None:
    filled(tmp_path, 22)
    first = tmp_path / "queue" / f"{0:020}"
    first.write_bytes(b"\xff" * FILE_SIZE)
    queue = reopened(tmp_path)
    assert queue.max_offset == 22
    (tmp_path / "queue" / f"{10 * ENTRY_SIZE:020}").write_bytes(b"\xff" * FILE_SIZE)
    queue = reopened(tmp_path)
    assert queue.max_offset == 10
    assert names(tmp_path) == [0, 5]


@pytest.mark.parametrize(
    "damage",
    [
        ENTRY.pack(-1, SIZE, 0),
        ENTRY.pack(700, 0, 0),
        ENTRY.pack(700, -5, 0),
        ENTRY.pack(6 * SIZE - 1, SIZE, 0),  # into the record before
        b"\xff" * ENTRY_SIZE,
    ],
)
def test_an_entry_that_cannot_be_one_ends_the_queue(tmp_path: Path, damage: bytes) -> None:
    filled(tmp_path, 12)
    path = tmp_path / "queue" / f"{5 * ENTRY_SIZE:020}"
    content = path.read_bytes()
    path.write_bytes(content[:ENTRY_SIZE] + damage + content[2 * ENTRY_SIZE :])
    queue = reopened(tmp_path)
    assert offsets(queue) == list(range(6))
    queue.destroy()
    put(queue, range(12))
    queue.commit()
    assert offsets(queue) == list(range(12))
    assert offsets(reopened(tmp_path)) == list(range(12))


def test_an_empty_last_file_is_removed_and_other_lengths_and_gaps_are_errors(
    tmp_path: Path,
) -> None:
    filled(tmp_path, 12)
    (tmp_path / "queue" / f"{15 * ENTRY_SIZE:020}").touch()
    (tmp_path / "queue" / "notes").touch()
    assert offsets(reopened(tmp_path)) == list(range(12))
    path = tmp_path / "queue" / f"{5 * ENTRY_SIZE:020}"
    content = path.read_bytes()
    path.write_bytes(content + b"\0")
    with pytest.raises(StoreError, match="has 101 bytes where 100 are configured"):
        reopened(tmp_path)
    path.unlink()
    with pytest.raises(StoreError, match="one is missing"):
        reopened(tmp_path)


def test_a_queue_that_was_destroyed_has_no_folder_and_begins_anew(tmp_path: Path) -> None:
    queue = filled(tmp_path, 12)
    queue.destroy()
    assert not (tmp_path / "queue").exists()
    assert (queue.min_offset, queue.max_offset, queue.last_physical_offset()) == (0, 0, -1)
    put(queue, range(7, 9))
    queue.commit()
    assert offsets(queue) == [7, 8]
    assert queue.last_physical_offset() == 8 * SIZE


def test_a_file_holds_whole_entries() -> None:
    assert [whole_entries(size, ENTRY_SIZE) for size in (1, 20, 50, 60, 2000)] == [
        20,
        20,
        60,
        60,
        2000,
    ]


class TestOffsetByTime:
    """The table of the original; times by queue offset, files of five."""

    TIMES = (10, 10, 20, 30, 30, 30, 30, 40, 50, 50, 60, 60, 80)

    def search(
        self,
        folder: Path,
        time_ms: int,
        boundary: Boundary,
        log_min: int = 0,
        times: tuple[int, ...] = TIMES,
    ) -> int:
        queue = filled(folder, len(times))
        queue.correct_min(log_min * SIZE)

        def store_time_of(log_offset: LogOffset, size: int) -> int:
            assert size == SIZE
            return times[log_offset // SIZE] if log_offset >= log_min * SIZE else -1

        return queue.offset_by_time(
            StoreTimeMs(time_ms), boundary, store_time_of, LogOffset(log_min * SIZE)
        )

    @pytest.mark.parametrize(
        ("time_ms", "lower", "upper"),
        [
            (5, 0, 0),
            (10, 0, 1),
            (15, 2, 1),
            (20, 2, 2),
            (29, 3, 2),
            (
                30,
                3,
                6,
            ),  # an equal run, within each file: LOWER finds it in the first, UPPER in the second
            (31, 7, 6),
            (40, 7, 7),
            (50, 8, 9),
            (55, 10, 9),
            (60, 10, 11),
            (70, 12, 11),
            (80, 12, 12),
            (81, 13, 12),
        ],
    )
    def test_of_a_time(self, tmp_path: Path, time_ms: int, lower: int, upper: int) -> None:
        assert self.search(tmp_path / "lower", time_ms, Boundary.LOWER) == lower
        assert self.search(tmp_path / "upper", time_ms, Boundary.UPPER) == upper

    def test_never_lies_before_the_minimum(self, tmp_path: Path) -> None:
        assert self.search(tmp_path / "a", 5, Boundary.LOWER, log_min=7) == 7
        assert self.search(tmp_path / "b", 5, Boundary.UPPER, log_min=7) == 7
        assert self.search(tmp_path / "c", 45, Boundary.LOWER, log_min=7) == 8
        assert self.search(tmp_path / "d", 50, Boundary.LOWER, log_min=7) == 8

    @pytest.mark.parametrize("limit", [0, 100_000, 50_000])
    def test_of_thousands_of_records_of_one_time_looks_at_few(self, limit: int) -> None:
        looked_at: list[int] = []

        def is_inside(number: int) -> bool:
            looked_at.append(number)
            return 3 <= number <= 99_990

        assert edge(50_000, limit, is_inside) == min(max(limit, 3), 99_990)
        assert len(looked_at) <= 17

    def test_is_the_end_when_all_records_are_gone(self, tmp_path: Path) -> None:
        assert self.search(tmp_path / "a", 30, Boundary.LOWER, log_min=13) == 13
        assert self.search(tmp_path / "b", 30, Boundary.UPPER, log_min=13) == 13

    def test_of_an_empty_queue_is_0(self, tmp_path: Path) -> None:
        assert self.search(tmp_path / "a", 30, Boundary.LOWER, times=()) == 0
        assert self.search(tmp_path / "b", 30, Boundary.UPPER, times=()) == 0

    def test_of_a_record_that_cannot_be_read_is_the_minimum(self, tmp_path: Path) -> None:
        queue = filled(tmp_path, 5)
        times = {0: 10, 1: 20, 2: -1, 3: 30, 4: 40}
        found = queue.offset_by_time(
            StoreTimeMs(25),
            Boundary.LOWER,
            lambda offset, size: times[offset // SIZE],
            LogOffset(0),
        )
        assert found == 0


class TestExt:
    """Entries that point at units."""

    def put(self, queue: ConsumeQueue, offsets: range) -> None:
        for offset in offsets:
            queue.put(
                offset * SIZE,
                SIZE,
                -offset,
                offset,
                store_time_ms=10_000 + offset,
                bits=bytes([offset]) * (offset % 7),
            )

    def units(self, queue: ConsumeQueue) -> list[int]:
        found = []
        for offset in range(queue.min_offset, queue.max_offset):
            entry = queue.get(QueueOffset(offset))
            assert entry is not None
            assert queue.ext_unit(entry.tags_code) == ExtUnit(
                -offset, 10_000 + offset, bytes([offset]) * (offset % 7)
            )
            found.append(offset)
        return found

    def test_units_are_found_over_files(self, tmp_path: Path) -> None:
        queue = make_queue(tmp_path, ext_file_size=64)
        self.put(queue, range(12))
        queue.commit()
        assert self.units(queue) == list(range(12))
        assert all(path.stat().st_size == 64 for path in (tmp_path / "ext").iterdir())
        assert len(list((tmp_path / "ext").iterdir())) == 6

    @pytest.mark.parametrize("kept", range(13))
    def test_units_go_with_their_entries(self, tmp_path: Path, kept: int) -> None:
        queue = make_queue(tmp_path, ext_file_size=64)
        self.put(queue, range(12))
        queue.commit()
        queue.truncate_physical(kept * SIZE)
        again = make_queue(tmp_path, ext_file_size=64)
        again.recover(NO_END)
        for each in (queue, again):
            assert self.units(each) == list(range(min(kept, 12)))
        assert again.ext is not None
        assert queue.ext is not None
        assert again.ext.files.end == queue.ext.files.end
        self.put(again, range(14))
        again.commit()
        assert self.units(again) == list(range(14))

    def test_units_of_entries_whose_records_are_gone_are_removed_by_file(
        self, tmp_path: Path
    ) -> None:
        queue = make_queue(tmp_path, ext_file_size=64)
        self.put(queue, range(12))
        queue.commit()
        queue.delete_before(8 * SIZE)
        assert self.units(queue) == [8, 9, 10, 11]
        assert len(list((tmp_path / "ext").iterdir())) == 3

    def test_a_tags_code_is_no_address(self, tmp_path: Path) -> None:
        queue = make_queue(tmp_path, ext_file_size=64)
        self.put(queue, range(1))
        queue.commit()
        for code in (0, -(1 << 31), (1 << 31) - 1, 1 << 62):
            assert queue.ext_unit(code) is None

    def test_bits_that_do_not_fit_are_left_out(self, tmp_path: Path) -> None:
        queue = make_queue(tmp_path, ext_file_size=64)
        queue.put(0, SIZE, 7, 0, store_time_ms=8, bits=bytes(41))
        queue.commit()
        entry = queue.get(QueueOffset(0))
        assert entry is not None
        assert queue.ext_unit(entry.tags_code) == ExtUnit(7, 8, b"")

    def test_a_unit_that_is_not_whole_is_none(self, tmp_path: Path) -> None:
        queue = make_queue(tmp_path, ext_file_size=64)
        self.put(queue, range(2))
        queue.commit()
        entry = queue.get(QueueOffset(0))
        assert entry is not None
        path = tmp_path / "ext" / f"{0:020}"
        for damage in (b"\x00\x00", b"\xff\xff", b"\x00\x13", b"\x00\x15", b"\x7f\xff"):
            path.write_bytes(damage + path.read_bytes()[2:])
            assert queue.ext_unit(entry.tags_code) is None
