"""The queues that real brokers wrote: built again from their logs byte for byte, and answering as
the real broker did.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.store.batch_consume_queue import BatchEntry
from orbitmq.store.consume_queue import ENTRY, ENTRY_SIZE, Boundary
from orbitmq.store.consume_queue_ext import ADDRESS_BASE, is_ext_address
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, QueueOffset, StoreTimeMs
from support.common.process_files import ProcessFiles
from support.store import golden_stores

FOLDERS = golden_stores.folders()
READ_BACK = golden_stores.read_back()


def make_queues(folder: str, root: Path) -> Queues:
    settings = golden_stores.settings(folder)
    return Queues(
        ProcessFiles(),
        root,
        file_size=settings["mappedFileSizeConsumeQueue"],
        ext_file_size=(
            settings["mappedFileSizeConsumeQueueExt"]
            if settings.get("enableConsumeQueueExt")
            else None
        ),
        batch_file_size=settings.get("mapperFileSizeBatchConsumeQueue", 46),
    )


@pytest.fixture
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queues]:
    """A copy of the golden store that the test names, opened at the log's end."""
    folder = request.node.callspec.params["folder"]
    queues = make_queues(folder, golden_stores.unpack(folder, tmp_path))
    queues.load()
    queues.bound(LogOffset(0), LogOffset(golden_stores.log_end(folder)))
    yield queues
    queues.close()


def dispatched(folder: str, root: Path, ext_bits: dict[int, bytes]) -> Queues:
    """Queues built from the records of a golden log."""
    queues = make_queues(folder, root)
    for record in golden_stores.records(folder):
        if not record.has_entry:
            continue
        if record.inner_count:
            batch = queues.batch.obtain(record.topic, record.queue_id)
            batch.put(
                BatchEntry(
                    LogOffset(record.log_offset),
                    record.size,
                    record.tags_code,
                    StoreTimeMs(record.store_time_ms),
                    QueueOffset(record.inner_base),
                    record.inner_count,
                )
            )
            batch.commit()
        else:
            queue = queues.plain.obtain(record.topic, record.queue_id)
            bits = ext_bits.get(record.log_offset, b"")
            queue.put(
                record.log_offset,
                record.size,
                record.tags_code,
                record.queue_offset,
                record.store_time_ms,
                bits,
            )
            queue.commit()
    queues.close()
    return queues


def run_of(content: dict[str, bytes], queue: str) -> bytes:
    """All files of a queue, one after the other."""
    return b"".join(data for path, data in sorted(content.items()) if path.startswith(f"{queue}/"))


def written(root: Path, kind: str) -> dict[str, bytes]:
    folder = root / kind
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("folder", READ_BACK)
def test_queues_built_from_the_log_are_those_of_the_original_byte_for_byte(
    folder: str, tmp_path: Path
) -> None:
    theirs = golden_stores.content(folder, "consumequeue")
    ext = golden_stores.content(folder, "consumequeue_ext")

    names = {path.rpartition("/")[0] for path in ext}
    bits = {  # of the filters, which depend on who had subscribed then
        log_offset: units[at + 20 : at + int.from_bytes(units[at : at + 2], "big")]
        for units, entries in ((run_of(ext, name), run_of(theirs, name)) for name in names)
        for log_offset, size, address in ENTRY.iter_unpack(entries)
        if size and (at := address - ADDRESS_BASE) >= 0
    }
    queues = dispatched(folder, tmp_path, bits)
    ours = written(tmp_path, "consumequeue")
    assert ours.keys() == theirs.keys()
    for key in queues.plain:
        name = f"{key.topic}/{key.queue_id}"
        size = ENTRY_SIZE * (queues.plain.obtain(*key).max_offset)
        stale = folder.endswith("recovered")  # there the original leaves what it cut
        assert (
            run_of(ours, name)[: size if stale else None]
            == run_of(theirs, name)[: size if stale else None]
        ), name
    assert written(tmp_path, "consumequeue_ext") == ext
    assert written(tmp_path, "batchconsumequeue") == golden_stores.content(
        folder, "batchconsumequeue"
    )


