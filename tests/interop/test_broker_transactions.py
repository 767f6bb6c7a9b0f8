"""Transactions as raw frames, to the original 5.5.0 and to ours: answers, stored records and
questions are equal.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interop import broker_pair
from interop.apache import Release
from interop.broker_conversation import BrokerConversation, broker_differences
from interop.broker_pair import TOPIC, row, sent
from interop.frames import Answer, Connection, Request
from orbitmq.message import properties
from orbitmq.message.message_id import parse_offset_id
from orbitmq.message.record import decode_all
from orbitmq.message.stored_message import StoredMessage
from support.common.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven")]

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = "8", "12", "0"
GROUP = "deals"
PULL = {
    "consumerGroup": "looks",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}
ONCE = "the original commits a message as often as it is told to"


class Place(NamedTuple):
    """Where a half message is."""

    offset: int
    log_offset: int


def half_request(number: int, **more: str) -> Request:
    """A message of a transaction, born now, that brings these properties too."""
    names = {
        "TRAN_MSG": "true",
        "PGROUP": GROUP,
        "UNIQ_KEY": f"0A00000100000000000000000000B0{number:02d}",
        "KEYS": f"b{number}",
        **more,
    }
    fields = (
        sent(
            number,
            producerGroup=GROUP,
            queueId="1",
            sysFlag="4",
            bornTimestamp=str(int(time.time() * 1000)),
            flag="7",
        ).fields
        or {}
    )
    return Request(
        10,
        fields | {"properties": "".join(f"{name}\x01{value}\x02" for name, value in names.items())},
        b"deal %d" % number,
    )


def prepare(both: BrokerConversation, number: int, **more: str) -> list[Place]:
    """Send a half message to both; where each has it."""
    request = half_request(number, **more)
    answers = [connection.ask(request) for connection in both.on("main")]
    places = [
        Place(int(answer.fields["queueOffset"]), parse_offset_id(answer.fields["msgId"]).log_offset)
        for answer in answers
    ]
    for answer in answers:
        answer.fields.update(
            {"msgId": "an id", "queueOffset": "an offset"}
        )  # the original stores again what nobody can be asked about
    assert not broker_differences(*answers)
    return places


def end_request(place: Place, kind: str, **changes: str) -> Request:
    fields = {
        "producerGroup": GROUP,
        "tranStateTableOffset": str(place.offset),
        "commitLogOffset": str(place.log_offset),
        "commitOrRollback": kind,
        "fromTransactionCheck": "false",
        "msgId": "id",
    }
    return Request(37, fields | changes)


def end(
    both: BrokerConversation, places: Sequence[Place], kind: str, **changes: str
) -> tuple[Answer, Answer]:
    return both.ask_each(*(end_request(place, kind, **changes) for place in places))


def roll_back(both: BrokerConversation, places: Sequence[Place]) -> None:
    """The original says with its success that it did not set any response code."""
    answers = [
        connection.ask(end_request(place, ROLLBACK))
        for connection, place in zip(both.on("main"), places, strict=True)
    ]
    assert [answer.code for answer in answers] == [0, 0]


def stored(connection: Connection, topic: str, queue_id: int = 0) -> list[StoredMessage]:
    answer = connection.ask(Request(11, {**PULL, "topic": topic, "queueId": str(queue_id)}))
    return list(decode_all(answer.body)) if answer.code == 0 else []


def alike(message: StoredMessage, halves: Sequence[StoredMessage], *ignored: str) -> dict[str, Any]:
    """What of a message must be equal at both: everything but where in the log it is, and when it
    came.
    """
    offsets = {each.log_offset: each.queue_offset for each in halves}
    found = message.properties()
    return {
        "place": (message.topic, message.queue_id, message.queue_offset),
        "flags": (message.flag, message.sys_flag, message.reconsume_times),
        "born": message.born_time_ms,
        "prepared": offsets.get(message.prepared_offset, message.prepared_offset),
        "body": message.body,
        "properties": {name: value for name, value in found.items() if name not in ignored},
    }


def test_answers_and_records_of_transactions_are_equal(both_brokers: BrokerConversation) -> None:
    both_brokers.ask(Request(17, {**TOPIC, "topic": "T"}))
    first, second, third = (prepare(both_brokers, number) for number in range(3))
    fourth = prepare(both_brokers, 3, CHECK_IMMUNITY_TIME_IN_SECONDS="0")
    end(both_brokers, first, COMMIT, producerGroup="others")
    end(both_brokers, [place._replace(offset=17) for place in first], COMMIT)
    end(both_brokers, [place._replace(log_offset=1 << 40) for place in first], ROLLBACK)
    for connection, place in zip(both_brokers.on("main"), third, strict=True):
        connection.send(end_request(place, UNKNOWN))  # which is not answered
    roll_back(both_brokers, second)
    end(both_brokers, first, COMMIT)
    both_brokers.ask(Request(25, None, b"transactionTimeOut=0\n"))
    too_late = [
        connection.ask(end_request(place, COMMIT))
        for connection, place in zip(both_brokers.on("main"), fourth, strict=True)
    ]
    assert [answer.code for answer in too_late] == [604, 604]
    both_brokers.ask(Request(25, None, b"transactionTimeOut=6000\n"))
    for request in (
        row(323, {"msgId": "x", "topic": "T"}),
        row(323, {"msgId": "7F0000010000000100000000FFFFFFFF", "topic": "T"}),
    ):
        answers = [
            connection.ask(Request(request.code, request.fields))
            for connection in both_brokers.on("main")
        ]
        assert [answer.code for answer in answers] == [1, 1]
    halves = [stored(connection, HALF) for connection in both_brokers.on("main")]
    assert [alike(each, ()) for each in halves[0]] == [alike(each, ()) for each in halves[1]]
    committed = [stored(connection, "T", 1) for connection in both_brokers.on("main")]
    seen = [
        [alike(each, of) for each in messages]
        for messages, of in zip(committed, halves, strict=True)
    ]
    assert seen[0] == seen[1]
    assert [(each["body"], each["prepared"]) for each in seen[0]] == [(b"deal 0", first[0].offset)]


def ops_that_name(connection: Connection, wanted: set[int]) -> list[StoredMessage] | None:
    """The op records, if they name all these half messages."""
    ops = stored(connection, OP)
    named = {int(each) for op in ops for each in op.body.decode().split(",") if each}
    return ops if wanted <= named else None


def test_op_records_name_the_same_half_messages_in_the_same_form(
    both_brokers: BrokerConversation,
) -> None:
    """The original gathers them for three seconds, ours writes each with what it ends."""
    both_brokers.ask(Request(17, {**TOPIC, "topic": "T"}))
    deals = [prepare(both_brokers, number) for number in range(10, 13)]
    for places in deals:
        roll_back(both_brokers, places)
    for connection, side in zip(both_brokers.on("main"), (0, 1), strict=True):
        ops = wait_until(
            partial(ops_that_name, connection, {places[side].offset for places in deals})
        )
        assert all(op.body.endswith(b",") for op in ops)
        assert [op.properties() for op in ops] == [{"WAIT": "true", "TAGS": "d"}] * len(ops)


@pytest.fixture
def impatient_brokers(
    apache_5: Release, name_servers: tuple[str, str], tmp_path: Path
) -> Iterator[BrokerConversation]:
    """Both, which ask soon."""
    settings = {"transactionTimeOut": 500, "transactionCheckInterval": 1000}
    with (
        broker_pair.both_brokers(apache_5, name_servers, tmp_path, settings) as addresses,
        broker_pair.conversation(addresses) as talk,
    ):
        yield talk


def test_the_same_is_asked_and_what_is_committed_then_is_equal(
    impatient_brokers: BrokerConversation,
) -> None:
    both_brokers = impatient_brokers
    both_brokers.ask(Request(17, {**TOPIC, "topic": "T"}))
    producers = both_brokers.on("producers")
    heartbeat = {
        "clientID": "producer@1",
        "consumerDataSet": [],
        "producerDataSet": [{"groupName": GROUP}],
    }
    for connection in producers:
        assert connection.ask(Request(34, None, json.dumps(heartbeat).encode())).code == 0
    key = "0A00000100000000000000000000B020"
    prepare(both_brokers, 20, TAGS="größe")
    questions = [asked_about(connection, key) for connection in producers]
    bodies = [next(decode_all(question.body)) for question in questions]
    assert [(question.code, question.flag) for question in questions] == [(39, 2)] * 2
    assert questions[0].fields.keys() == questions[1].fields.keys()
    own = ("commitLogOffset", "offsetMsgId", "tranStateTableOffset", "bname")
    told = [
        {name: value for name, value in question.fields.items() if name not in own}
        for question in questions
    ]
    assert told[0] == told[1]
    seen = [alike(body._replace(queue_offset=0), ()) for body in bodies]
    assert seen[0] == seen[1]
    for question, body in zip(questions, bodies, strict=True):
        assert (question.fields["tranStateTableOffset"], question.fields["commitLogOffset"]) == (
            str(body.queue_offset),
            str(body.log_offset),
        )
    places = [Place(body.queue_offset, body.log_offset) for body in bodies]
    end(both_brokers, places, COMMIT, fromTransactionCheck="true")
    committed = []
    for connection in both_brokers.on("main"):
        (message,) = (
            each
            for each in stored(connection, "T", 1)
            if each.properties()[properties.UNIQUE_KEY] == key
        )
        committed.append(
            alike(message._replace(queue_offset=0, prepared_offset=0), (), properties.WAIT)
        )
    assert [each.pop("flags") for each in committed] == [
        (0, 8, 0),
        (7, 8, 0),
    ]  # the original loses the flag when it asks
    assert committed[0] == committed[1]


def asked_about(connection: Connection, key: str) -> Answer:
    """The first question about a message; those about others are left alone."""
    while True:
        question = connection.receive()
        if question.fields["msgId"] == key:
            return question


def test_the_original_commits_twice_what_ours_commits_once(
    both_brokers: BrokerConversation,
) -> None:
    both_brokers.ask(Request(17, {**TOPIC, "topic": "T"}))
    places = prepare(both_brokers, 30)
    end(both_brokers, places, COMMIT)
    again = [
        connection.ask(end_request(place, COMMIT))
        for connection, place in zip(both_brokers.on("main"), places, strict=True)
    ]
    assert [answer.code for answer in again] == [0, 4], ONCE
    counts = [
        sum(message.body == b"deal 30" for message in stored(connection, "T", 1))
        for connection in both_brokers.on("main")
    ]
    assert counts == [2, 1]
