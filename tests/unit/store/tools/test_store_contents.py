"""What a look at a store shows is what the real client read from it; and a look changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.common.errors import NotFoundError
from orbitmq.store.tools import dump, summary
from orbitmq.store.tools.dump import BodyForm
from orbitmq.store.tools.read_only import ReadOnlyLayer, lock_owner
from orbitmq.store.types import QueueKey
from support.store import golden_stores
from support.store.tools import CLEAN_5, directory, filled, golden, held, tree


@pytest.mark.parametrize("folder", golden_stores.read_back())
def test_queues_are_listed_as_the_real_broker_knows_them(folder: str, tmp_path: Path) -> None:
    root = golden(tmp_path, folder)
    before = tree(root)
    listed = {
        (queue.topic, queue.queue_id): queue for queue in summary.queue_summaries(directory(root))
    }
    told = [
        queue
        for queue in golden_stores.manifest(folder)["queues"]
        if (queue["topic"], queue["queueId"]) in listed or queue["maxOffset"]
    ]
    assert told
    for queue in told:
        found = listed[queue["topic"], queue["queueId"]]
        assert (found.min_offset, found.max_offset) == (
            queue["minOffset"],
            queue["maxOffset"],
        ), queue
    assert tree(root) == before


@pytest.mark.parametrize("folder", golden_stores.read_back())
def test_the_log_is_summed_up(folder: str, tmp_path: Path) -> None:
    found = summary.log_summary(directory(golden(tmp_path, folder)))
    records = golden_stores.records(folder)
    assert (found.records, found.end_offset, found.bad_places) == (
        len(records),
        golden_stores.log_end(folder),
        0,
    )
    assert (found.first_store_time_ms, found.last_store_time_ms) == (
        records[0].store_time_ms,
        records[-1].store_time_ms,
    )


@pytest.mark.parametrize("folder", golden_stores.read_back())
def test_messages_are_found_by_queue_and_by_key(folder: str, tmp_path: Path) -> None:
    root, manifest = golden(tmp_path, folder), golden_stores.manifest(folder)
    before, store = tree(root), directory(root)
    for told in manifest["queues"]:
        key = QueueKey(told["topic"], told["queueId"])
        expected = [
            m["physicalOffset"] for m in manifest["messages"] if (m["topic"], m["queueId"]) == key
        ]
        if expected and not key.topic.startswith("RMQ_SYS_"):
            assert [message.log_offset for message in dump.from_queue(store, key, 0)] == expected
    for asked in manifest["keyQueries"]:
        if not (asked["error"] and asked["topic"].startswith("RMQ_SYS_")):
            found = [
                message.log_offset for message in dump.by_key(store, asked["key"], asked["topic"])
            ]
            assert found == sorted(set(asked["physicalOffsets"])), asked
    assert tree(root) == before


def test_messages_are_read_from_a_place_in_the_log(tmp_path: Path) -> None:
    store, records = directory(golden(tmp_path)), golden_stores.records(CLEAN_5)
    assert [message.log_offset for message in dump.from_log(store, None)] == [
        record.log_offset for record in records
    ]
    assert [message.log_offset for message in dump.from_log(store, records[200].log_offset)] == [
        record.log_offset for record in records[200:]
    ]
    with pytest.raises(NotFoundError, match=f"the next one is at {records[1].log_offset}"):
        next(dump.from_log(store, 7))
    with pytest.raises(NotFoundError, match="the log has no byte 999999"):
        next(dump.from_log(store, 999_999))


def test_a_key_without_its_topic_is_looked_for_in_the_whole_log(tmp_path: Path) -> None:
    filled(tmp_path)
    store = directory(tmp_path)
    assert [message.body for message in dump.by_key(store, "k7", None)] == [b"body 7 " * 5]
    assert [message.body for message in dump.by_key(store, "U00000007", "Orders")] == [
        b"body 7 " * 5
    ]
    assert len(list(dump.by_key(store, "shared", "Orders"))) == 60
    assert list(dump.by_key(store, "k7", "Other")) == []


def test_a_queue_is_read_from_an_offset_on(tmp_path: Path) -> None:
    filled(tmp_path)
    store = directory(tmp_path)
    assert [
        message.queue_offset for message in dump.from_queue(store, QueueKey("Orders", 1), 27)
    ] == [27, 28, 29]
    with pytest.raises(NotFoundError, match=r"it has \[0, 1\]"):
        next(dump.from_queue(store, QueueKey("Orders", 9), 0))
    with pytest.raises(NotFoundError, match="no such topic"):
        next(dump.from_queue(store, QueueKey("None", 0), 0))


def test_bodies_are_shown_as_text_hexadecimal_or_base64(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    message = next(dump.from_log(directory(tmp_path), 0))
    assert dump.row(message, BodyForm.TEXT)["body"] == "body 0 " * 5
    assert dump.row(message, BodyForm.HEX)["body"] == (b"body 0 " * 5).hex()
    assert (
        dump.row(message, BodyForm.BASE64)["body"]
        == "Ym9keSAwIGJvZHkgMCBib2R5IDAgYm9keSAwIGJvZHkgMCA="
    )
    assert "body" not in dump.row(message, BodyForm.NONE)
    assert dump.row(message, BodyForm.NONE)["keys"] == "k0 shared"


def test_compressed_bodies_are_inflated(tmp_path: Path) -> None:
    store, manifest = directory(golden(tmp_path)), golden_stores.manifest(CLEAN_5)
    compressed = [
        record.message
        for record in golden_stores.records(CLEAN_5)
        if record.topic == "GoldenB" and record.sys_flag & 1
    ]
    assert compressed
    sizes = {message["physicalOffset"]: message for message in manifest["messages"]}
    for message in compressed:
        text = dump.body_text(message, BodyForm.HEX)
        assert len(text) > 2 * len(message.body)
        assert message.log_offset in sizes
    assert store.index_shape is not None


def test_a_layer_that_only_reads_refuses_to_change_anything(tmp_path: Path) -> None:
    layer = ReadOnlyLayer()
    (tmp_path / "file").write_bytes(b"abc")
    descriptor = layer.open(tmp_path / "file")
    with pytest.raises(AssertionError):
        layer.pwrite(descriptor, b"x", 0)
    with pytest.raises(AssertionError):
        layer.truncate(descriptor, 0)
    with pytest.raises(AssertionError):
        layer.unlink(tmp_path / "file")
    with pytest.raises(AssertionError):
        layer.open(tmp_path / "new", create=True)
    assert list(layer.content(descriptor, 1, 3)) == [(1, b"bc")]
    layer.close(descriptor)


def test_who_has_a_store_open_is_known(tmp_path: Path) -> None:
    assert lock_owner(tmp_path) is None
    with held(tmp_path) as process:
        assert lock_owner(tmp_path) == process
    assert lock_owner(tmp_path) is None
    assert (tmp_path / "lock").exists()
