"""The logs that real brokers wrote are read, continued, and written again byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.message.layout import CRC_PROPERTY_SIZE
from orbitmq.message.properties import CRC32
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.queue_offsets import QueueOffsets
from orbitmq.store.types import QueueKey, QueueOffset, StoreTimeMs
from support.common.golden_data import RECORDS_IN_LOG
from support.common.process_files import ProcessFiles
from support.store.logs import HOST, NOW_MS, bodies, golden_logs, loaded_log, message, new_log


def put_down(name: str, root: Path) -> int:
    """Write the files of a golden log where a log looks for them, and return their size."""
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    for file, content in golden_logs()[name].items():
        (folder / file).write_bytes(content)
    return len(content)


def stored_messages(log: CommitLog) -> list[StoredMessage]:
    scan = log.scan(log.min_offset)
    found = [record.message() for record in scan]
    assert scan.problem is None
    return found


def has_crc(stored: StoredMessage) -> bool:
    return stored.raw_properties[-CRC_PROPERTY_SIZE:].startswith(f"{CRC32}\x01".encode())


def test_there_are_golden_logs_to_read() -> None:
    assert golden_logs().keys() == RECORDS_IN_LOG.keys()


@pytest.mark.parametrize("name", RECORDS_IN_LOG)
def test_every_record_is_read_and_the_log_goes_on_behind_the_last(
    name: str, tmp_path: Path
) -> None:
    size = put_down(name, tmp_path)
    log = loaded_log(tmp_path, commit_log_file_size=size)
    before = stored_messages(log)
    assert len(before) == RECORDS_IN_LOG[name]

    end = log.end_offset
    added = [log.append(message(f"new {number}".encode()), NOW_MS) for number in range(40)]
    log.commit()
    assert added[0].offset == end or size - end % size < added[0].size + 8
    assert added[0].store_time_ms == before[-1].store_time_ms > NOW_MS, (
        "the golden logs are younger than the clock of this test"
    )
    log.flush()
    log.close()

    again = loaded_log(tmp_path, commit_log_file_size=size)
    after = stored_messages(again)
    assert after[: len(before)] == before
    assert [
        (each.body, each.log_offset, each.queue_offset, each.store_host)
        for each in after[len(before) :]
    ] == [
        (f"new {number}".encode(), each.offset, number, HOST) for number, each in enumerate(added)
    ]
    again.close()


@pytest.mark.parametrize("commit_every", [1, 7, 10_000])
@pytest.mark.parametrize("name", RECORDS_IN_LOG)
def test_the_same_messages_make_the_same_files(
    name: str, commit_every: int, tmp_path: Path
) -> None:
    size = put_down(name, tmp_path / "theirs")
    theirs = loaded_log(tmp_path / "theirs", commit_log_file_size=size)
    messages = stored_messages(theirs)
    config = StoreConfig(
        root=tmp_path / "ours", commit_log_file_size=size, record_crc=has_crc(messages[0])
    )
    ours = CommitLog(ProcessFiles(), config, messages[0].store_host, QueueOffsets())
    ours.files.roll(theirs.min_offset)  # a slave that joined late begins behind 0
    ours.load()
    ours.resume(theirs.min_offset, StoreTimeMs(messages[0].store_time_ms))
    if theirs.min_offset:
        for stored in reversed(messages):
            ours.offsets.restore(
                QueueKey(stored.topic, stored.queue_id), QueueOffset(stored.queue_offset)
            )
    for number, stored in enumerate(messages, 1):
        ours.append(stored.to_message(), stored.store_time_ms)
        if number % commit_every == 0:
            ours.commit()
    ours.commit()
    assert ours.end_offset == theirs.end_offset
    for mine, original in zip(ours.files.files, theirs.files.files, strict=True):
        used = min(size, theirs.end_offset - original.start)
        assert bytes(mine.view()[:used]) == golden_logs()[name][original.path.name][:used]
        assert bytes(mine.view()[used:]) == bytes(size - used)
    ours.close()
    theirs.close()


def test_a_log_of_another_file_size_is_refused(tmp_path: Path) -> None:
    put_down("store-5.5.0/clean/store", tmp_path)
    log = new_log(tmp_path, commit_log_file_size=4096)
    with pytest.raises(
        Exception,
        match=r"00000000000000000000 has 65536 bytes, every file here should have 4096: configure",
    ):
        log.load()


def test_a_log_over_several_directories_is_one_log(tmp_path: Path) -> None:
    parts = golden_logs()["store-5.5.0/tiny/store"]
    folders = [tmp_path / name for name in "abc"]
    for number, (file, content) in enumerate(parts.items()):
        folder = folders[number % 3]
        folder.mkdir(exist_ok=True)
        (folder / file).write_bytes(content)
    log = loaded_log(
        tmp_path, commit_log_folders=tuple(folders[:2]), read_only_commit_log_folders=(folders[2],)
    )
    assert len(bodies(log)) == RECORDS_IN_LOG["store-5.5.0/tiny/store"]
    for _ in range(100):
        log.append(message(), NOW_MS)
    log.commit()
    assert len(bodies(log)) == RECORDS_IN_LOG["store-5.5.0/tiny/store"] + 100
    assert len(list(folders[2].iterdir())) == len(parts) // 3
    log.close()
