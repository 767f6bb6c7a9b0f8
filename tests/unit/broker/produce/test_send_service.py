"""Sends by values, as another protocol than remoting would send them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.produce.durable_replies import Durability, DurableReplies
from orbitmq.broker.produce.service import SendRequest, SendService
from orbitmq.common.errors import Refusal, RefusedError
from orbitmq.message import properties
from orbitmq.message.record import decode_all
from orbitmq.protocol.codes import REFUSAL_CODES
from orbitmq.store.config import FlushMode
from orbitmq.store.types import QueueKey, QueueOffset
from support.broker.listeners import Unheard
from support.broker.services import send_service
from support.broker.socketless import BrokerRoom
from support.common.waiting import wait_until
from support.store.logs import HOST


def request(**changes: Any) -> SendRequest:
    usual: dict[str, Any] = {
        "topic": "T",
        "queue_id": 1,
        "body": b"hello",
        "properties": properties.write({properties.UNIQUE_KEY: "U1"}),
        "flag": 0,
        "sys_flag": 0,
        "born_time_ms": 7,
        "born_host": HOST,
        "reconsume_times": 0,
        "max_reconsume_times": None,
        "is_batch": False,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "unit_mode": False,
    }
    return SendRequest(**usual | changes)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[BrokerRoom]:
    room = BrokerRoom(tmp_path)
    yield room
    room.close()


def service_of(room: BrokerRoom) -> SendService:
    return send_service(room, Unheard())


def test_a_message_is_stored_and_its_place_returned(room: BrokerRoom) -> None:
    stored = service_of(room).append(request())
    (place,) = stored.places
    assert (stored.queue_id, place.queue_offset, stored.unique_key) == (1, 0, "U1")
    found = room.store.reads.get(QueueKey("T", 1), QueueOffset(0), count_max=32).records
    (message,) = decode_all(found)
    assert (message.body, message.born_time_ms, message.log_offset) == (b"hello", 7, place.offset)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"topic": "no such topic!"}, Refusal.INVALID_PARAMETER),
        ({"queue_id": 9}, Refusal.INVALID_PARAMETER),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, Refusal.NO_PERMISSION),
        ({"is_batch": True, "body": b""}, Refusal.INVALID_MESSAGE),
        ({"topic": "%RETRY%g", "is_batch": True}, Refusal.INVALID_MESSAGE),
    ],
)
def test_a_refusal_has_a_reason_and_stores_nothing(
    room: BrokerRoom, changes: dict[str, Any], refusal: Refusal
) -> None:
    before = room.store.log.end_offset
    with pytest.raises(RefusedError) as refused:
        service_of(room).append(request(**changes))
    assert refused.value.refusal is refusal
    assert refused.value.remark
    assert room.store.log.end_offset == before


def test_a_reply_is_called_back_once_the_message_is_durable(tmp_path: Path) -> None:
    room = BrokerRoom(tmp_path, flush_mode=FlushMode.SYNC)
    replies: list[Durability] = []
    try:
        write = service_of(room).append(request()).write
        durable = DurableReplies(room.store, room.topics)
        assert not durable.is_durable(write)
        assert not durable.reply_when_durable(write, replies.append)
        assert replies == []

        def replied() -> list[Durability]:
            room.store.tick()
            return replies

        assert wait_until(replied, "the reply") == [Durability()]
    finally:
        room.close()


def test_a_message_that_need_not_be_flushed_may_be_acknowledged_at_once(room: BrokerRoom) -> None:
    write = service_of(room).append(request()).write
    durable = DurableReplies(room.store, room.topics)
    assert durable.is_durable(write)
    replies: list[Durability] = []
    assert durable.reply_when_durable(write, replies.append)
    assert replies == []


def test_every_refusal_has_a_response_code() -> None:
    assert set(REFUSAL_CODES) == set(Refusal)
