"""END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE: what is refused, in which words, and when the
answer comes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.config.replication_keys import BrokerRole
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.broker.processors.transactions import TransactionProcessor
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.broker.transactions.ending import HalfMessageRewriter, TransactionEnding
from orbitmq.broker.transactions.metrics import HalfCounts
from orbitmq.broker.transactions.service import Transactions
from orbitmq.common.errors import RefusedError
from orbitmq.message import properties
from orbitmq.message.message_id import offset_id
from orbitmq.message.record_write import MessageRecord
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.store.config import FlushMode
from orbitmq.store.log_batch import Appended
from orbitmq.store.types import LogOffset
from support.broker.listeners import Unheard, instruments
from support.broker.services import write_replies
from support.broker.settings import broker_settings
from support.broker.socketless import BrokerRoom
from support.broker.transactions import Nothing
from support.remoting.channels import sent
from support.store.logs import HOST

END, RESUME = RequestCode.END_TRANSACTION, RequestCode.RESUME_CHECK_HALF_MESSAGE


class Room(BrokerRoom):
    """A broker that serves transactions."""

    def __init__(self, folder: Path, **store_settings: Any) -> None:
        super().__init__(folder, **store_settings)
        self.keys = broker_settings()
        self.own = InternalMessageWriter(self.store, self.store, Nothing())
        self.counts = HalfCounts(self.metrics_file, self.clock, instruments())
        self.counts.load()
        self.transactions = Transactions(
            self.keys,
            store=self.store,
            reads=self.store.reads,
            own=self.own,
            offsets=self.offsets,
            delay=Nothing(),
            checks=Nothing(),
            store_host=HOST,
            clock=self.clock,
            listener=self.counts,
            ensure_topic=lambda topic: None,
        )
        self.transactions.load()
        ending = TransactionEnding(
            settings=self.keys,
            service=self.transactions,
            record_at=self.store.reads.record_at,
            now_ms=self.clock.now_ms,
        )
        self.processor = TransactionProcessor(ending, write_replies(self, Unheard()))

    @property
    def metrics_file(self) -> ConfigFile:
        return ConfigFile(self.config_folder / "transactionMetrics", self.worker, self.loop)

    def prepare(self, key: str = "U1", **more: str) -> Appended:
        """Store a half message."""
        found = {
            properties.UNIQUE_KEY: key,
            properties.TRANSACTION_PREPARED: "true",
            properties.PRODUCER_GROUP: "p",
            **more,
        }
        message = MessageRecord(
            b"T",
            b"body",
            born_host=HOST,
            born_time_ms=1,
            properties=properties.write(found).encode(),
        )
        placed = HalfMessageRewriter(self.transactions).rewrite(message, found)
        assert placed is not None
        (place,) = self.own.put(placed.message)
        return place

    def fields(self, place: Appended, kind: int = 8, **changes: Any) -> dict[str, Any]:
        named = {
            "producerGroup": "p",
            "tranStateTableOffset": place.queue_offset,
            "commitLogOffset": place.offset,
            "msgId": "U1",
        }
        return named | {"commitOrRollback": kind, "fromTransactionCheck": False} | changes


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.close()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"producerGroup": "q"},
            "The producer group wrong: the half message was sent by p, not by q",
        ),
        ({"tranStateTableOffset": 9}, "The transaction state table offset wrong: it is 0, not 9"),
        (
            {"commitLogOffset": 7},
            "Find prepared transaction message failed: at 7 of the log there is none",
        ),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        (
            {"transactionId": "U2"},
            "The transaction id wrong: the half message that is there is U1, not U2",
        ),
    ],
)
def test_an_end_of_another_message_is_refused_and_changes_nothing(
    room: Room, changes: dict[str, Any], says: str
) -> None:
    place = room.prepare()
    refused = room.refusal(room.processor, END, room.fields(place, **changes))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark.startswith(says)
    assert (
        room.ask(room.processor, END, room.fields(place, transactionId="U1")).code
        == ResponseCode.SUCCESS
    )


def test_an_ordinary_message_is_no_half_message(room: Room) -> None:
    place = room.put()
    refused = room.refusal(room.processor, END, room.fields(place))
    assert refused.remark.startswith("Find prepared transaction message failed")


def test_whoever_does_not_know_gets_no_answer(room: Room) -> None:
    assert room.begin(room.processor, END, room.fields(room.prepare(), 0)) is None
    assert sent(room.channel) == []


@pytest.mark.parametrize("kind", [-1, 4, 7])
def test_what_is_no_end_is_refused(room: Room, kind: int) -> None:
    refused = room.refusal(room.processor, END, room.fields(room.prepare(), kind))
    assert refused.remark.startswith(f"commitOrRollback={kind} is no end of a transaction")


def test_a_slave_ends_nothing(room: Room) -> None:
    place = room.prepare()
    room.keys.broker_role = BrokerRole.SLAVE
    assert (
        room.refusal(room.processor, END, room.fields(place)).code
        == ResponseCode.SLAVE_NOT_AVAILABLE
    )
    assert (
        room.refusal(room.processor, RESUME, {"msgId": "x"}).code
        == ResponseCode.SLAVE_NOT_AVAILABLE
    )


def test_one_that_wanted_to_be_left_alone_is_ended_in_that_time_or_when_its_producer_is_asked(
    room: Room,
) -> None:
    place = room.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    room.clock.advance_ms(10_001)
    refused = room.refusal(room.processor, END, room.fields(place))
    assert refused.code == ResponseCode.ILLEGAL_OPERATION
    assert "its producer will be asked" in refused.remark
    assert (
        room.ask(room.processor, END, room.fields(place, fromTransactionCheck=True)).code
        == ResponseCode.SUCCESS
    )


def test_with_sync_flush_the_answer_comes_when_the_disk_has_it(tmp_path: Path) -> None:
    room = Room(tmp_path, flush_mode=FlushMode.SYNC)
    place = room.prepare()
    early = room.refusal(room.processor, END, room.fields(place))
    assert "is not on disk yet; its producer will be asked" in early.remark
    room.store.flush()
    assert room.begin(room.processor, END, room.fields(place)) is None
    room.store.flush()
    room.store.tick()
    assert [answer.code for answer in sent(room.channel)] == [ResponseCode.SUCCESS]
    room.close()


@pytest.mark.parametrize(
    ("message_id", "says"),
    [(None, "is no offset id"), ("zz", "is no offset id"), ("nothing", "there is no message at")],
)
def test_what_is_no_message_is_not_resumed(room: Room, message_id: str | None, says: str) -> None:
    named = offset_id(HOST, LogOffset(12345)) if message_id == "nothing" else message_id
    refused = room.refusal(room.processor, RESUME, {"msgId": named, "topic": "T"})
    assert says in refused.remark


def test_an_ordinary_message_is_not_resumed(room: Room) -> None:
    refused = room.refusal(
        room.processor, RESUME, {"msgId": offset_id(HOST, room.put().offset), "topic": "T"}
    )
    assert "is not a half message" in refused.remark


def test_properties_that_leave_no_room_for_questions_are_refused_at_once(room: Room) -> None:
    with pytest.raises(RefusedError, match="a transactional message may have 32639"):
        room.prepare(large="x" * 32_600)


def test_half_messages_are_counted_by_topic_and_kept_in_the_file_of_the_original(
    room: Room,
) -> None:
    first, _ = room.prepare("U1"), room.prepare("U2")
    room.transactions.tick()
    assert dict(room.counts.rows()) == {"T": 2}
    room.ask(room.processor, END, room.fields(first))
    room.counts.save_soon()
    room.loop.run()
    content = json.loads((room.config_folder / "transactionMetrics").read_bytes())
    assert content == {
        "dataVersion": {"counter": 3, "stateVersion": 0, "timestamp": room.clock.now_ms()},
        "transactionCount": {"T": {"count": 1, "timeStamp": room.clock.now_ms()}},
    }
