"""The commit log: places, limits, files that close, and what remains when the disk does not take a
batch.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from orbitmq.common.errors import InvalidMessageError, StoreReadOnlyError, WriteFailedError
from orbitmq.message import batch, properties
from orbitmq.message.flags import TransactionType
from orbitmq.message.layout import MAGIC_BLANK
from orbitmq.message.record import RecordLimits, decode
from orbitmq.message.record_write import record_size
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset
from orbitmq.testing.faulty_disk import FaultyDisk
from support.common.process_files import ProcessFiles
from support.store.logs import (
    FILE_SIZE,
    HOST,
    NOW_MS,
    bodies,
    contents,
    loaded_log,
    message,
    new_log,
    place_of,
)

RECORD = record_size(message(), HOST)


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    return loaded_log(tmp_path)


def append(log: CommitLog, count: int = 1) -> None:
    for number in range(count):
        log.append(message(b"%05d" % number), NOW_MS)
    log.commit()


def test_messages_stand_one_behind_the_other_and_are_read_after_the_commit(log: CommitLog) -> None:
    first, second = (
        log.append(message(b"one"), NOW_MS),
        log.append(message(b"two", queue_id=3), NOW_MS + 5),
    )
    assert (first.offset, second.offset, first.end) == (0, first.size, second.offset)
    assert (first.store_time_ms, second.store_time_ms) == (NOW_MS, NOW_MS + 5)
    assert log.read(first.offset, first.size) is None
    assert log.end_offset == 0
    log.commit()
    assert log.end_offset == second.end
    read = log.read(second.offset, second.size)
    assert read is not None
    stored = decode(read)
    assert (stored.body, stored.queue_id, stored.log_offset, stored.store_host) == (
        b"two",
        3,
        second.offset,
        HOST,
    )
    assert log.read(second.offset, second.size + 1) is None


def test_a_commit_without_messages_does_nothing(log: CommitLog) -> None:
    log.commit()
    assert (log.end_offset, log.files.files) == (0, [])


def test_each_queue_counts_for_itself(log: CommitLog) -> None:
    places = [
        log.append(message(topic=topic, queue_id=queue_id), NOW_MS).queue_offset
        for topic, queue_id in [(b"A", 0), (b"A", 1), (b"B", 0), (b"A", 0), (b"A", 1), (b"A", 0)]
    ]
    assert places == [0, 0, 0, 1, 1, 2]
    assert dict(log.offsets) == {QueueKey("A", 0): 3, QueueKey("A", 1): 2, QueueKey("B", 0): 1}


def test_prepared_and_rolled_back_messages_take_no_place_in_their_queue(log: CommitLog) -> None:
    kinds = [
        TransactionType.NONE,
        TransactionType.PREPARED,
        TransactionType.COMMIT,
        TransactionType.ROLLBACK,
        TransactionType.NONE,
    ]
    assert [log.append(message(sys_flag=kind), NOW_MS).queue_offset for kind in kinds] == [
        0,
        0,
        1,
        0,
        2,
    ]


def test_an_inner_batch_takes_as_many_places_as_it_has_messages(log: CommitLog) -> None:
    append(log, 4)
    inner = message(batch.encode(batch.BatchItem(0, b"x", b"") for _ in range(3)))
    batch.make_inner(inner)
    place = log.append(inner, NOW_MS)
    assert (place.queue_offset, log.append(message(), NOW_MS).queue_offset) == (4, 7)
    log.commit()
    stored = decode(log.read(place.offset, place.size) or b"")
    assert stored.properties()[properties.INNER_BASE] == "4"


@pytest.mark.parametrize("count", ["", "0", "-1", "32768", "many"])
def test_an_inner_batch_that_does_not_say_how_many_it_holds_is_refused(
    count: str, log: CommitLog
) -> None:
    inner = message(sys_flag=0xC0, properties=properties.encode({properties.INNER_NUM: count}))
    with pytest.raises(InvalidMessageError, match="INNER_NUM is between 1 and 32767"):
        log.append(inner, NOW_MS)
    assert inner.properties == properties.encode({properties.INNER_NUM: count})


def test_store_times_do_not_go_back_with_the_wall_clock(log: CommitLog) -> None:
    times = [log.append(message(), NOW_MS + shift).store_time_ms for shift in (0, -5000, 3, 2)]
    assert times == [NOW_MS, NOW_MS, NOW_MS + 3, NOW_MS + 3]
    log.commit()
    assert log.last_store_time_ms == NOW_MS + 3


def test_a_file_is_closed_by_a_blank_when_no_room_for_another_blank_would_be_left(
    tmp_path: Path,
) -> None:
    for left in (7, 8):
        log = loaded_log(tmp_path / str(left))
        big = message(bytes(FILE_SIZE - RECORD - left - record_size(message(b""), HOST)))
        append(log)
        place = log.append(big, NOW_MS)
        log.commit()
        if left == 8:
            assert place.offset == RECORD
            assert len(log.files.files) == 1
        else:
            assert place.offset == FILE_SIZE
            blank = bytes(log.files.files[0].view()[RECORD : RECORD + 16])
            assert blank == (FILE_SIZE - RECORD).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(
                4, "big"
            ) + bytes(8)
        assert len(bodies(log)) == 2


def test_a_batch_of_messages_is_not_divided_between_files(log: CommitLog) -> None:
    fit = (FILE_SIZE - 8) // RECORD
    append(log, fit - 2)
    places = log.append_batch([message() for _ in range(3)], NOW_MS)
    assert [place.offset for place in places] == [
        FILE_SIZE,
        FILE_SIZE + RECORD,
        FILE_SIZE + 2 * RECORD,
    ]
    assert [place.queue_offset for place in places] == [fit - 2, fit - 1, fit]
    log.commit()
    assert len(bodies(log)) == fit + 1
    assert log.append_batch([], NOW_MS) == []


def test_one_commit_writes_each_touched_file_once(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    log = new_log(tmp_path, disk)
    for _ in range(3 * FILE_SIZE // RECORD):
        log.append(message(), NOW_MS)
    log.commit()
    assert (disk.calls["pwrite"], len(log.files.files)) == (4, 4)


def test_what_breaks_a_limit_is_refused_with_size_and_limit_and_changes_nothing(
    log: CommitLog,
) -> None:
    for bad, text in [
        (message(bytes(FILE_SIZE + 1)), f"body of {FILE_SIZE + 1} bytes: at most {FILE_SIZE}"),
        (message(topic=b"t" * 128), "topic of 128 bytes: between 1 and 127"),
        (message(properties=bytes(32768)), "properties of 32768 bytes: at most 32767"),
        (
            message(bytes(FILE_SIZE - RECORD)),
            (
                f"{FILE_SIZE - 5} bytes for a commit log whose files have {FILE_SIZE}, 8 of them"
                " reserved"
            ),
        ),
    ]:
        with pytest.raises(InvalidMessageError, match=text):
            log.append(bad, NOW_MS)
    with pytest.raises(
        InvalidMessageError,
        match=rf"70 records of \d+ bytes together: at most {2 * FILE_SIZE}; send fewer",
    ):
        log.append_batch([message(bytes(50)) for _ in range(70)], NOW_MS)
    with pytest.raises(InvalidMessageError, match="body of"):
        log.append_batch([message(), message(bytes(FILE_SIZE + 1))], NOW_MS)
    assert place_of(log.append(message(), NOW_MS)) == (0, RECORD, 0, NOW_MS)


def test_the_buffer_grows_for_a_large_message_and_shrinks_again(tmp_path: Path) -> None:
    log = new_log(
        tmp_path, commit_log_file_size=1 << 20, batch_size_max=10_000, limits=RecordLimits()
    )
    full = [log.is_batch_full]
    log.append(message(bytes(300_000)), NOW_MS)
    full.append(log.is_batch_full)
    log.commit()
    full.append(log.is_batch_full)
    assert full == [False, True, False]
    assert len(log._batch.buffer) == 10_000
    log.append(message(bytes(9_000)), NOW_MS)
    log.append(message(bytes(9_000)), NOW_MS)
    log.commit()
    assert [len(body) for body in bodies(log)] == [300_000, 9_000, 9_000]


def test_a_record_checksum_is_added_when_configured(tmp_path: Path) -> None:
    log = new_log(tmp_path, record_crc=True)
    append(log, 3)
    assert len(list(log.scan(LogOffset(0), check_record=True))) == 3


@pytest.mark.parametrize("kind", ["pwrite", "open", "truncate", "sync_dir"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("partial_bytes", [0, 1, 2 * RECORD + 4])
@pytest.mark.parametrize("after", [0, 1])
def test_a_commit_that_fails_leaves_the_log_as_it_was_and_a_later_one_succeeds(
    kind: str, error: int, partial_bytes: int, after: int, tmp_path: Path
) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    log = new_log(tmp_path, disk)
    append(log, 5)
    before = (log.end_offset, log.flushed_offset, log.last_store_time_ms, dict(log.offsets))
    for number in range(FILE_SIZE // RECORD):
        log.append(message(b"lost!", queue_id=number % 2), NOW_MS + 50)
    disk.fail(kind, error, after=after if kind == "pwrite" else 0, partial_bytes=partial_bytes)
    with pytest.raises(
        WriteFailedError, match=rf"could not be written at {before[0]}: .*; nothing of it was kept"
    ) as caught:
        log.commit()
    assert isinstance(caught.value.__cause__, OSError)
    assert (log.end_offset, log.flushed_offset, log.last_store_time_ms, dict(log.offsets)) == before
    log.commit()
    assert log.end_offset == before[0]

    place = log.append(message(b"kept!", queue_id=1), NOW_MS)
    assert (place.offset, place.queue_offset, place.store_time_ms) == (before[0], 0, NOW_MS)
    log.commit()
    assert len(bodies(log)) == 6
    log.files.close()
    assert bodies(loaded_log(tmp_path))[5:] == [b"kept!"], (
        "nothing of the failed batch comes back after a crash"
    )


def test_what_a_failed_commit_left_is_cleared_before_the_next_even_if_that_takes_several_tries(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    log = new_log(tmp_path, disk)
    append(log, 2)
    for _ in range(5):
        log.append(message(b"lost!"), NOW_MS)
    disk.fail("pwrite", errno.EIO, partial_bytes=4 * RECORD)
    disk.fail("clear", errno.EIO, times=3)
    with pytest.raises(
        WriteFailedError, match=r"could not be cleared .* may reappear if the broker ends before"
    ):
        log.commit()
    log.append(message(b"never"), NOW_MS)
    with pytest.raises(WriteFailedError):
        log.commit()
    append(log, 1)
    assert len(bodies(log)) == 3
    log.files.close()
    again = loaded_log(tmp_path)
    assert b"lost!" not in bodies(again)
    assert len(bodies(again)) == 3


def test_a_failed_flush_makes_the_log_read_only_for_good_and_keeps_the_reason(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    log = new_log(tmp_path, disk)
    append(log, 3)
    job = log.begin_flush()
    assert job is not None
    log.end_flush(job, OSError(errno.EIO, "Input/output error"))
    assert log.read_only_reason is not None
    assert "Input/output error" in log.read_only_reason
    for attempt in (
        lambda: log.append(message(), NOW_MS),
        lambda: log.append_batch([message()], NOW_MS),
        log.flush,
    ):
        with pytest.raises(
            StoreReadOnlyError,
            match=r"flushing the commit log failed at 0: .*restart the broker",
        ):
            attempt()
    assert (log.flushed_offset, log.begin_flush()) == (0, None)
    assert len(bodies(log)) == 3, "what is there can be read"


def test_a_commit_whose_leftovers_cannot_be_synced_away_makes_the_log_read_only(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    log = new_log(tmp_path, disk)
    append(log, 2)
    log.append(message(), NOW_MS)
    disk.fail("pwrite", errno.ENOSPC, partial_bytes=50)
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(WriteFailedError, match="No space left"):
        log.commit()
    with pytest.raises(StoreReadOnlyError):
        log.append(message(), NOW_MS)
    assert len(bodies(log)) == 2


def test_a_flush_here_and_now_that_fails_is_not_tried_again(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    log = new_log(tmp_path, disk)
    append(log, 3)
    disk.fail("fdatasync", errno.EIO)
    synced = disk.calls["fdatasync"]
    for _ in range(3):
        with pytest.raises(StoreReadOnlyError):
            log.flush()
    assert (disk.calls["fdatasync"], log.flushed_offset) == (synced + 1, 0)


def test_a_scan_says_where_it_stopped_and_why(log: CommitLog) -> None:
    append(log, 50)
    assert len(log.files.files) == 2
    scan, _ = contents(log)
    assert (scan.offset, scan.problem) == (log.end_offset, None)
    assert len(list(log.scan(LogOffset(0), LogOffset(3 * RECORD)))) == 3
    assert list(log.scan(log.end_offset)) == []
    assert list(log.scan(LogOffset(10 * FILE_SIZE))) == []

    log.files.files[0].pwrite(5 * RECORD + 90, b"X")
    scan, _ = contents(log)
    assert scan.offset == 5 * RECORD
    assert (
        scan.problem
        == f"no record at {5 * RECORD}: its body does not have the checksum that was stored"
    )
    assert len(list(log.scan(LogOffset(0), check_body=False))) == 50

    log.files.files[0].pwrite(2 * RECORD, bytes(log.files.files[0].view()[:RECORD]))
    scan, _ = contents(log)
    assert scan.offset == 2 * RECORD
    assert scan.problem == f"the record at {2 * RECORD} states the offset 0"


def test_a_log_that_was_cut_forgets_what_was_behind(log: CommitLog) -> None:
    append(log, 60)
    log.resume(LogOffset(3 * RECORD), log.last_store_time_ms)
    assert len(bodies(log)) == 3
    log.offsets.clear()
    log.offsets.restore(QueueKey("Topic", 0), QueueOffset(3))
    assert place_of(log.append(message(), 0)) == (3 * RECORD, RECORD, 3, NOW_MS)
    log.offsets.undo()
    log.discard()
    log.offsets.forget("Topic")
    assert (dict(log.offsets), log.offsets.peek(b"Topic", 0)) == ({}, 0)


def test_a_clean_stop_leaves_no_file_that_holds_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, 3)
    log.files.prepare_next()
    log.close()
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == ["0" * 20]