@pytest.mark.parametrize("folder", READ_BACK)
def test_minimum_and_maximum_are_those_that_the_real_broker_answered(
    folder: str, opened: Queues
) -> None:
    answered = {
        (each["topic"], each["queueId"]): (each["minOffset"], each["maxOffset"])
        for each in golden_stores.manifest(folder)["queues"]
    }
    found = {
        tuple(key): (queue.min_offset, queue.max_offset)
        for key, queue in (*opened.plain.open_all(), *opened.batch.open_all())
    }
    assert found.items() >= answered.items()
    assert all(offsets == (0, 0) for key, offsets in found.items() if key not in answered)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_store_opened_after_a_crash_has_the_entries_of_the_log_and_no_other(
    folder: str, opened: Queues
) -> None:
    records = [
        each for each in golden_stores.records(folder) if each.has_entry and not each.inner_count
    ]
    for key, queue in opened.plain.open_all():
        expected = [each for each in records if (each.topic, each.queue_id) == key][
            : queue.max_offset
        ]
        assert len(expected) == queue.max_offset
        for record in expected:
            entry = queue.get(QueueOffset(record.queue_offset))
            assert entry is not None
            unit = queue.ext_unit(entry.tags_code)
            code = entry.tags_code if unit is None else unit.tags_code
            assert (entry.log_offset, entry.size, code) == (
                record.log_offset,
                record.size,
                record.tags_code,
            )
    assert (
        sum(queue.max_offset for _, queue in opened.plain.open_all()) >= len(records) - 5
    )  # the last ones may not have been dispatched


@pytest.mark.parametrize(
    "folder", [folder for folder in READ_BACK if "5.5.0" in folder]
)  # 4.9 answers the nearest
def test_offsets_by_time_are_those_that_the_real_broker_answered(
    folder: str, opened: Queues
) -> None:
    times = {each.log_offset: each.store_time_ms for each in golden_stores.records(folder)}
    asked = golden_stores.manifest(folder)["searchOffset"]
    for each in asked:
        time_ms = StoreTimeMs(each["timestamp"])
        plain = opened.plain.find(each["topic"], each["queueId"])
        if plain is not None:
            found = plain.offset_by_time(
                time_ms, Boundary.LOWER, lambda offset, size: times.get(offset, -1), LogOffset(0)
            )
        else:
            batch = opened.batch.find(each["topic"], each["queueId"])
            assert batch is not None
            found = batch.offset_by_time(time_ms, Boundary.LOWER)
        assert found == each["offset"], each
    assert asked


@pytest.mark.parametrize("folder", READ_BACK)
def test_entries_and_ext_units_are_those_that_the_real_broker_listed(
    folder: str, opened: Queues
) -> None:
    listed = golden_stores.manifest(folder)["consumeQueue"]
    for each in listed:
        queue = opened.plain.find(each["topic"], each["queueId"])
        if queue is None:
            continue
        entry = queue.get(QueueOffset(each["index"]))
        assert entry is not None
        assert (entry.log_offset, entry.size) == (each["physicOffset"], each["physicSize"])
        assert is_ext_address(entry.tags_code) == (each["extend"] is not None)
        if each["extend"] is None:
            assert entry.tags_code == each["tagsCode"]
            continue
        unit = queue.ext_unit(entry.tags_code)
        assert unit is not None
        extend = json.loads(each["extend"])
        assert (unit.tags_code, unit.store_time_ms, unit.size) == (
            extend["tagsCode"],
            extend["msgStoreTime"],
            extend["size"],
        )
        assert each["tagsCode"] == (
            entry.tags_code if folder.startswith("store-4.9.8") else unit.tags_code
        )
        assert "".join(f"{byte:08b}" for byte in reversed(unit.bits)) == (
            each["bitMap"] or ""
        ).replace("\n", "")
    assert listed
