"""Tests the transaction log: decisions are made once and files are complete, wherever they are
stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from orbitmq.client.producer.checkable_producer import HalfPlace
from orbitmq.common.errors import ConfigurationError, OrbitError
from orbitmq.spark.sink import commit_coordinator
from orbitmq.spark.sink.commit_coordinator import CommitCoordinator
from orbitmq.spark.sink.options import SinkOptions, absolute
from orbitmq.spark.sink.record_folder import LocalFolder, RecordFolder, RemoteFolder, open_folder
from orbitmq.spark.sink.staged_messages import (
    StagedMessage,
    decode_staged,
    encode_staged,
    iter_staged,
)
from orbitmq.spark.sink.transaction_log import BatchState, TransactionLog, check_log_location

HALF = HalfPlace(
    "T", "broker-a", 3, 1000, "7F0000010BDF5FFD2B274D39B986014B", "7F0000010BDF5FFD2B274D39B986014B"
)


@pytest.fixture(params=["local", "distant"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RecordFolder:
    place = tmp_path / "not" / "yet"
    return (
        LocalFolder(place)
        if request.param == "local"
        else RemoteFolder(fs.LocalFileSystem(), str(place), "some://where")
    )


def test_files_of_a_folder_are_made_once(folder: RecordFolder) -> None:
    assert folder.names() == []
    folder.create("1", b"one")
    with pytest.raises(FileExistsError):
        folder.create("1", b"another")
    folder.create("2", b"")
    assert (sorted(folder.names()), folder.read("1"), folder.read("2")) == (["1", "2"], b"one", b"")
    folder.delete("1")
    folder.delete("1")
    assert folder.names() == ["2"]
    with pytest.raises(
        OrbitError,
        match=r"the transaction log .* is not usable: .*; without it nothing is committed",
    ):
        folder.read("1")


def test_places_mean_the_same_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert [
        absolute(place)
        for place in ("log", "/a/b", "file:/a/b", "file:///a/b%20c", "s3://bucket/log")
    ] == [
        f"{tmp_path}/log",
        "/a/b",
        "/a/b",
        "/a/b c",
        "s3://bucket/log",
    ]
    with pytest.raises(
        ConfigurationError,
        match=(
            r"the transaction log cannot be at dbfs://x: .*; set the option transactionLog to a"
            r" path"
        ),
    ):
        open_folder("dbfs://x")


@pytest.mark.parametrize(
    ("first", "then"), [("a/transactions", "b"), ("b", "a/transactions"), ("b", "c")]
)
def test_a_stream_keeps_its_record_where_it_was(tmp_path: Path, first: str, then: str) -> None:
    checkpoint, before, after = (str(tmp_path / name) for name in ("a", first, then))
    for _ in range(2):
        check_log_location(before, checkpoint)
    with pytest.raises(
        ConfigurationError, match=f"is in {before}, not in {after}: a repeated batch"
    ):
        check_log_location(after, checkpoint)
    (tmp_path / "a" / "transactions" / "place").unlink()
    check_log_location(after, checkpoint)


def test_a_record_inside_a_checkpoint_moves_with_it(tmp_path: Path) -> None:
    check_log_location(f"{tmp_path}/a/transactions", f"{tmp_path}/a")
    (tmp_path / "a").rename(tmp_path / "b")
    check_log_location(f"{tmp_path}/b/transactions", f"{tmp_path}/b")


def test_a_checkpoint_that_only_spark_can_reach_is_no_reason_to_refuse(
    caplog: pytest.LogCaptureFixture,
) -> None:
    check_log_location("/log", "dbfs://x")
    assert "transaction_log_place_unknown checkpoint=dbfs://x" in caplog.text


def test_a_batch_is_open_then_decided_then_done(tmp_path: Path) -> None:
    log, staged = (
        TransactionLog(str(tmp_path), "query"),
        decode_staged([encode_staged([StagedMessage(HALF, None)])]),
    )
    assert log.state(4) is BatchState.OPEN
    log.decide(4, staged)
    assert [log.state(batch) for batch in (3, 4, 5)] == [
        BatchState.DONE,
        BatchState.DECIDED,
        BatchState.OPEN,
    ]
    log.finish(4)
    log.finish(4)
    assert [log.state(batch) for batch in (3, 4, 5)] == [
        BatchState.DONE,
        BatchState.DONE,
        BatchState.OPEN,
    ]
    assert list(iter_staged(log.staged(4))) == [StagedMessage(HALF, None)]
    assert TransactionLog(str(tmp_path), "another").state(4) is BatchState.OPEN


def test_a_batch_before_the_last_one_is_done_only_if_there_is_a_record_of_it(
    tmp_path: Path,
) -> None:
    log, staged = (
        TransactionLog(str(tmp_path), "query"),
        decode_staged([encode_staged([StagedMessage(HALF, None)])]),
    )
    for batch in (20240104, 20240105):
        log.decide(batch, staged)
        log.finish(batch)
        log.check_known(batch)
    log.check_known(20240104)
    log.check_known(20240106)
    with pytest.raises(ConfigurationError) as refused:
        log.check_known(20240101)
    assert (
        str(refused.value)
        == f"batch 20240101 comes after batch 20240105, the last one in {tmp_path}/query, and it"
        f" was never delivered. Nothing of it is delivered now: batch numbers (transactionBatch)"
        f" must increase; use one above 20240105, or another transactionId"
    )
    with pytest.raises(
        ConfigurationError,
        match=(
            "whether it was delivered is unknown, since records of batches before 20240006 are del"
        ),
    ):
        log.check_known(20240005)


class Sender:
    """A fake sender that records what is rolled back."""

    def __init__(self) -> None:
        self.rolled_back: list[StagedMessage] = []

    def roll_back(self, staged: Iterable[StagedMessage]) -> None:
        self.rolled_back += staged


def test_rows_of_a_batch_that_was_never_delivered_are_not_dropped_with_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Sender()
    monkeypatch.setattr(commit_coordinator, "sender_of", lambda *_: sender)
    log, part = TransactionLog(str(tmp_path), "query"), encode_staged([StagedMessage(HALF, None)])
    for batch in (4, 5):
        log.decide(batch, decode_staged([part]))
        log.finish(batch)
    options = SinkOptions.of(
        {"nameServer": "a:1", "deliveryGuarantee": "exactly-once", "transactionLog": str(tmp_path)}
    )
    with pytest.raises(ConfigurationError, match="batch 1 comes after batch 5"):
        CommitCoordinator(options, log, 1).commit([part])
    assert sender.rolled_back == [StagedMessage(HALF, None)]
    assert (
        CommitCoordinator(options, log, 1).commit([])
        == CommitCoordinator(options, log, 4).commit([part])
        == "delivered before"
    )
    assert (
        caplog.messages[-1]
        == f"batch_delivered_before log={log} batch=4 rows=1; not delivered again"
    )


def test_names_that_lead_elsewhere_and_damaged_files_are_told(tmp_path: Path) -> None:
    for name in ("", "a/b", "..", ".hidden", "a" * 201):
        with pytest.raises(ConfigurationError, match="option transactionId="):
            TransactionLog(str(tmp_path), name)
    log = TransactionLog(str(tmp_path), "query")
    (tmp_path / "query").mkdir()
    (tmp_path / "query" / "0.parquet").write_bytes(b"cut")
    (tmp_path / "query" / "notes.txt").write_bytes(b"of somebody")
    assert log.state(0) is BatchState.DECIDED
    with pytest.raises(OrbitError, match=r"0\.parquet is corrupt: .*; restore it, or delete it"):
        log.staged(0)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
PLACES = st.builds(
    lambda topic, broker, half, at, key: HalfPlace(topic, broker, half, at, key, key),
    NAMES,
    NAMES,
    *[st.integers(0, 2**62)] * 2,
    NAMES,
)


@given(
    st.lists(
        st.lists(
            st.builds(StagedMessage, PLACES, st.none() | st.integers(0, 99)), min_size=1, max_size=5
        ),
        max_size=4,
    )
)
def test_what_tasks_stage_reaches_the_driver_as_it_was(tasks: list[list[StagedMessage]]) -> None:
    assert list(iter_staged(decode_staged(map(encode_staged, tasks)))) == [
        staged for task in tasks for staged in task
    ]
