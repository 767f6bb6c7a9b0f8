"""Offsets that operators reset, kept by the broker or pushed to clients, and the offsets that
clients tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from orbitmq.broker.processors.resets import ResetProcessor
from orbitmq.common.errors import RequestRefusedError
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from support.broker.socketless import BrokerRoom, body_of
from support.remoting.channels import sent

RESET, STATUS = (
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
)
ASKED = {"topic": "T", "group": "g", "timestamp": 0, "isForce": "true"}


@pytest.fixture
def resets(room: BrokerRoom) -> ResetProcessor:
    return ResetProcessor(
        room.settings,
        topics=room.topics,
        groups=room.groups,
        offsets=room.offsets,
        consumers=room.consumers,
        store=room.store,
    )


def fill(room: BrokerRoom) -> list[int]:
    """Three messages in queue 0, and all of them consumed; when they were stored."""
    times: list[int] = [room.put().store_time_ms for _ in range(3)]
    for queue_id in range(4):
        room.offsets.commit("g", "T", queue_id, 3 if queue_id == 0 else 0)
    return times


# --- by the broker


def test_all_queues_are_reset_to_a_time_and_consumers_hear_of_it_as_they_pull(
    room: BrokerRoom, resets: ResetProcessor
) -> None:
    times = fill(room)
    answer = room.ask(resets, RESET, {**ASKED, "timestamp": times[1]})
    assert (answer.code, answer.remark, answer.ext_fields) == (0, None, None)
    assert body_of(answer) == {"offsetTable": {"T:0": 1, "T:1": 0, "T:2": 0, "T:3": 0}}
    assert room.offsets.query("g", "T", 0) == 1
    assert [room.offsets.take_reset("g", "T", queue_id) for queue_id in range(4)] == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("fields", "table"),
    [
        ({"queueId": -1}, {"T:0": 0, "T:1": 0, "T:2": 0, "T:3": 0}),
        ({"offset": 2}, {"T:0": 0, "T:1": 0, "T:2": 0, "T:3": 0}),
        ({"timestamp": -1}, {"T:0": 3, "T:1": 0, "T:2": 0, "T:3": 0}),
        ({"timestamp": -1, "queueId": 0}, {"T:0": 3}),
        ({"queueId": 0, "offset": 1}, {"T:0": 1}),
        ({"queueId": 0, "offset": 4}, {"T:0": 4}),
        ({"queueId": 0, "offset": -1}, {"T:0": 0}),
    ],
)
def test_queues_are_reset_by_time_or_offset_together_or_alone(
    room: BrokerRoom, resets: ResetProcessor, fields: dict[str, int], table: dict[str, int]
) -> None:
    fill(room)
    assert body_of(room.ask(resets, RESET, {**ASKED, **fields})) == {"offsetTable": table}


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"topic": "nope"}, 17, "Topic nope does not exist"),
        ({"group": "nope"}, 26, "Group nope does not exist"),
        ({"queueId": 0, "offset": 5}, 1, "Target offset 5 not in consume queue range [0-3]"),
        ({"queueId": 0, "offset": -2}, 1, "Target offset -2 not in consume queue range [0-3]"),
        ({"topic": "Empty"}, 1, "No queues to reset."),
        ({"timestamp": "x"}, 1, "the field timestamp"),
        *(({name: None}, 1, f"the field {name}") for name in ASKED),
    ],
)
def test_a_reset_that_makes_no_sense_is_refused_and_changes_nothing(
    room: BrokerRoom, resets: ResetProcessor, change: dict[str, Any], code: int, remark: str
) -> None:
    fill(room)
    room.topics.update(TopicConfig("Empty", 0, 0))
    refused = room.refusal(
        resets,
        RESET,
        {name: value for name, value in {**ASKED, **change}.items() if value is not None},
    )
    assert (refused.code, refused.remark[: len(remark)]) == (code, remark)
    assert not any(room.offsets.has_reset("g", "T", queue_id) for queue_id in range(4))
    assert "nope" not in room.groups


# --- by the clients


def test_without_resets_here_the_consumers_online_are_told_the_offsets(
    room: BrokerRoom, resets: ResetProcessor
) -> None:
    room.settings.use_server_side_reset_offset = False
    times = fill(room)
    consumers = [room.consume("g", client_id=client_id) for client_id in ("a", "b")]
    answer = room.ask(resets, RESET, {**ASKED, "timestamp": times[1]})
    expected = {"offsetTable": {"T:0": 1, "T:1": 0, "T:2": 0, "T:3": 0}}
    assert body_of(answer) == expected
    for consumer in consumers:
        (told,) = sent(consumer)
        assert (told.code, told.is_oneway, told.body) == (
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            True,
            answer.body,
        )
        assert told.ext_fields == {
            "topic": "T",
            "group": "g",
            "timestamp": str(times[1]),
            "isForce": "false",
            "queueId": "-1",
        }
    assert room.offsets.query("g", "T", 0) == 3, "the consumers commit it"


def test_a_crowd_of_consumers_is_told_in_slices(room: BrokerRoom, resets: ResetProcessor) -> None:
    room.settings.use_server_side_reset_offset = False
    fill(room)
    consumers = [room.consume("g", client_id=f"c{number}") for number in range(250)]
    request = RemotingCommand(RESET, ext_fields={name: str(value) for name, value in ASKED.items()})
    told = [
        sum(len(sent(consumer)) for consumer in consumers)
        for _ in resets.reset(room.channel, request)
    ]
    told.append(sum(len(sent(consumer)) for consumer in consumers))
    assert told == [100, 100, 50]


def test_unless_it_is_forced_no_consumer_goes_forward(
    room: BrokerRoom, resets: ResetProcessor
) -> None:
    room.settings.use_server_side_reset_offset = False
    fill(room)
    room.offsets.commit("g", "T", 0, 1)
    room.consume("g")
    for force, offset in (("false", 1), ("true", 3)):
        body = body_of(room.ask(resets, RESET, {**ASKED, "timestamp": -1, "isForce": force}))
        assert body["offsetTable"]["T:0"] == offset


def test_clients_in_cpp_are_told_the_offsets_as_a_list(
    room: BrokerRoom, resets: ResetProcessor
) -> None:
    room.settings.use_server_side_reset_offset = False
    room.topics.update(TopicConfig("T", 1, 1))
    fill(room)
    consumer = room.consume("g")
    room.begin(resets, RESET, ASKED, language=LanguageCode.CPP)
    (told,) = sent(consumer)
    assert (
        told.body
        == b'{"offsetTable":[{"brokerName":"broker-a","offset":0,"queueId":0,"topic":"T"}]}'
    )


@pytest.mark.parametrize(
    ("topic", "group", "version", "code", "remark"),
    [
        (
            "nope",
            "g",
            513,
            17,
            "[reset-offset] reset offset failed, no topic in this broker. topic=nope",
        ),
        ("T", "nobody", 513, 1, "THe consumer group <nobody> not exist"),
        (
            "T",
            "g",
            None,
            206,
            "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: 0",
        ),
        ("T", "g", 27, 1, "the client does not support this feature. version=V3_0_6"),
    ],
)
def test_no_client_is_told_when_one_cannot_be(
    room: BrokerRoom,
    resets: ResetProcessor,
    topic: str,
    group: str,
    version: int | None,
    code: int,
    remark: str,
) -> None:
    room.settings.use_server_side_reset_offset = False
    fill(room)
    consumers = (
        []
        if version is None
        else [
            room.consume("g", client_id="new"),
            room.consume("g", client_id="old", version=version),
        ]
    )
    refused = room.refusal(resets, RESET, {**ASKED, "topic": topic, "group": group})
    assert (refused.code, refused.remark[: len(remark)]) == (code, remark)
    assert [sent(consumer) for consumer in consumers] == [[] for _ in consumers]


# --- what clients have


def ask_status(
    room: BrokerRoom,
    resets: ResetProcessor,
    fields: dict[str, str],
    says: Mapping[Channel, tuple[int, bytes | None]],
) -> RemotingCommand:
    """What is answered when these consumers, once they were asked, answer so."""

    async def conversation() -> RemotingCommand:
        asking = asyncio.ensure_future(room.ask_waiting(resets, STATUS, fields))
        for _ in range(3):  # the handler begins, and what it begins
            await asyncio.sleep(0)
        for consumer, (code, body) in says.items():
            (question,) = sent(consumer)
            assert question.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
            assert question.ext_fields == {"topic": "T", "group": "g"}
            room.peers.answer(
                consumer, RemotingCommand(code, body=body, opaque=question.opaque, flag=1)
            )
        return await asking

    return asyncio.run(conversation())


def told(offset: int) -> bytes:
    return (
        b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"T"}:%d}}'
        % offset
    )


def test_the_offsets_of_all_consumers_are_asked_for(
    room: BrokerRoom, resets: ResetProcessor
) -> None:
    first, second, third = (room.consume("g", client_id=client_id) for client_id in ("a", "b", "c"))
    says = {second: (0, told(7)), third: (0, b"not JSON"), first: (0, told(5))}
    answer = ask_status(room, resets, {"topic": "T", "group": "g"}, says)
    assert (answer.code, answer.remark) == (0, "not set any response code")
    assert (
        answer.body == b'{"consumerTable":{"a":{{"brokerName":"b","queueId":1,"topic":"T"}:5},'
        b'"b":{{"brokerName":"b","queueId":1,"topic":"T"}:7}},"messageQueueTable":{}}'
    )


def test_one_consumer_is_asked_when_it_is_named(room: BrokerRoom, resets: ResetProcessor) -> None:
    other, named = room.consume("g", client_id="a"), room.consume("g", client_id="b")
    answer = ask_status(
        room, resets, {"topic": "T", "group": "g", "clientAddr": "b"}, {named: (0, told(7))}
    )
    assert list(fastjson.loads(answer.body or b"")["consumerTable"]) == ["b"]
    assert sent(other) == []


@pytest.mark.parametrize(
    "says", [(0, None), (0, b""), (1, told(1)), (0, b'{"messageQueueTable":{"x":1}}'), (0, b"[]")]
)
def test_a_consumer_that_does_not_say_is_left_out(
    room: BrokerRoom, resets: ResetProcessor, says: tuple[int, bytes | None]
) -> None:
    answer = ask_status(room, resets, {"topic": "T", "group": "g"}, {room.consume("g"): says})
    assert answer.body == b'{"consumerTable":{},"messageQueueTable":{}}'


def test_a_consumer_that_went_away_is_left_out(room: BrokerRoom, resets: ResetProcessor) -> None:
    room.consume("g").is_open = False
    answer = ask_status(room, resets, {"topic": "T", "group": "g"}, {})
    assert answer.body == b'{"consumerTable":{},"messageQueueTable":{}}'


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        (
            {"topic": "T", "group": "nobody"},
            "No Any Consumer online in the consumer group: [nobody]",
        ),
        (
            {"topic": "T", "group": "old"},
            "the client does not support this feature. version=V3_0_6",
        ),
        ({"topic": "T"}, "the field group"),
        ({"group": "g"}, "the field topic"),
    ],
)
def test_nobody_is_asked_when_nobody_can_be(
    room: BrokerRoom, resets: ResetProcessor, fields: dict[str, str], remark: str
) -> None:
    old = room.consume("old", version=27)
    with pytest.raises(RequestRefusedError) as refused:
        ask_status(room, resets, fields, {})
    assert (refused.value.code, refused.value.remark[: len(remark)]) == (1, remark)
    assert sent(old) == []
