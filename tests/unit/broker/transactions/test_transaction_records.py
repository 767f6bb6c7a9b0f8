"""The records of transactions are those of the original 5.5.0, and both releases' are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.offset_journal import OffsetJournal
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.broker.processors.check_sender import question
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.broker.transactions import records
from orbitmq.broker.transactions.service import Transactions
from orbitmq.common.topic_names import HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.message import half_messages, properties
from orbitmq.message.record import decode
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol import frame
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from orbitmq.store.config import StoreConfig
from orbitmq.store.index_file import IndexShape
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset
from orbitmq.testing.manual_clock import ManualClock
from support.broker.manual_worker import InlineWorker, ManualLoop
from support.broker.settings import broker_settings
from support.broker.transactions import Nothing
from support.common.golden_data import GoldenFrame, frames
from support.common.process_files import ProcessFiles
from support.store import golden_stores
from support.store.logs import HOST

QUESTIONS = [
    each
    for each in frames()
    if each.request_code == RequestCode.CHECK_TRANSACTION_STATE
    and each.name.startswith("frames-5.5.0")
]
CLEAN = ("store-5.5.0/clean/store", "store-4.9.8/clean/store")


def golden(folder: str, topic: str) -> list[StoredMessage]:
    return [record.message for record in golden_stores.records(folder) if record.topic == topic]


def test_a_committed_message_is_byte_for_byte_that_of_the_original() -> None:
    half, *_ = golden(CLEAN[0], HALF_TOPIC)
    (theirs,) = golden(CLEAN[0], "GoldenTx")
    assert records.committed(half) == theirs.to_message()


def test_a_half_message_says_what_that_of_the_original_says() -> None:
    for theirs in golden(CLEAN[0], HALF_TOPIC):
        found = theirs.properties()
        sent = {
            name: value
            for name, value in found.items()
            if name not in ("REAL_TOPIC", "REAL_QID", "__transactionId__")
        }
        message = MessageRecord(
            found["REAL_TOPIC"].encode(),
            theirs.body,
            born_host=theirs.born_host,
            born_time_ms=theirs.born_time_ms,
            queue_id=int(found["REAL_QID"]),
            sys_flag=4,
            properties=properties.encode(sent),
        )
        ours = records.half_of(message, sent)
        assert properties.parse(bytes(ours.properties)) == found
        ours.properties = theirs.raw_properties
        assert ours == theirs.to_message()


def test_an_op_record_is_byte_for_byte_that_of_the_original() -> None:
    (theirs,) = golden(CLEAN[0], OP_HALF_TOPIC)
    assert records.op_of([0, 1], theirs.born_time_ms, theirs.born_host) == theirs.to_message()


@pytest.mark.parametrize(
    ("folder", "named"),
    [
        (
            CLEAN[0],
            [[0, 1]],
        ),
        (CLEAN[1], [[1], [0]]),
    ],
)
def test_op_records_of_both_releases_are_read(folder: str, named: list[list[int]]) -> None:
    assert [half_messages.ended_offsets(op) for op in golden(folder, OP_HALF_TOPIC)] == named


@pytest.mark.parametrize(
    "body", [b"", b",", b"x,", b"-1,", b"1;2", b"\xff,", b"99999999999999999999,"]
)
def test_what_no_op_record_says_is_not_read_into_one(body: bytes) -> None:
    (op,) = golden(CLEAN[0], OP_HALF_TOPIC)
    assert half_messages.ended_offsets(op._replace(body=body)) == []
    assert (
        half_messages.ended_offsets(op._replace(body=body + b"5,", raw_properties=b"TAGS\x01x\x02"))
        == []
    )


@pytest.mark.parametrize("captured", QUESTIONS, ids=str)
def test_a_question_is_that_of_the_original(captured: GoldenFrame) -> None:
    theirs = frame.decode_one(captured.frame)
    half = decode(theirs.body or b"")._replace(topic=HALF_TOPIC, queue_id=0)
    ours = question(half, "golden-broker")
    headers = [
        CheckTransactionStateRequestHeader.from_fields(each.ext_fields) for each in (ours, theirs)
    ]
    assert headers[0] == headers[1]
    told, asked = decode(ours.body or b""), decode(theirs.body or b"")
    assert told._replace(raw_properties=b"") == asked._replace(raw_properties=b"")
    assert told.properties() == asked.properties()


@pytest.mark.parametrize("folder", CLEAN)
def test_what_was_open_in_a_store_of_the_original_is_open_here(folder: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(folder, tmp_path / "store")
    said = golden_stores.settings(folder)
    config = StoreConfig(
        root=root,
        commit_log_file_size=int(said["mappedFileSizeCommitLog"]),
        queue_file_size=int(said["mappedFileSizeConsumeQueue"]),
        batch_queue_file_size=4600,
        index_shape=IndexShape(slots=int(said["maxHashSlotNum"]), entries=int(said["maxIndexNum"])),
    )
    clock = ManualClock(golden(folder, OP_HALF_TOPIC)[-1].store_time_ms + 60_000)
    store = MessageStore(ProcessFiles(), clock, config, HOST)
    store.open()
    journal = OffsetJournal(root / "config/consumerOffset.journal", ProcessFiles())
    offsets = Offsets(
        ConfigFile(root / "config/consumerOffset.json", InlineWorker(), ManualLoop()),
        journal,
        clock,
    )
    offsets.load()
    transactions = Transactions(
        broker_settings(),
        store=store,
        reads=store.reads,
        own=InternalMessageWriter(store, store, Nothing()),
        offsets=offsets,
        delay=Nothing(),
        checks=Nothing(),
        store_host=HOST,
        clock=clock,
        listener=Nothing(),
        ensure_topic=lambda topic: None,
    )
    transactions.load()
    (open_one,) = transactions.pending
    stored = store.reads.message_at(LogOffset(open_one.log_offset))
    assert stored is not None
    assert (stored.body, open_one.root, open_one.topic, open_one.group, open_one.checks) == (
        b"tx pending",
        2,
        "GoldenTx",
        "PG_tx",
        0,
    )
    store.close()
    offsets.close()
