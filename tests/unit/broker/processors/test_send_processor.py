"""Sends: what is stored of them, what is refused and why, and when the sender hears of it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.observability.stats import StatName
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.message import batch, properties
from orbitmq.message.batch import BatchItem
from orbitmq.message.message_id import offset_id
from orbitmq.message.record import decode_all
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.store.config import FlushMode
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.faulty_disk import FaultyDisk
from support.broker.listeners import stats_recorder
from support.broker.services import send_service, write_replies
from support.broker.socketless import BrokerRoom
from support.common.process_files import ProcessFiles
from support.remoting.channels import sent
from support.store.logs import HOST

V2 = RequestCode.SEND_MESSAGE_V2
NAMES = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "queueId": "e", "sysFlag": "f",
    "bornTimestamp": "g", "flag": "h", "properties": "i", "reconsumeTimes": "j", "unitMode": "k", "maxReconsumeTimes": "l", "batch": "m",
}  # fmt: skip


class Room(BrokerRoom):
    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, **settings)
        self.figures = stats_recorder(self.clock, self.topics.is_system)
        self.sends = SendProcessor(
            send_service(self, self.figures),
            replies=write_replies(self, self.figures),
            hooks=None,
        )

    def stored(self, queue: QueueKey) -> list[StoredMessage]:
        return list(decode_all(self.store.reads.get(queue, QueueOffset(0), count_max=32).records))


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.close()


def fields(names: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    """The header of an ordinary send in one-letter names, with these properties."""
    header: dict[str, Any] = {
        "producerGroup": "p", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 1, "sysFlag": 0,
        "bornTimestamp": 123, "flag": 5, "properties": properties.write({"UNIQ_KEY": "U1", **(names or {})}), "reconsumeTimes": 0,
    }  # fmt: skip
    header.update(changes)
    return {NAMES[name]: value for name, value in header.items() if value is not None}


def test_a_message_is_stored_as_it_came_with_what_the_broker_adds(room: Room) -> None:
    answer = room.ask(room.sends, V2, fields({"TAGS": "t", "KEYS": "k"}), b"body")
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    (message,) = room.stored(QueueKey("T", 1))
    assert answer.ext_fields == {
        "msgId": offset_id(HOST, message.log_offset),
        "queueId": "1",
        "queueOffset": "0",
        "transactionId": "U1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert (message.body, message.flag, message.born_time_ms, message.queue_id) == (
        b"body",
        5,
        123,
        1,
    )
    assert message.properties() == {
        "UNIQ_KEY": "U1", "TAGS": "t", "KEYS": "k", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster",
    }  # fmt: skip
    assert room.figures.stats.counter(StatName.TOPIC_PUT_NUMS, "T").value == 1


def test_the_long_names_mean_the_same(room: Room) -> None:
    long = {
        name: value for name, letter in NAMES.items() if (value := fields().get(letter)) is not None
    }
    room.ask(room.sends, RequestCode.SEND_MESSAGE, long, b"one")
    room.ask(room.sends, V2, fields(), b"two")
    assert [message.body for message in room.stored(QueueKey("T", 1))] == [b"one", b"two"]


def test_what_the_producer_left_to_the_broker_is_chosen(room: Room) -> None:
    answer = room.ask(room.sends, V2, fields(queueId=-1, properties=None), b"x")
    assert answer.ext_fields is not None
    assert answer.ext_fields["transactionId"] == "NEW-KEY"
    assert (
        room.stored(QueueKey("T", int(answer.ext_fields["queueId"])))[0].properties()["UNIQ_KEY"]
        == "NEW-KEY"
    )


def test_a_topic_is_made_by_the_first_send_to_it(room: Room) -> None:
    room.ask(room.sends, V2, fields(topic="New"), b"x")
    found = room.topics.find("New")
    assert found is not None
    assert (found.read_queue_nums, found.write_queue_nums, found.perm) == (4, 4, 6)
    assert "New" in room.registered


@pytest.mark.parametrize("flush", list(FlushMode))
def test_sends_to_a_new_topic_are_answered_when_a_restart_would_know_it(
    tmp_path: Path, flush: FlushMode
) -> None:
    room = Room(tmp_path, flush_mode=flush)
    room.worker.holds = True
    assert [room.begin(room.sends, V2, fields(topic="New"), body) for body in (b"one", b"two")] == [
        None,
        None,
    ]
    room.store.flush()
    room.store.tick()
    assert sent(room.channel) == [], "a second send finds the topic, and a restart would not yet"
    room.worker.holds = False
    while room.worker.work():
        room.loop.run()
    assert [answer.code for answer in sent(room.channel)] == [ResponseCode.SUCCESS] * 2
    assert b'"New"' in room.topics_file.path.read_bytes()
    if flush is FlushMode.ASYNC:
        assert room.begin(room.sends, V2, fields(topic="New"), b"three") is not None
    room.close()


def test_a_new_topic_that_cannot_be_saved_is_told_with_the_message_and_saved_later(
    room: Room,
) -> None:
    room.topics_file.path.unlink()
    room.topics_file.path.mkdir()
    answer = room.ask(room.sends, V2, fields(topic="New"), b"x")
    assert (answer.code, answer.ext_fields is not None) == (ResponseCode.FLUSH_DISK_TIMEOUT, True)
    assert "its new topic[New] could not be saved" in (answer.remark or "")
    room.topics_file.path.rmdir()
    room.loop.let_time_pass()
    assert room.topics.is_saved("New")
    assert b'"New"' in room.topics_file.path.read_bytes()


def test_a_new_topic_holds_back_no_answer_that_nobody_waits_for(room: Room) -> None:
    assert room.begin(room.sends, V2, fields(topic="New"), b"x", flag=2) is None
    room.loop.run()
    assert sent(room.channel) == []


@pytest.mark.parametrize(
    ("changes", "names", "code", "says"),
    [
        ({"topic": "no such/topic"}, {}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"topic": "T", "queueId": 4}, {}, ResponseCode.INVALID_PARAMETER, "T has 4 queues: send to one of 0 to 3"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, {}, ResponseCode.NO_PERMISSION, "is forbidden"),
        ({"topic": "rmq_sys_wheel_timer"}, {"REAL_TOPIC": "T", "TIMER_OUT_MS": "1"}, ResponseCode.NO_PERMISSION, "is forbidden"),
        ({"topic": "Unknown", "defaultTopic": "nothing"}, {}, ResponseCode.TOPIC_NOT_EXIST, "autoCreateTopicEnable"),
        ({"batch": True}, {"DELAY": "3"}, ResponseCode.MESSAGE_ILLEGAL, "property DELAY=3"),
        ({"batch": True}, {"TRAN_MSG": "true"}, ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be of a transaction"),
        ({"sysFlag": 4}, {}, ResponseCode.MESSAGE_ILLEGAL, "TRAN_MSG does not: set it to true"),
        ({"bornTimestamp": None}, {}, ResponseCode.SYSTEM_ERROR, "the field g"),
        ({"queueId": "four"}, {}, ResponseCode.SYSTEM_ERROR, "cannot be read from 'four'"),
    ],
)  # fmt: skip
def test_what_may_not_be_sent_is_refused_and_stores_nothing(
    room: Room, changes: dict[str, Any], names: dict[str, str], code: int, says: str
) -> None:
    end = room.store.log.end_offset
    refused = room.refusal(room.sends, V2, fields(names, **changes), b"x")
    assert refused.code == code
    assert says in refused.remark
    is_read = code != ResponseCode.SYSTEM_ERROR
    assert refused.fields == (
        {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"} if is_read else None
    )
    assert room.store.log.end_offset == end


@pytest.mark.parametrize(
    ("body", "names", "says"),
    [
        (bytes(4096), {}, "a body of 4096 bytes: at most 2048"),
        (b"", {"x": "y" * 32767}, "properties of"),
    ],
    ids=["body", "properties"],
)
def test_what_is_too_large_is_refused_with_size_and_limit(
    room: Room, body: bytes, names: dict[str, str], says: str
) -> None:
    refused = room.refusal(room.sends, V2, fields(names), body)
    assert (refused.code, says in refused.remark) == (ResponseCode.MESSAGE_ILLEGAL, True)


def test_before_its_time_and_without_permission_nothing_is_taken(room: Room) -> None:
    room.settings.start_accept_send_request_time_stamp = room.clock.now_ms() + 1
    assert room.refusal(room.sends, V2, fields(), b"x").code == ResponseCode.SYSTEM_ERROR
    room.settings.start_accept_send_request_time_stamp = 0
    room.settings.broker_permission = 4
    room.topics.update(TopicConfig("Ordered", 1, 1, order=True))
    assert (
        room.refusal(room.sends, V2, fields(topic="Ordered", queueId=0), b"x").code
        == ResponseCode.NO_PERMISSION
    )
    assert room.ask(room.sends, V2, fields(), b"x").code == ResponseCode.SUCCESS


def test_a_batch_is_stored_message_by_message(room: Room) -> None:
    items = [
        BatchItem(number, b"body%d" % number, properties.encode({"UNIQ_KEY": f"U{number}"}))
        for number in range(3)
    ]
    answer = room.ask(
        room.sends, RequestCode.SEND_BATCH_MESSAGE, fields(batch="true"), batch.encode(items)
    )
    assert answer.ext_fields is not None
    assert (answer.ext_fields["msgId"].count(","), answer.ext_fields["queueOffset"]) == (2, "0")
    stored = room.stored(QueueKey("T", 1))
    assert [(message.body, message.flag, message.queue_offset) for message in stored] == [
        (b"body%d" % n, n, n) for n in range(3)
    ]
    assert [message.properties() for message in stored] == [
        {"UNIQ_KEY": f"U{number}"} for number in range(3)
    ], "nothing is added"


def test_a_batch_that_does_not_say_so_is_one_message(room: Room) -> None:
    body = batch.encode([BatchItem(0, b"body", b"")] * 2)
    assert (
        room.ask(room.sends, RequestCode.SEND_BATCH_MESSAGE, fields(batch="false"), body).code
        == ResponseCode.SUCCESS
    )
    assert [message.body for message in room.stored(QueueKey("T", 1))] == [body]


@pytest.mark.parametrize("body", [b"", b"no batch at all"])
def test_a_batch_that_is_none_is_refused(room: Room, body: bytes) -> None:
    assert (
        room.refusal(room.sends, RequestCode.SEND_BATCH_MESSAGE, fields(batch="true"), body).code
        == ResponseCode.MESSAGE_ILLEGAL
    )


def test_a_batch_for_a_topic_of_batches_is_one_record(room: Room) -> None:
    room.topics.update(TopicConfig("B", 1, 1, attributes={"+queue.type": "BatchCQ"}))
    items = [BatchItem(0, b"body%d" % number, b"") for number in range(3)]
    answer = room.ask(
        room.sends,
        RequestCode.SEND_BATCH_MESSAGE,
        fields(topic="B", queueId=0, batch="true"),
        batch.encode(items),
    )
    assert answer.code == ResponseCode.SUCCESS
    found = room.store.reads.get(QueueKey("B", 0), QueueOffset(0), count_max=32)
    assert (found.record_count, found.message_count, found.max_offset) == (1, 3, 3)


def test_what_came_back_too_often_goes_to_the_dead_letters(room: Room) -> None:
    room.groups.update(GroupConfig("g", retry_max_times=2))
    for times in (2, 3):
        answer = room.ask(
            room.sends, V2, fields(topic="%RETRY%g", queueId=0, reconsumeTimes=times), b"%d" % times
        )
        assert answer.code == ResponseCode.SUCCESS
    assert [message.body for message in room.stored(QueueKey("%RETRY%g", 0))] == [b"2"]
    assert [message.body for message in room.stored(QueueKey("%DLQ%g", 0))] == [b"3"]


def test_with_sync_flush_the_sender_hears_when_the_disk_has_it_unless_it_does_not_want_to_wait(
    tmp_path: Path,
) -> None:
    room = Room(tmp_path, flush_mode=FlushMode.SYNC)
    assert room.begin(room.sends, V2, fields({"WAIT": "false"}), b"at once") is not None
    assert room.begin(room.sends, V2, fields(), b"later") is None
    assert sent(room.channel) == []
    room.store.flush()
    (answer,) = sent(room.channel)
    assert (answer.code, (answer.ext_fields or {})["queueOffset"]) == (ResponseCode.SUCCESS, "1")
    room.close()


def test_a_disk_that_fails_is_told_to_who_waits_and_to_who_comes_after(tmp_path: Path) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    room = Room(tmp_path, layer=disk, flush_mode=FlushMode.SYNC)
    room.begin(room.sends, V2, fields({"WAIT": "false"}), b"so that the files are there")
    room.store.flush()
    disk.fail("fdatasync", errno.EIO, times=10)
    assert room.begin(room.sends, V2, fields(), b"x") is None
    with pytest.raises(Exception, match="flushing the commit log failed"):
        room.store.flush()
    (answer,) = sent(room.channel)
    assert (answer.code, "flushing the commit log failed" in (answer.remark or "")) == (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        True,
    )
    refused = room.refusal(room.sends, V2, fields(), b"x")
    assert (refused.code, "restart the broker" in refused.remark) == (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        True,
    )
    room.close()
