"""The files of a log: what is loaded, what is refused, and in which folder the next one is made."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from orbitmq.common.errors import StoreError
from orbitmq.store.file_queue import FileQueue, file_name
from orbitmq.testing.faulty_disk import FaultyDisk
from support.common.process_files import ProcessFiles

SIZE = 1000


def queue_in(folder: Path) -> FileQueue:
    return FileQueue(ProcessFiles(), [folder], SIZE)


def make_files(folder: Path, *starts: int, size: int = SIZE) -> None:
    folder.mkdir(exist_ok=True)
    for start in starts:
        (folder / file_name(start)).write_bytes(bytes([start // SIZE + 1]) * size)


def names(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir())


def filled(folder: Path, end: int) -> FileQueue:
    """A queue of `end` written bytes."""
    queue = queue_in(folder)
    for start in range(0, end, SIZE):
        queue.write(start, b"x" * min(SIZE, end - start))
    queue.end_offset = end
    return queue


def test_a_new_queue_makes_its_folder_and_files_of_full_length_that_take_no_space(
    tmp_path: Path,
) -> None:
    queue = queue_in(tmp_path / "a" / "b")
    queue.load()
    assert (queue.first_offset, queue.end_offset, queue.flushed_offset, queue.last()) == (
        0,
        0,
        0,
        None,
    )
    file = queue.roll(0)
    assert file.path.name == "0" * 20
    assert (file.path.stat().st_size, file.path.stat().st_blocks) == (SIZE, 0)
    assert queue.end_offset == 0


def test_files_are_loaded_in_order_and_count_as_full_but_not_as_flushed(tmp_path: Path) -> None:
    make_files(tmp_path, 2000, 4000, 3000)
    queue = queue_in(tmp_path)
    queue.load()
    assert [file.start for file in queue.files] == [2000, 3000, 4000]
    assert (queue.first_offset, queue.end_offset, queue.flushed_offset) == (2000, 5000, 2000)
    assert queue.last() is queue.find(4999) is queue.files[2]
    assert queue.find(5000) is None
    assert queue.find(1999) is None
    assert bytes(queue.view(3990, 10) or b"") == bytes([4]) * 10
    assert queue.view(3990, 11) is None, "no view crosses files"


def test_an_empty_last_file_is_deleted(tmp_path: Path) -> None:
    make_files(tmp_path, 0, 1000)
    (tmp_path / file_name(2000)).touch()
    queue = queue_in(tmp_path)
    queue.load()
    assert names(tmp_path) == [0, 1000]
    assert queue.end_offset == 2000


@pytest.mark.parametrize("size", [0, 1, SIZE - 1, SIZE + 1])
def test_a_file_of_another_length_is_refused_with_its_name_and_the_remedy(
    size: int, tmp_path: Path
) -> None:
    make_files(tmp_path, 0, 2000)
    make_files(tmp_path, 1000, size=size)
    with pytest.raises(
        StoreError,
        match=rf"{file_name(1000)} has {size} bytes, every file here should have {SIZE}: configure",
    ):
        queue_in(tmp_path).load()


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    make_files(tmp_path, 0, 2000)
    with pytest.raises(StoreError, match=r"follows .* which ends at 1000: a file is missing"):
        queue_in(tmp_path).load()


def test_a_file_twice_is_refused(tmp_path: Path) -> None:
    make_files(tmp_path / "a", 0, 1000)
    make_files(tmp_path / "b", 1000)
    with pytest.raises(StoreError, match="is there twice"):
        FileQueue(ProcessFiles(), [tmp_path / "a", tmp_path / "b"], SIZE).load()


def test_a_file_that_is_not_named_after_a_multiple_is_refused(tmp_path: Path) -> None:
    make_files(tmp_path, 500)
    with pytest.raises(StoreError, match="not named after a multiple of 1000"):
        queue_in(tmp_path).load()


def test_what_is_no_log_file_is_left_alone(tmp_path: Path) -> None:
    make_files(tmp_path, 0)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    queue = queue_in(tmp_path)
    queue.load()
    assert [file.start for file in queue.files] == [0]
    assert (tmp_path / "notes.txt").exists()


def test_folders_take_turns_and_a_full_one_is_passed_over(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("b", "a", "c")]
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    disk.ratios = dict.fromkeys(folders, 0.5)
    queue = FileQueue(disk, folders, SIZE, full_ratio=0.85)
    assert [queue.roll(start).path.parent.name for start in (0, 1000, 2000, 3000)] == [
        "a",
        "b",
        "c",
        "a",
    ]
    disk.ratios[tmp_path / "b"] = 0.9
    assert [queue.roll(start).path.parent.name for start in (4000, 5000, 6000)] == ["a", "c", "a"]
    disk.ratios = dict.fromkeys(folders, 0.9)
    assert [queue.roll(start).path.parent.name for start in (7000, 8000)] == [
        "b",
        "c",
    ], "all are full: they take turns again"


def test_no_file_is_made_in_a_read_only_folder(tmp_path: Path) -> None:
    make_files(tmp_path / "old", 0)
    queue = FileQueue(
        ProcessFiles(),
        [tmp_path / "old", tmp_path / "new"],
        SIZE,
        read_only_folders=[tmp_path / "old"],
    )
    queue.load()
    assert queue.roll(1000).path.parent.name == "new"
    with pytest.raises(StoreError, match="no folder to write to"):
        FileQueue(ProcessFiles(), [tmp_path], SIZE, read_only_folders=[tmp_path])


def test_the_prepared_file_is_the_next(tmp_path: Path) -> None:
    queue = filled(tmp_path, 1500)
    queue.prepare_next()
    queue.prepare_next()
    assert names(tmp_path) == [0, 1000, 2000]
    assert [file.start for file in queue.files] == [0, 1000]
    inode = (tmp_path / file_name(2000)).stat().st_ino
    assert queue.roll(2000).path.stat().st_ino == inode
    queue.prepare_next()
    assert names(tmp_path) == [0, 1000, 2000, 3000]


def test_a_file_that_is_being_prepared_is_waited_for(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    queue = FileQueue(disk, [tmp_path], SIZE)
    queue.roll(0)
    begun, go_on = Event(), Event()

    def slow() -> None:
        begun.set()
        assert go_on.wait(60)

    disk.stall("truncate", slow)
    with ThreadPoolExecutor(2) as executor:
        preparing = executor.submit(queue.prepare_next)
        assert begun.wait(60)
        rolling = executor.submit(queue.roll, 1000)
        go_on.set()
        preparing.result(10)
        assert rolling.result(10).start == 1000
    assert names(tmp_path) == [0, 1000]


def test_a_file_that_could_not_be_made_leaves_nothing_and_can_be_made_later(tmp_path: Path) -> None:
    for kind in ("truncate", "fdatasync", "sync_dir"):
        disk = FaultyDisk(ProcessFiles(), tmp_path)
        queue = FileQueue(disk, [tmp_path], SIZE)
        disk.fail(kind, errno.ENOSPC, times=2)
        with pytest.raises(OSError, match="No space"):
            queue.prepare_next()
        with pytest.raises(OSError, match="No space"):
            queue.roll(0)
        assert (names(tmp_path), queue.files) == ([], [])
        queue.roll(0)
        queue.truncate_to(0)
        queue.drop_prepared()
        assert names(tmp_path) == []


def test_a_clean_stop_removes_what_holds_nothing_yet(tmp_path: Path) -> None:
    queue = filled(tmp_path, 1500)
    queue.roll(2000)
    queue.prepare_next()
    queue.drop_prepared()
    assert names(tmp_path) == [0, 1000]


def test_cutting_removes_files_and_clears_what_is_behind_the_end(tmp_path: Path) -> None:
    make_files(tmp_path, 0, 1000, 2000, 3000)
    queue = queue_in(tmp_path)
    queue.load()
    queue.prepare_next()
    queue.truncate_to(1300)
    assert names(tmp_path) == [0, 1000]
    assert (tmp_path / file_name(1000)).read_bytes() == bytes([2]) * 300 + bytes(700)
    assert (queue.end_offset, queue.flushed_offset) == (1300, 0)
    with pytest.raises(StoreError, match=r"cannot truncate .* at 2001: its files end at 2000"):
        queue.truncate_to(2001)
    queue.truncate_to(1000)
    assert names(tmp_path) == [
        0,
        1000,
    ], "a file that begins at the end is kept, as the original does"
    queue.truncate_to(0)
    assert (names(tmp_path), queue.end_offset) == ([0], 0)


def test_cutting_below_the_first_file_empties_the_queue(tmp_path: Path) -> None:
    make_files(tmp_path, 2000, 3000)
    queue = queue_in(tmp_path)
    queue.load()
    queue.truncate_to(500)
    assert (names(tmp_path), queue.first_offset, queue.end_offset) == ([], 500, 500)


def test_the_oldest_file_goes_but_not_the_one_that_holds_the_end_or_is_not_flushed(
    tmp_path: Path,
) -> None:
    queue = filled(tmp_path, 2500)
    assert not queue.delete_oldest(), "nothing is flushed"
    queue.flush()
    assert queue.delete_oldest()
    assert queue.delete_oldest()
    assert not queue.delete_oldest()
    assert (names(tmp_path), queue.first_offset, queue.end_offset) == ([2000], 2000, 2500)


def test_the_last_file_stays_even_when_it_is_full(tmp_path: Path) -> None:
    queue = filled(tmp_path, 1000)
    queue.flush()
    assert not queue.delete_oldest()


def test_a_reader_of_a_deleted_file_reads_on(tmp_path: Path) -> None:
    queue = filled(tmp_path, 1500)
    queue.flush()
    view = queue.view(990, 10)
    assert view is not None
    queue.delete_oldest()
    assert queue.view(990, 10) is None
    assert bytes(view) == b"x" * 10


def test_a_closed_file_opens_again_and_a_held_one_stays_open_until_released(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    queue = FileQueue(disk, [tmp_path], SIZE)
    queue.write(0, b"x" * 10)
    queue.end_offset = 10
    job = queue.begin_flush()
    assert job is not None
    queue.close()
    disk.fdatasync(job.descriptors[0])
    queue.end_flush(job)
    assert not queue.files[0].is_open
    with pytest.raises(KeyError):
        disk.fdatasync(job.descriptors[0])
    assert bytes(queue.view(0, 10) or b"") == b"x" * 10


def test_a_flush_covers_the_files_since_the_last_one(tmp_path: Path) -> None:
    queue = filled(tmp_path, 2500)
    job = queue.begin_flush()
    assert job is not None
    assert (len(job.descriptors), job.end_offset, queue.flushed_offset) == (3, 2500, 0)
    queue.write(2500, b"y" * 10)
    queue.end_offset = 2510
    queue.end_flush(job)
    assert queue.flushed_offset == 2500
    job = queue.begin_flush()
    assert job is not None
    assert (len(job.descriptors), job.end_offset) == (1, 2510)
    queue.end_flush(job, OSError("broken"))
    assert queue.flushed_offset == 2500
    queue.flush()
    assert (queue.flushed_offset, queue.begin_flush()) == (2510, None)


def test_a_flush_that_was_under_way_when_the_queue_was_cut_says_nothing_of_what_follows(
    tmp_path: Path,
) -> None:
    queue = filled(tmp_path, 500)
    job = queue.begin_flush()
    assert job is not None
    queue.truncate_to(100)
    queue.write(100, b"z" * 800)
    queue.end_offset = 900
    queue.end_flush(job)
    assert queue.flushed_offset == 0


def test_files_are_read_ahead_or_not_those_to_come_too(tmp_path: Path) -> None:
    def at_random() -> set[str]:
        """The files whose mappings the system was told to read at random."""
        found, name = set(), ""
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if str(tmp_path) in line:
                name = line.rpartition("/")[2]
            elif line.startswith("VmFlags:"):
                found |= {name} if name and " rr" in line else set()
                name = ""
        return found

    queue = filled(tmp_path, 1500)
    views = [queue.view(0, 10)]
    queue.read_ahead(False)
    views.append(queue.view(SIZE, 10))
    queue.write(2 * SIZE, b"x")
    queue.end_offset = 2 * SIZE + 1
    views.append(queue.view(2 * SIZE, 1))
    assert (at_random(), None in views) == (
        {file_name(SIZE * number) for number in range(3)},
        False,
    )
    queue.read_ahead(True)
    assert at_random() == set()
