"""All queues of a store: opened late, by few descriptors, each cut to the log; and the files they
share.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.common.errors import StoreError
from orbitmq.store.batch_consume_queue import BatchEntry
from orbitmq.store.consume_queue import ENTRY_SIZE
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.queue_files import QueueFiles
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs
from orbitmq.testing.faulty_disk import FaultyDisk
from support.common.process_files import ProcessFiles
from support.store.indexes import UnsyncedLayer

PER_FILE = 5
FILE_SIZE = PER_FILE * ENTRY_SIZE


def make_queues(root: Path, disk: FaultyDisk | None = None, open_files_max: int = 512) -> Queues:
    return Queues(
        disk or UnsyncedLayer(),
        root,
        file_size=FILE_SIZE,
        batch_file_size=2 * 46,
        open_files_max=open_files_max,
    )


def put(queues: Queues, topic: str, queue_id: int, count: int, first: int = 0) -> None:
    queue = queues.plain.obtain(topic, queue_id)
    for offset in range(first, first + count):
        queue.put(offset * 100, 100, 0, offset)
    queue.commit()


def counting(root: Path) -> FaultyDisk:
    root.mkdir(exist_ok=True)
    return FaultyDisk(UnsyncedLayer(), root)


def test_starting_opens_no_file_and_looks_at_none(tmp_path: Path) -> None:
    queues = make_queues(tmp_path)
    for number in range(20):
        put(queues, f"topic{number // 4}", number % 4, 3)
    queues.close()
    disk = counting(tmp_path)
    queues = make_queues(tmp_path, disk)
    queues.load()
    queues.bound(LogOffset(0), LogOffset(300))
    assert (disk.calls["open"], disk.calls["size"], disk.calls["list"]) == (0, 0, 7)
    assert set(queues.plain) == {
        QueueKey(f"topic{number // 4}", number % 4) for number in range(20)
    }
    assert not list(queues.plain.opened())
    queue = queues.plain.find("topic3", 2)
    assert queue is not None
    assert queue.max_offset == 3
    assert queue is queues.plain.find("topic3", 2)
    assert disk.calls["open"] == 1
    assert list(queues.plain.opened()) == [queue]


def test_queues_that_are_not_there_are_not_found_and_made_when_wanted(tmp_path: Path) -> None:
    queues = make_queues(tmp_path)
    assert queues.plain.find("Topic", 0) is None
    queue = queues.plain.obtain("Topic", 0)
    assert queues.plain.find("Topic", 0) is queue
    assert queues.plain.find("Topic", 1) is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../../etc", "nul\0", "x" * 256])
def test_a_topic_that_is_no_folder_name_gets_no_queue(tmp_path: Path, topic: str) -> None:
    with pytest.raises(StoreError, match="its folder cannot have that name"):
        make_queues(tmp_path).plain.obtain(topic, 0)


def test_all_queues_are_used_by_few_descriptors(tmp_path: Path) -> None:
    disk = counting(tmp_path)
    queues = make_queues(tmp_path, disk, open_files_max=3)
    for round_ in range(3):
        for number in range(10):
            put(queues, "Topic", number, 2, 2 * round_)
            assert queues.files.open_count <= 3
    assert disk.calls["open"] - disk.calls["close"] == 3
    for number in range(10):
        queue = queues.plain.obtain("Topic", number)
        assert len(queue.entries(QueueOffset(0), 100)) == 6 * ENTRY_SIZE
    queues.close()
    assert disk.calls["open"] == disk.calls["close"]


def test_open_and_unopened_queues_are_cut_to_the_log(tmp_path: Path) -> None:
    queues = make_queues(tmp_path)
    for number in range(4):
        put(queues, "Topic", number, 10)
    queues.close()
    queues = make_queues(tmp_path)
    queues.load()
    queues.plain.obtain("Topic", 0)
    queues.bound(LogOffset(200), LogOffset(750))
    expected = {
        0: (2, 8),
        1: (2, 7),
        2: (2, 7),
        3: (2, 7),
    }  # an open queue goes by where records begin, as the original
    assert {
        key.queue_id: (queue.min_offset, queue.max_offset) for key, queue in queues.plain.open_all()
    } == expected
    queues.correct_min(LogOffset(400))
    assert {queue.min_offset for queue in queues.plain.opened()} == {4}


def test_files_whose_records_are_gone_are_removed_one_queue_at_a_time(tmp_path: Path) -> None:
    queues = make_queues(tmp_path)
    for number in range(3):
        put(queues, "Topic", number, 12)
    batch = queues.batch.obtain("Batch", 0)
    for number in range(5):
        batch.put(
            BatchEntry(
                LogOffset(number * 100), 100, 0, StoreTimeMs(number), QueueOffset(3 * number), 3
            )
        )
    batch.commit()
    queues.close()
    queues = make_queues(tmp_path)
    queues.load()
    steps = queues.delete_before(LogOffset(1000))
    assert next(steps) == 2
    assert len(list(queues.plain.opened())) == 1
    assert list(steps) == [2, 2, 2]
    assert {queue.min_offset for queue in queues.plain.opened()} == {10}


def test_a_topic_is_removed_with_its_folders(tmp_path: Path) -> None:
    queues = make_queues(tmp_path)
    for topic in ("Gone", "Stays"):
        for number in range(2):
            put(queues, topic, number, 7)
    queues.close()
    queues = make_queues(tmp_path)
    queues.load()
    queues.delete_topic("Gone")
    assert queues.plain.find("Gone", 0) is None
    assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["Stays"]
    put(queues, "Gone", 0, 2)
    queue = queues.plain.find("Gone", 0)
    assert queue is not None
    assert queue.max_offset == 2


def test_folders_that_are_no_queues_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "Topic" / "notes").mkdir(parents=True)
    (tmp_path / "consumequeue" / "file").touch()
    queues = make_queues(tmp_path)
    queues.load()
    assert list(queues.plain) == []


class TestOpenFiles:
    """What is written is known until it is synced, whatever is closed meanwhile."""

    def test_a_flush_job_names_what_is_unsynced_once(self, tmp_path: Path) -> None:
        disk = counting(tmp_path)
        queues = make_queues(tmp_path, disk, open_files_max=2)
        for number in range(5):
            put(queues, "Topic", number, 1 + number)
        files = queues.files
        job = files.begin_flush(bytes_min=3 * ENTRY_SIZE)
        assert job is not None
        assert sorted(file.folder[-1] for file in job.files) == ["2", "3", "4"]
        assert len(set(job.descriptors)) == 3
        for number in range(5):  # the descriptors of a job stay open and its files writable
            put(queues, "Topic", number, 1, 1 + number)
        for descriptor in job.descriptors:
            disk.fdatasync(descriptor)
        files.end_flush(job)
        assert files.open_count <= 2
        assert files.unsynced_count == 5
        files.flush()
        assert files.unsynced_count == 0
        assert files.begin_flush() is None

    def test_jobs_have_a_limit_and_the_rest_comes_next(self, tmp_path: Path) -> None:
        queues = make_queues(tmp_path, open_files_max=2)
        for number in range(5):
            put(queues, "Topic", number, 1)
        sizes = []
        while (job := queues.files.begin_flush(files_max=2)) is not None:
            sizes.append(len(job.files))
            queues.files.end_flush(job)
        assert sizes == [2, 2, 1]

    def test_a_file_deleted_while_it_is_synced_is_closed_after(self, tmp_path: Path) -> None:
        disk = counting(tmp_path)
        queues = make_queues(tmp_path, disk)
        put(queues, "Topic", 0, 12)
        job = queues.files.begin_flush()
        assert job is not None
        queues.delete_topic("Topic")
        for descriptor in job.descriptors:
            disk.fdatasync(descriptor)
        queues.files.end_flush(job)
        assert disk.calls["open"] == disk.calls["close"]

    def test_a_file_deleted_before_it_was_synced_is_not_missed(self, tmp_path: Path) -> None:
        queues = make_queues(tmp_path)
        put(queues, "Topic", 0, 12)  # three files, of which two were let go unsynced
        queues.plain.obtain("Topic", 0).delete_before(700)
        job = queues.files.begin_flush()
        assert job is not None
        assert sorted(file.start // ENTRY_SIZE for file in job.files) == [5, 10]
        queues.files.end_flush(job)

    def test_power_loss_after_a_flush_loses_no_entry(self, tmp_path: Path) -> None:
        disk = FaultyDisk(ProcessFiles(), tmp_path / "disk")
        (tmp_path / "disk").mkdir()
        queues = make_queues(tmp_path / "disk", disk)
        put(queues, "Topic", 0, 12)
        queues.files.flush()
        put(queues, "Topic", 0, 9, 12)
        disk.power_cut(tmp_path / "after")
        queues.close()
        again = make_queues(tmp_path / "after")
        again.load()
        queue = again.plain.find("Topic", 0)
        assert queue is not None
        assert 12 <= queue.max_offset <= 21
        for offset in range(queue.max_offset):
            entry = queue.get(QueueOffset(offset))
            assert entry is not None
            assert entry.log_offset == offset * 100

    def test_bytes_are_read_over_files(self, tmp_path: Path) -> None:
        files = QueueFiles(OpenFiles(UnsyncedLayer()), str(tmp_path / "run"), 10)
        content = bytes(range(95))
        files.append(content[:7], 0)
        files.append(content[7:60], 7)
        files.append(content[60:], 60)
        for begin in range(0, 95, 7):
            for length in (0, 1, 5, 10, 33, 200):
                assert files.read(begin, length) == content[begin : begin + length]
        assert files.read(-5, 3) == files.read(95, 3) == b""
        files.drop_first()
        assert files.read(5, 10) == b""
        assert files.starts == range(10, 95, 10)
