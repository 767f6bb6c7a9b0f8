"""Pulls: who may read, what is found, what waits, and that each is answered once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.consume.pending_pulls import PendingPulls
from orbitmq.broker.consume.service import PullService
from orbitmq.broker.observability.stats import StatName, stat_key
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.message.record import decode_all
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.pull import ForbiddenBy
from orbitmq.remoting.slices import SliceQueue
from support.broker.listeners import stats_recorder
from support.broker.socketless import BrokerRoom
from support.remoting.channels import InlineSlices, sent

PULL = RequestCode.PULL_MESSAGE
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4


class Room(BrokerRoom):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.hold = PendingPulls()
        self.figures = stats_recorder(self.clock, self.topics.is_system)
        self.pull_service = PullService(
            settings=self.settings,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            reads=self.store.reads,
            pending=self.hold,
            clock=self.clock,
            listener=self.figures,
            filters=self.filters,
            record_of=self.store.reads.record_of,
            slices=InlineSlices(),
        )
        self.pulls = PullProcessor(self.pull_service, found=None)
        self.store.dispatcher.add_listener(self.pull_service.arrived)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.close()


def fields(**changes: Any) -> dict[str, Any]:
    header: dict[str, Any] = {
        "consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": SUBSCRIPTION, "commitOffset": 0,
        "suspendTimeoutMillis": 15_000, "subVersion": 1, "subscription": "*",
    }  # fmt: skip
    header.update(changes)
    return {name: value for name, value in header.items() if value is not None}


def bodies(answer: RemotingCommand) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer
    return [message.body for message in decode_all(answer.body or b"")]


def numbers(answer: RemotingCommand) -> tuple[int, int, int]:
    found = answer.ext_fields or {}
    return int(found["nextBeginOffset"]), int(found["minOffset"]), int(found["maxOffset"])


def test_messages_are_found_from_an_offset_on(room: Room) -> None:
    for number in range(5):
        room.put(b"%d" % number)
    answer = room.ask(room.pulls, PULL, fields(queueOffset=1, maxMsgNums=3))
    assert (bodies(answer), numbers(answer), answer.remark) == (
        [b"1", b"2", b"3"],
        (4, 0, 5),
        "FOUND",
    )
    assert room.offsets.query_pull("g", "T", 0) == 4
    assert room.figures.stats.counter(StatName.GROUP_GET_NUMS, stat_key("T", "g")).value == 3


def test_tags_choose_messages_by_the_pull_itself_or_by_the_group(room: Room) -> None:
    for number in range(6):
        room.put(b"%d" % number, TAGS="abc"[number % 3])
    assert bodies(room.ask(room.pulls, PULL, fields(subscription="a || c"))) == [
        b"0",
        b"2",
        b"3",
        b"5",
    ]
    room.consume()
    assert len(bodies(room.ask(room.pulls, PULL, fields(sysFlag=0)))) == 6
    nothing = room.ask(room.pulls, PULL, fields(subscription="none"))
    assert (nothing.code, nothing.remark, numbers(nothing)[0]) == (
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        "NO_MATCHED_MESSAGE",
        6,
    )


@pytest.mark.parametrize(
    ("offset", "code", "next_offset", "status"),
    [
        (3, ResponseCode.PULL_NOT_FOUND, 3, "OFFSET_OVERFLOW_ONE"),
        (9, ResponseCode.PULL_OFFSET_MOVED, 3, "OFFSET_OVERFLOW_BADLY"),
        (-1, ResponseCode.PULL_OFFSET_MOVED, 0, "OFFSET_TOO_SMALL"),
    ],
)
def test_an_offset_without_a_message_is_corrected(
    room: Room, offset: int, code: int, next_offset: int, status: str
) -> None:
    for _ in range(3):
        room.put()
    answer = room.ask(room.pulls, PULL, fields(queueOffset=offset))
    assert (answer.code, answer.remark, numbers(answer)[0], answer.body) == (
        code,
        status,
        next_offset,
        None,
    )


@pytest.mark.parametrize(
    ("offset", "code"), [(0, ResponseCode.PULL_NOT_FOUND), (5, ResponseCode.PULL_OFFSET_MOVED)]
)
def test_an_empty_queue_is_told_from_one_that_lost_its_messages(
    room: Room, offset: int, code: int
) -> None:
    answer = room.ask(room.pulls, PULL, fields(queueOffset=offset))
    assert (answer.code, answer.remark) == (code, "NO_MESSAGE_IN_QUEUE")


def test_a_pull_that_finds_nothing_waits_and_is_answered_once_by_the_message(room: Room) -> None:
    assert room.begin(room.pulls, PULL, fields(sysFlag=SUSPEND | SUBSCRIPTION)) is None
    assert len(room.hold) == 1
    room.put(b"here")
    (answer,) = sent(room.channel)
    assert (bodies(answer), answer.opaque) == ([b"here"], 7)
    room.put(b"another")
    room.clock.advance_ms(60_000)
    room.pull_service.expire()
    assert sent(room.channel) == []


def test_a_pull_waits_for_a_message_that_it_wants_and_no_longer_than_it_says(room: Room) -> None:
    wait = fields(sysFlag=SUSPEND | SUBSCRIPTION, subscription="wanted", suspendTimeoutMillis=8000)
    assert room.begin(room.pulls, PULL, wait) is None
    room.clock.advance_ms(7_999)
    room.pull_service.expire()
    assert sent(room.channel) == []
    room.clock.advance_ms(1)
    room.pull_service.expire()
    (answer,) = sent(room.channel)
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert room.begin(room.pulls, PULL, wait) is None
    room.put(b"x", TAGS="other")
    assert sent(room.channel) == []
    room.put(b"y", TAGS="wanted")
    assert bodies(*sent(room.channel)) == [b"y"]


def test_a_pull_whose_topic_goes_while_it_waits_is_told_so(room: Room) -> None:
    assert room.begin(room.pulls, PULL, fields(sysFlag=SUSPEND | SUBSCRIPTION)) is None
    room.topics.delete("T")
    room.clock.advance_ms(15_000)
    room.pull_service.expire()
    (answer,) = sent(room.channel)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_a_connection_that_is_gone_is_not_waited_for(room: Room) -> None:
    assert room.begin(room.pulls, PULL, fields(sysFlag=SUSPEND | SUBSCRIPTION)) is None
    assert room.hold.drop(room.channel)
    assert len(room.hold) == 0


def test_a_pull_of_a_connection_that_is_gone_takes_no_reset_from_the_next(room: Room) -> None:
    assert room.begin(room.pulls, PULL, fields(sysFlag=SUSPEND | SUBSCRIPTION)) is None
    room.offsets.assign_reset("g", "T", 0, 0)
    room.channel.is_open = False  # what waits on it is dropped some slices later
    room.put()
    room.channel.is_open = True
    assert sent(room.channel) == []
    assert room.ask(room.pulls, PULL, fields(queueOffset=1)).remark == "OFFSET_RESET"


def test_pulls_that_take_long_to_answer_are_answered_in_slices_in_order(room: Room) -> None:
    async def scenario() -> None:
        slices = room.pull_service._slices = SliceQueue(share_ns=0)
        room.pull_service.share_ns = -1  # every answer takes too long
        for _ in range(2):
            assert room.begin(room.pulls, PULL, fields(sysFlag=SUSPEND | SUBSCRIPTION)) is None
        room.put(b"first")
        assert bodies(*sent(room.channel)) == [b"first"]
        assert (
            room.begin(room.pulls, PULL, fields(sysFlag=SUSPEND | SUBSCRIPTION, queueOffset=1))
            is None
        )
        room.put(b"second")
        assert sent(room.channel) == [], "its pull is answered behind the other"
        for found in ([b"first", b"second"], [b"second"]):
            await asyncio.sleep(0)
            assert bodies(*sent(room.channel)) == found
        await asyncio.sleep(0)
        assert (len(slices), len(room.hold)) == (0, 0)

    asyncio.run(scenario())


def test_a_pull_commits_the_offset_it_brings_once(room: Room) -> None:
    room.put()
    room.ask(room.pulls, PULL, fields(sysFlag=COMMIT | SUBSCRIPTION, commitOffset=41))
    assert room.offsets.query("g", "T", 0) == 41
    room.ask(room.pulls, PULL, fields(commitOffset=42))
    assert room.offsets.query("g", "T", 0) == 41


@pytest.mark.parametrize("offset", [0, 3, 90])
def test_a_reset_is_told_to_the_next_pull_and_only_to_that(room: Room, offset: int) -> None:
    for _ in range(3):
        room.put()
    room.offsets.assign_reset("g", "T", 0, 1)
    answer = room.ask(room.pulls, PULL, fields(queueOffset=offset, sysFlag=SUSPEND | SUBSCRIPTION))
    assert (answer.code, answer.remark, numbers(answer)[0], answer.body) == (
        ResponseCode.PULL_OFFSET_MOVED,
        "OFFSET_RESET",
        1,
        None,
    )
    assert room.offsets.query_pull("g", "T", 0) == 1
    assert room.ask(room.pulls, PULL, fields(queueOffset=1)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST, "topic[Unknown] not exist"),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER, "queueId[4] is illegal"),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER, "queueId[-1] is illegal"),
        (
            {"consumerGroup": "not a group!"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "does not exist",
        ),
        ({"subscription": "a > 1", "expressionType": "SQL92"}, ResponseCode.SYSTEM_ERROR, "SQL92"),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "names no tag"),
        ({"sysFlag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "no member has sent a heartbeat"),
        ({"queueOffset": None}, ResponseCode.SYSTEM_ERROR, "the field queueOffset"),
    ],
)
def test_who_may_not_read_is_told_why(
    room: Room, changes: dict[str, Any], code: int, says: str
) -> None:
    refused = room.refusal(room.pulls, PULL, fields(**changes))
    assert refused.code == code
    assert says in refused.remark


def test_permissions_of_broker_group_and_topic_are_kept(room: Room) -> None:
    def forbidden_by(**changes: Any) -> int:
        before = room.state()
        answer = room.ask(room.pulls, PULL, fields(**changes))
        assert (answer.code, room.state(), bool(answer.remark)) == (
            ResponseCode.NO_PERMISSION,
            before,
            True,
        )
        return int((answer.ext_fields or {})["forbiddenType"])

    room.topics.update(TopicConfig("Closed", 1, 1, perm=2))
    room.groups.update(GroupConfig("off", consume_enable=False))
    assert forbidden_by(topic="Closed") == ForbiddenBy.TOPIC
    assert forbidden_by(consumerGroup="off") == ForbiddenBy.GROUP
    room.consume()
    room.groups.set_readable("g", "T", readable=False)
    assert forbidden_by(sysFlag=0) == ForbiddenBy.SUBSCRIPTION
    room.settings.broker_permission = 2
    assert forbidden_by() == ForbiddenBy.BROKER


def test_a_pull_that_waits_is_forbidden_when_the_topic_was_closed(room: Room) -> None:
    assert room.begin(room.pulls, PULL, fields(sysFlag=SUSPEND | SUBSCRIPTION)) is None
    room.topics.update(TopicConfig("T", 4, 4, perm=2))
    room.put()
    (answer,) = sent(room.channel)
    assert (answer.code, (answer.ext_fields or {})["forbiddenType"]) == (
        ResponseCode.NO_PERMISSION,
        str(ForbiddenBy.TOPIC.value),
    )


def test_a_group_whose_subscription_is_older_than_the_pull_has_to_send_a_heartbeat(
    room: Room,
) -> None:
    room.consume()
    assert (
        room.refusal(room.pulls, PULL, fields(sysFlag=0, subVersion=2)).code
        == ResponseCode.SUBSCRIPTION_NOT_LATEST
    )
    room.topics.update(TopicConfig("Other", 1, 1))
    refused = room.refusal(room.pulls, PULL, fields(sysFlag=0, topic="Other"))
    assert (refused.code, "Other" in refused.remark) == (ResponseCode.SUBSCRIPTION_NOT_EXIST, True)
