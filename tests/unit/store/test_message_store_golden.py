"""The real broker's store directories, opened: every message, offset and key of the manifests is
found, after stops and after kills.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from orbitmq.common.clock import SystemClock
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.config import StoreConfig
from orbitmq.store.index_file import IndexHeader, IndexShape
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reads import GetStatus
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs
from support.common.process_files import ProcessFiles
from support.store import golden_stores

STORE_HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def opened(folder: str, root: Path, **changes: Any) -> MessageStore:
    """The golden store at `folder`, unpacked to `root` and opened with its own file sizes."""
    golden_stores.unpack(folder, root)
    return opened_at(folder, root, **changes)


def opened_at(folder: str, root: Path, **changes: Any) -> MessageStore:
    """What is in `root` now, opened with the file sizes of the golden store at `folder`."""
    settings = golden_stores.settings(folder)
    config = StoreConfig(
        root=root,
        commit_log_file_size=settings["mappedFileSizeCommitLog"],
        queue_file_size=settings["mappedFileSizeConsumeQueue"],
        queue_ext_file_size=(
            settings["mappedFileSizeConsumeQueueExt"]
            if settings.get("enableConsumeQueueExt")
            else None
        ),
        batch_queue_file_size=settings.get("mapperFileSizeBatchConsumeQueue", 4600),
        index_shape=IndexShape(settings["maxHashSlotNum"], settings["maxIndexNum"]),
        **changes,
    )
    store = MessageStore(ProcessFiles(), SystemClock(), config, STORE_HOST)
    store.open()
    return store


def check(store: MessageStore, folder: str) -> None:
    """Everything that the manifest says is there, found by queue, by log offset, by key and by
    time.
    """
    manifest = golden_stores.manifest(folder)
    by_offset = {message["physicalOffset"]: message for message in manifest["messages"]}
    for told in manifest["queues"]:
        queue = store.queues.plain.find(told["topic"], told["queueId"]) or store.queues.batch.find(
            told["topic"], told["queueId"]
        )
        assert queue is not None, told
        assert (queue.min_offset, queue.max_offset) == (told["minOffset"], told["maxOffset"]), told
        assert store.log.offsets.peek(told["topic"].encode(), told["queueId"]) == told["maxOffset"]
        if store.queues.plain.find(told["topic"], told["queueId"]) is not None:
            check_queue(
                store, QueueKey(told["topic"], told["queueId"]), told["maxOffset"], by_offset
            )
    for offset, told in by_offset.items():
        message = store.reads.message_at(offset)
        assert message is not None, told
        size = told["size"] or message.size  # the messages of an inner batch have none of their own
        assert (message.topic, message.queue_id, message.size) == (
            told["topic"],
            told["queueId"],
            size,
        )
    for asked in manifest["keyQueries"]:
        if (
            asked["error"]
            and asked["topic"].startswith("RMQ_SYS_")
            and folder.startswith("store-4.9")
        ):
            continue  # the 4.9 client found no route to it, and did not ask
        found = store.reads.query(asked["topic"], asked["key"])
        assert [message.log_offset for message in found] == sorted(set(asked["physicalOffsets"])), (
            asked
        )
    for asked in (
        manifest["searchOffset"] if folder.startswith("store-5") else ()
    ):  # 4.9 has another rule
        if store.queues.plain.find(asked["topic"], asked["queueId"]) is not None:
            found_offset = store.reads.offset_by_time(
                QueueKey(asked["topic"], asked["queueId"]), StoreTimeMs(asked["timestamp"])
            )
            assert found_offset == asked["offset"], asked


@pytest.mark.parametrize("folder", golden_stores.read_back())
def test_a_healthy_index_of_the_original_is_kept_as_it_is(
    folder: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """But for the tags of the last record, which 4.9 does not index."""
    golden_stores.unpack(folder, tmp_path)
    paths = sorted((tmp_path / "index").iterdir())
    before = [path.read_bytes() for path in paths]
    last_count = IndexHeader(*struct.unpack_from(">qqqqii", before[-1])).entry_count
    entries_at = IndexShape(golden_stores.settings(folder)["maxHashSlotNum"]).entries_at
    for _ in range(2):  # the second start has a manifest
        opened_at(folder, tmp_path).close()
        assert sorted((tmp_path / "index").iterdir()) == paths
        after = [path.read_bytes() for path in paths]
        entries_end = entries_at + 20 * last_count
        assert after[-1][entries_at:entries_end] == before[-1][entries_at:entries_end]
        assert after[:-1] == before[:-1]
        assert after == before or "4.9" in folder
    assert len([record for record in caplog.records if "index_unproven" in record.message]) == 1
    assert not [record for record in caplog.records if "index_rebuilt from" in record.message]


def check_queue(
    store: MessageStore, queue: QueueKey, end: int, by_offset: dict[int, dict[str, Any]]
) -> None:
    """A whole queue is read, a few messages at a time, and every record of it is the one that the
    manifest has.
    """
    offset, cursor = QueueOffset(0), RecordCursor()
    while offset < end:
        result = store.reads.get(queue, offset, count_max=3)
        assert result.status is GetStatus.FOUND
        at = 0
        for _ in range(result.record_count):
            at += cursor.read(result.records, at, len(result.records))
            assert (cursor.topic().decode(), cursor.queue_id, cursor.queue_offset) == (
                *queue,
                offset,
            )
            told = by_offset.get(cursor.log_offset)
            assert told is None or (told["queueId"], told["queueOffset"]) == (
                queue.queue_id,
                offset,
            )
            offset = QueueOffset(offset + 1)
        assert (at, offset) == (len(result.records), result.next_offset)
    assert store.reads.get(queue, offset, count_max=1).status is GetStatus.OFFSET_OVERFLOW_ONE


@pytest.mark.parametrize("folder", golden_stores.read_back())
def test_a_store_that_the_real_broker_stopped_is_read_whole(folder: str, tmp_path: Path) -> None:
    store = opened(folder, tmp_path)
    check(store, folder)
    store.close()
    assert not (tmp_path / "abort").exists()


KILLED = [
    folder
    for folder in golden_stores.folders()
    if folder.endswith("/store")
    and folder.replace("/store", "/recovered") in golden_stores.folders()
]


@pytest.mark.parametrize("folder", KILLED)
def test_a_store_whose_broker_was_killed_recovers_to_what_the_real_one_recovers(
    folder: str, tmp_path: Path
) -> None:
    store = opened(folder, tmp_path, truncate_damage=True)
    check(store, folder)
    store.close()


@pytest.mark.parametrize("folder", [folder for folder in KILLED if "/badcrc/" in folder])
def test_a_bad_record_with_good_ones_behind_it_costs_nobody_anything_unasked(
    folder: str, tmp_path: Path
) -> None:
    told = golden_stores.manifest(folder)
    store = opened(folder, tmp_path)
    (bad,) = store.quarantine
    assert bad.reason == "its body does not have the checksum that was stored"
    assert (
        store.log.end_offset
        > bad.end
        > bad.offset
        >= max(message["physicalOffset"] for message in told["messages"])
    )
    messages = [
        store.reads.message_at(LogOffset(message["physicalOffset"])) for message in told["messages"]
    ]
    assert None not in messages
    assert store.reads.message_at(bad.offset) is None
    behind = [record.log_offset for record in store.log.scan(bad.end)]
    assert behind
    assert None not in [store.reads.message_at(LogOffset(offset)) for offset in behind]
    store.close()
    again = opened_at(folder, tmp_path)
    assert again.log.end_offset == store.log.end_offset
    again.close()


@pytest.mark.parametrize("folder", golden_stores.read_back())
def test_queues_and_index_that_are_missing_are_built_from_the_log(
    folder: str, tmp_path: Path
) -> None:
    golden_stores.unpack(folder, tmp_path)
    for name in ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index"):
        for path in sorted((tmp_path / name).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    (tmp_path / "checkpoint").unlink()
    settings = golden_stores.settings(folder)
    config = StoreConfig(
        root=tmp_path,
        commit_log_file_size=settings["mappedFileSizeCommitLog"],
        queue_file_size=settings["mappedFileSizeConsumeQueue"],
        index_shape=IndexShape(settings["maxHashSlotNum"], settings["maxIndexNum"]),
        truncate_damage=True,  # the original leaves records that it gave up behind the end
    )
    (tmp_path / "abort").touch()  # nothing is known: everything is dispatched again
    store = MessageStore(ProcessFiles(), SystemClock(), config, STORE_HOST)
    store.open()
    check(store, folder)
    store.close()
