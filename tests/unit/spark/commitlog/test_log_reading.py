"""Tests that stores are read row for row as brokers serve them, and that damage is reported or
skipped.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.common.errors import ConfigurationError, CorruptRecordError, StoreError
from orbitmq.message.flags import CompressionType, with_compression
from orbitmq.message.record import decode_all
from orbitmq.message.record_write import MessageRecord
from orbitmq.spark import schema
from orbitmq.spark.commitlog import piece_reader
from orbitmq.spark.commitlog.source import CommitLogReader
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.manual_clock import ManualClock
from support.spark.commitlog import offsets, options, pieces, rows
from support.spark.rows import rows_of
from support.store import golden_stores
from support.store.tools import HOST, filled, flip, golden, overwrite, own_store, put

GOLDEN_BROKER = "golden-broker"


def stored(store: MessageStore, topic: str, queue_id: int) -> list[Any]:
    """Return all messages that a broker would serve from a queue."""
    found: list[Any] = []
    offset = QueueOffset(0)
    while (
        result := store.reads.get(QueueKey(topic, queue_id), offset, count_max=32)
    ).next_offset > offset:
        found += decode_all(result.records)
        offset = result.next_offset
    return found


@pytest.mark.parametrize("size", ["9000", "1000000000"])
@pytest.mark.parametrize("folder", golden_stores.read_back())
def test_rows_of_real_stores_are_all_their_messages(tmp_path: Path, folder: str, size: str) -> None:
    found = rows(golden(tmp_path, folder), includeSystemTopics="true", maxPartitionBytes=size)
    assert found == rows_of(
        (record.message for record in golden_stores.records(folder)), GOLDEN_BROKER
    )
    assert len(found) == len(golden_stores.manifest(folder)["messages"])


@pytest.mark.parametrize("size", ["700", "1000000000"])
def test_rows_of_our_stores_are_what_the_store_serves(tmp_path: Path, size: str) -> None:
    filled(tmp_path / "store", 300)
    found = rows(tmp_path / "store", brokerName="b", maxPartitionBytes=size)
    store = own_store(tmp_path / "store", ManualClock())
    served = [message for queue_id in (0, 1) for message in stored(store, "Orders", queue_id)]
    store.close()
    assert found == rows_of(sorted(served, key=lambda message: message.log_offset), "b")
    assert len(found) == 300


def test_topics_are_chosen_by_name_or_pattern_and_those_of_brokers_are_left_out(
    tmp_path: Path,
) -> None:
    root = golden(tmp_path)

    def topics(**others: str) -> set[str]:
        return {row["topic"] for row in rows(root, ("topic",), **others)}

    every, ordinary = topics(includeSystemTopics="true"), topics()
    assert {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    } <= every - ordinary
    assert {"GoldenA", "%RETRY%CG_retry", "%DLQ%CG_retry"} <= ordinary < every
    assert topics(topics="GoldenA, GoldenB,nobody") == {"GoldenA", "GoldenB"}
    assert topics(topics="SCHEDULE_TOPIC_XXXX") == {"SCHEDULE_TOPIC_XXXX"}
    assert topics(topicPattern="Golden[AB]") == {"GoldenA", "GoldenB"}
    assert topics(topicPattern=".*(A|XXXX)") == {"GoldenA"}
    assert topics(topicPattern=".*(A|XXXX)", includeSystemTopics="true") == {
        "GoldenA",
        "SCHEDULE_TOPIC_XXXX",
    }


def test_records_that_never_got_a_place_in_a_queue_are_left_out(tmp_path: Path) -> None:
    store = own_store(tmp_path / "store", ManualClock())
    put(store, 1)
    for sys_flag in (0x4, 0xC, 0x8):
        store.put(
            MessageRecord(
                b"Orders", b"transaction", born_host=HOST, born_time_ms=1, sys_flag=sys_flag
            )
        )
    store.close()
    assert [row["sysFlag"] for row in rows(tmp_path / "store")] == [0, 0x8]


def test_damage_ends_a_read_and_the_error_names_file_and_place(tmp_path: Path) -> None:
    known = filled(tmp_path / "store")
    path = tmp_path / "store" / "commitlog" / f"{4096:020}"
    bad = next(offset for offset in known if offset > 5000)
    flip(path, bad - 4096 + 95)
    with pytest.raises(CorruptRecordError) as refusal:
        rows(tmp_path / "store")
    text = str(refusal.value)
    assert text.startswith(
        f"{path} is corrupt at byte {bad - 4096} (log offset {bad}): its body does not have the"
        " checksum that was stored;"
    )
    assert "onDamage=skip" in text
    assert offsets(tmp_path / "store", checkBody="false") == known
    assert offsets(tmp_path / "store", onDamage="skip") == [
        offset for offset in known if offset != bad
    ]


def test_damage_that_was_skipped_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = filled(tmp_path / "store")
    path = tmp_path / "store" / "commitlog" / f"{4096:020}"
    bad = [offset for offset in known if 5000 < offset < 8000][:2]
    overwrite(path, bad[0] - 4096, bytes(bad[1] - bad[0] + 50))
    folder = tmp_path / "report"
    skipping = {"onDamage": "skip", "damageReport": str(folder), "maxPartitionBytes": "700"}
    for _ in range(2):  # a second read reports the same, and does not add to it
        assert offsets(tmp_path / "store", brokerName="b/1", **skipping) == [
            offset for offset in known if offset not in bad
        ]
        [report] = folder.iterdir()
        [line] = map(json.loads, report.read_text().splitlines())
        following = known[known.index(bad[1]) + 1]
        assert line == {
            "brokerName": "b/1",
            "file": str(path),
            "fileOffset": bad[0] - 4096,
            "commitLogOffset": bad[0],
            "bytes": following - bad[0],
            "reason": "it does not begin as a record does",
        }
    assert f"log_damage_skipped {path} is corrupt at byte {bad[0] - 4096}" in caplog.text
    (tmp_path / "store" / "commitlog" / f"{4096:020}").unlink()
    offsets(tmp_path / "store", **skipping)
    [report] = folder.iterdir()
    assert (
        json.loads(report.read_text())["reason"]
        == "the 4096 bytes of the log before it are missing"
    )


def test_a_report_never_takes_the_place_of_other_files(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(
        ConfigurationError,
        match=r"the folder contains thesis\.txt; give a folder used only for the report",
    ):
        pieces(tmp_path / "store", onDamage="skip", damageReport=str(tmp_path / "mine"))
    with pytest.raises(ConfigurationError, match="is a file; give a folder"):
        pieces(
            tmp_path / "store", onDamage="skip", damageReport=str(tmp_path / "mine" / "thesis.txt")
        )
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_a_body_that_cannot_be_inflated_is_damage_where_it_is_wanted(tmp_path: Path) -> None:
    store = own_store(tmp_path / "store", ManualClock())
    flag = with_compression(0, CompressionType.ZSTD)
    known = [put(store, 1)]
    bad = store.put(
        MessageRecord(b"Orders", b"no zstd at all", born_host=HOST, born_time_ms=1, sys_flag=flag)
    ).offset
    known.append(put(store, 2))
    store.close()
    with pytest.raises(
        CorruptRecordError, match=f"log offset {bad}.: a body of 14 bytes is not ZSTD data"
    ):
        rows(tmp_path / "store")
    assert [row["commitLogOffset"] for row in rows(tmp_path / "store", onDamage="skip")] == known
    assert offsets(tmp_path / "store") == sorted([*known, bad])


def test_a_file_that_is_deleted_meanwhile_is_named(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    reader = CommitLogReader(options(tmp_path / "store"), tuple(schema.COLUMNS))
    [partition] = reader.partitions()
    (tmp_path / "store" / "commitlog" / f"{0:020}").unlink()
    with pytest.raises(
        StoreError,
        match=r"commitlog/0{20} is gone: its broker has deleted it; read again",
    ):
        list(reader.read(partition))


_WRITER = """
import sys
import time
from pathlib import Path
from orbitmq.testing.manual_clock import ManualClock
from support.store.tools import own_store, put

