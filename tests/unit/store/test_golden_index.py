"""The index files and checkpoints of real brokers: built again from their logs byte for byte, and
answering as the real broker did.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from orbitmq.message import properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import encode
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.index import Index
from orbitmq.store.index_file import IndexShape
from orbitmq.store.types import LogOffset
from orbitmq.testing.manual_clock import ManualClock
from support.common.process_files import ProcessFiles
from support.store import golden_stores

READ_BACK = golden_stores.read_back()
KILLED = tuple(folder for folder in golden_stores.folders() if folder not in READ_BACK)
ALWAYS = (0, (1 << 63) - 1)


def make_index(folder: str, index_folder: Path) -> Index:
    settings = golden_stores.settings(folder)
    shape = IndexShape(settings["maxHashSlotNum"], settings["maxIndexNum"])
    return Index(
        ProcessFiles(),
        index_folder,
        ManualClock(golden_stores.records(folder)[0].store_time_ms),
        shape,
    )


def put_all(index: Index, folder: str) -> None:
    cursor, target = RecordCursor(), bytearray(70_000)
    for record in golden_stores.records(folder):
        if record.is_indexed:
            stored = record.message
            message = stored.to_message()
            if "4.9.8" in folder:  # which does not index tags
                message.properties = properties.without(message.properties, properties.TAGS)
            size = encode(
                message,
                target,
                0,
                stored.queue_offset,
                stored.log_offset,
                stored.store_time_ms,
                stored.store_host,
            )
            assert cursor.read(target, 0, size) == size
            index.put(cursor)
            index.commit()


def assert_all_are_found(index: Index, folder: str) -> None:
    for record in golden_stores.records(folder):
        if record.is_indexed:
            for key in record.index_keys:
                assert record.log_offset in index.query(record.topic, key, 1000, *ALWAYS).offsets, (
                    record
                )


def entries(content: bytes, folder: str) -> list[tuple[int, int]]:
    """Hash and log offset of each entry of a file."""
    count = struct.unpack_from(">i", content, 36)[0]
    entries_at = 40 + 4 * golden_stores.settings(folder)["maxHashSlotNum"]
    return [
        struct.unpack_from(">iq", content, entries_at + 20 * number) for number in range(1, count)
    ]


def contents(index_folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(index_folder.iterdir())]


@pytest.mark.parametrize("folder", READ_BACK)
def test_index_files_built_from_the_log_are_those_of_the_original_byte_for_byte(
    folder: str, tmp_path: Path
) -> None:
    """But for their names. After a kill the original dropped its last file and put the last record
    of the one before into the next once more, so that its queries find that record twice; here it
    is put once.
    """
    index = make_index(folder, tmp_path)
    put_all(index, folder)
    index.stop()
    theirs = [data for _, data in sorted(golden_stores.content(folder, "index").items())]
    if folder.endswith("recovered"):
        max(tmp_path.iterdir()).unlink()
        index.load(None)
        end_offset = index.end_offset
        put_all(index, folder)
        index.stop()
        mine, other = entries(contents(tmp_path)[-1], folder), entries(theirs.pop(), folder)
        assert mine == other[-len(mine) :]
        assert {log_offset for _, log_offset in other[: -len(mine)]} == {end_offset}
    assert contents(tmp_path)[: len(theirs)] == theirs


@pytest.mark.parametrize("folder", READ_BACK)
def test_key_queries_find_what_the_real_broker_found(folder: str, tmp_path: Path) -> None:
    index = make_index(folder, golden_stores.unpack(folder, tmp_path) / "index")
    assert index.load(None) is None
    by_offset = {record.log_offset: record for record in golden_stores.records(folder)}
    queries = golden_stores.manifest(folder)["keyQueries"]
    for query in queries:
        if "4.9.8" in folder and query["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC":
            continue  # the name server did not know that topic, so the client could not ask
        hits = index.query(query["topic"], query["key"], 64, *ALWAYS)
        records = [by_offset[offset] for offset in hits.offsets]
        confirmed = [
            each.log_offset
            for each in records
            if each.topic == query["topic"] and query["key"] in each.index_keys
        ]
        assert sorted(confirmed) == query["physicalOffsets"], query
        assert hits.last_offset == index.end_offset
    assert queries
    index.stop()


@pytest.mark.parametrize("folder", READ_BACK)
def test_every_key_of_every_record_is_found(folder: str, tmp_path: Path) -> None:
    index = make_index(folder, golden_stores.unpack(folder, tmp_path) / "index")
    assert index.load(None) is None
    assert_all_are_found(index, folder)
    index.stop()


@pytest.mark.parametrize("folder", KILLED)
def test_after_a_kill_the_index_has_what_the_log_has(folder: str, tmp_path: Path) -> None:
    """The original drops the last file; here it is kept if it is whole, and dispatching goes on
    where it ends.
    """
    store = golden_stores.unpack(folder, tmp_path)
    before = contents(store / "index")
    index = make_index(folder, store / "index")
    index.load(None)
    index.truncate(LogOffset(golden_stores.log_end(folder)))
    put_all(index, folder)
    assert_all_are_found(index, folder)
    index.stop()
    assert contents(store / "index")[: len(before) - 1] == before[:-1]


@pytest.mark.parametrize("folder", golden_stores.folders())
def test_checkpoints_are_read(folder: str, tmp_path: Path) -> None:
    store = golden_stores.unpack(folder, tmp_path)
    before = (store / "checkpoint").read_bytes()
    checkpoint = Checkpoint(ProcessFiles(), store / "checkpoint")
    checkpoint.load()
    records = golden_stores.records(folder)
    assert records[0].store_time_ms <= checkpoint.log_time_ms <= records[-1].store_time_ms
    assert checkpoint.queues_time_ms in {0, *(record.store_time_ms for record in records)}
    assert checkpoint.index_time_ms in {0, *(record.store_time_ms for record in records)}
    assert checkpoint.queues_offset in {
        0,
        golden_stores.log_end(folder),
        *(record.log_offset for record in records),
    }
    assert checkpoint.min_time_ms == max(
        0, min(checkpoint.log_time_ms, checkpoint.queues_time_ms) - 3000
    )
    checkpoint.flush()
    checkpoint.close()
    assert (store / "checkpoint").read_bytes() == before
