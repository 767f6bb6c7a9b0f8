"""A log that grows by the bytes of a master's: cut anywhere, of several files, torn, corrupt, and
on a disk that fails.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.common.errors import CorruptRecordError, StoreError, WriteFailedError
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.types import LogOffset
from orbitmq.testing.faulty_disk import FaultyDisk
from support.common.process_files import ProcessFiles
from support.store.logs import FILE_SIZE, NOW_MS, bodies, golden_logs, loaded_log, message


def master_log(folder: Path, count: int = 30) -> CommitLog:
    """A log of three files, with a blank at the end of the first two."""
    log = loaded_log(folder)
    for number in range(count):
        log.append(message(b"%05d" % number + b"x" * (17 * number)), NOW_MS + number)
        log.commit()
    assert len(log.files.files) == 3
    return log


def content(log: CommitLog) -> bytes:
    """Return the bytes of a log from its beginning to its end."""
    found = b""
    for file in log.files.files:
        found += bytes(file.view()[: max(min(log.end_offset, file.end) - file.start, 0)])
    return found


def ends(log: CommitLog) -> list[int]:
    """Return every offset that may be the end of the log: before the first record, after each
    record, and after each blank.
    """
    scan = log.scan(log.min_offset)
    after = [log.min_offset, *(scan.offset for _ in scan)]
    return sorted({*after, *(file.end for file in log.files.files if file.end < log.end_offset)})


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> CommitLog:
    return master_log(tmp_path_factory.mktemp("master"))


@pytest.fixture
def slave(tmp_path: Path) -> CommitLog:
    return loaded_log(tmp_path)


def test_a_log_that_is_received_byte_by_byte_ends_behind_the_last_complete_record(
    master: CommitLog, slave: CommitLog
) -> None:
    sent, expected = content(master), ends(master)
    for at in range(len(sent)):
        slave.receive(LogOffset(at), sent[at : at + 1])
        assert slave.received_end == at + 1
        assert slave.end_offset == max(end for end in expected if end <= at + 1)
    assert content(slave) == sent
    assert bodies(slave) == bodies(master)
    assert slave.last_store_time_ms == master.last_store_time_ms


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 2 * FILE_SIZE)))
def test_pieces_of_any_size_make_the_same_log(
    master: CommitLog, tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    slave = loaded_log(tmp_path_factory.mktemp("slave"))
    sent, at = content(master), 0
    for size in [*sizes, len(sent)]:
        slave.receive(LogOffset(at), memoryview(sent)[at : at + size])
        at = min(at + size, len(sent))
    assert content(slave) == sent
    assert bodies(slave) == bodies(master)


WHOLE = [name for name in sorted(golden_logs()) if "badcrc" not in name and "torn" not in name]


@pytest.mark.parametrize("name", WHOLE)
def test_logs_of_apache_are_received_as_they_are(name: str, tmp_path: Path) -> None:
    files = golden_logs()[name]
    size = len(next(iter(files.values())))
    log = loaded_log(tmp_path, commit_log_file_size=size)
    begin = min(map(int, files))
    log.begin_at(LogOffset(begin))
    sent = b"".join(files[each] for each in sorted(files))
    at = 0
    try:
        while at < len(sent):
            log.receive(LogOffset(begin + at), sent[at : at + 32768])
            at += 32768
    except CorruptRecordError:
        pass  # the zeros behind the last record
    assert content(log) == sent[: log.end_offset - begin]
    assert bodies(log)
    assert not any(sent[log.end_offset - begin : log.end_offset - begin + 8])


def test_bytes_that_do_not_continue_the_log_are_refused_and_change_nothing(
    master: CommitLog, slave: CommitLog
) -> None:
    sent = content(master)
    slave.receive(LogOffset(0), sent[:1000])
    end = slave.end_offset
    for offset in (0, end, 999, 1001):
        with pytest.raises(StoreError, match=f"sent bytes from {offset} on, expected .* 1000 on"):
            slave.receive(LogOffset(offset), b"x")
    assert (slave.end_offset, slave.received_end) == (end, 1000)


@pytest.mark.parametrize("bit", range(8))
def test_a_damaged_record_is_not_taken_and_what_came_before_it_is_kept(
    master: CommitLog, slave: CommitLog, bit: int
) -> None:
    sent, expected = bytearray(content(master)), ends(master)
    begin, end = expected[4:6]
    sent[end - 40] ^= 1 << bit  # in the body
    with pytest.raises(CorruptRecordError, match=f"no valid record at {begin}: its body"):
        slave.receive(LogOffset(0), sent)
    assert slave.end_offset == slave.received_end == begin
    slave.receive(LogOffset(begin), content(master)[begin:])
    assert bodies(slave) == bodies(master)


def test_a_size_that_no_record_can_have_is_corrupt_before_the_rest_comes(slave: CommitLog) -> None:
    with pytest.raises(CorruptRecordError, match="mappedFileSizeCommitLog"):
        slave.receive(LogOffset(0), (FILE_SIZE + 1).to_bytes(4, "big"))
    with pytest.raises(CorruptRecordError):
        slave.receive(LogOffset(0), (200).to_bytes(4, "big") + b"\1\2\3\4")


def test_an_incomplete_record_is_dropped_and_received_again(
    master: CommitLog, slave: CommitLog
) -> None:
    sent = content(master)
    slave.receive(LogOffset(0), sent[:1000])
    end = slave.end_offset
    slave.drop_received()
    assert slave.received_end == end < 1000
    slave.receive(end, sent[end:])
    assert content(slave) == sent


def test_a_log_that_takes_messages_itself_again_clears_what_it_had_received_of_a_record(
    master: CommitLog, slave: CommitLog
) -> None:
    sent, expected = content(master), ends(master)
    slave.receive(LogOffset(0), sent[: expected[3] - 1])
    assert slave.end_offset == expected[2]
    slave.append(message(b"own"), NOW_MS + 10_000)
    slave.commit()
    own_end = slave.end_offset
    file = slave.files.files[0]
    assert not any(file.view()[own_end : own_end + 500])
    assert bodies(slave)[-1] == b"own"


def test_the_log_of_an_empty_slave_begins_where_the_master_says(tmp_path: Path) -> None:
    master = master_log(tmp_path / "master")
    slave = loaded_log(tmp_path / "slave")
    slave.begin_at(LogOffset(2 * FILE_SIZE))
    assert slave.min_offset == slave.end_offset == slave.received_end == 2 * FILE_SIZE
    slave.receive(LogOffset(2 * FILE_SIZE), content(master)[2 * FILE_SIZE :])
    assert slave.end_offset == master.end_offset
    assert bodies(slave) == bodies(master)[-len(bodies(slave)) :]
    with pytest.raises(StoreError, match="configure the master's file size"):
        loaded_log(tmp_path / "another").begin_at(LogOffset(100))


def test_a_disk_that_fails_leaves_the_log_as_it_was_and_the_bytes_are_taken_later(
    master: CommitLog, tmp_path: Path
) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    slave = loaded_log(tmp_path, disk)
    sent = content(master)
    slave.receive(LogOffset(0), sent[:1000])
    end = slave.end_offset
    disk.fail("pwrite", errno.ENOSPC, partial_bytes=50)
    with pytest.raises(WriteFailedError, match="could not be written at 1000"):
        slave.receive(LogOffset(1000), sent[1000:])
    assert slave.end_offset == slave.received_end == end
    disk.heal()
    slave.receive(end, sent[end:])
    assert content(slave) == sent