clock = ManualClock()
store = own_store(Path(sys.argv[1]), clock)
put(store, 0)
print("open", flush=True)
for number in range(1, 20_000):
    clock.advance_ms(1)
    put(store, number, queue_id=number % 2)
    time.sleep(0.001)  # so that the reader, which restarts each time, keeps up
"""


def test_a_store_that_is_written_to_is_read_up_to_a_record_every_time(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "open\n"
            for number in range(12):
                found = rows(
                    tmp_path / "store",
                    ("uniqueKey",),
                    maxPartitionBytes=str(1000 + 3000 * (number % 3)),
                )
                assert [row["uniqueKey"] for row in found] == [
                    f"U{count:08}" for count in range(len(found))
                ]
        finally:
            writer.kill()
    assert len(rows(tmp_path / "store", ("uniqueKey",))) >= len(found) > 0


def test_large_bodies_make_batches_of_few_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(piece_reader, "_STRIDE", 1000)
    monkeypatch.setattr(piece_reader, "_BODY_BYTES_MIN", 5000)
    filled(tmp_path / "store", 300)
    reader = CommitLogReader(options(tmp_path / "store"), ("body",))
    sizes = [
        batch.num_rows for partition in reader.partitions() for batch in reader.read(partition)
    ]
    assert sum(sizes) == 300
    assert len(sizes) > 1


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    root = tmp_path_factory.mktemp("undamaged") / "store"
    return root, filled(root, 150)


@settings(max_examples=60)
@given(
    at=st.integers(0, 30_000),
    size=st.integers(1, 900),
    seed=st.integers(0, 99),
    piece_size=st.sampled_from([700, 3000, 9000, 1 << 30]),
)
def test_whatever_is_damaged_every_record_beside_it_is_read_once(
    undamaged: tuple[Path, list[int]], at: int, size: int, seed: int, piece_size: int
) -> None:
    root, known = undamaged
    ends = [*known[1:], pieces(root)[-1].end]
    at %= ends[-1]
    path = root / "commitlog" / f"{at // 4096 * 4096:020}"
    content = path.read_bytes()
    noise = random.Random(seed).randbytes(min(size, 4096 - at % 4096))
    overwrite(path, at % 4096, noise)
    try:
        found = offsets(root, onDamage="skip", maxPartitionBytes=str(piece_size))
    finally:
        path.write_bytes(content)
    touched = {
        begin
        for begin, end in zip(known, ends, strict=True)
        if begin < at + len(noise) and at < end
    }
    assert found == sorted(set(found))
    assert set(found) - touched == set(known) - touched
