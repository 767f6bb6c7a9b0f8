"""Pulls that find messages are served by the fast path as by the general path; all others are left to
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.common.slices import finish
from orbitmq.message.tags import java_hash
from orbitmq.protocol import frame
from orbitmq.protocol.bodies.clients import ConsumerData
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.bodies.subscriptions import MessageModel, SubscriptionData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.store.dispatch import Arrival
from support.broker.two_paths import PROPERTIES, PULL, SEND, PathRoom, TwoRooms, request
from support.remoting.channels import client

V2, PULLED = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.PULL_MESSAGE)
BINARY = pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[TwoRooms]:
    made = TwoRooms(tmp_path)
    yield made
    made.close()


def online(rooms: TwoRooms, expression: str = "*", version: int = 1, *codes: int) -> None:
    """A consumer of `g` that subscribes `T` so."""
    subscription = SubscriptionData("T", expression, version, (), codes)
    for room in rooms.both:
        data = ConsumerData(
            "g", message_model=MessageModel.CLUSTERING, subscriptions=(subscription,)
        )
        room.consumers.register(room.channels[2], client("c"), data, room.clock.monotonic_ms())


def stocked(rooms: TwoRooms) -> None:
    """Ten messages in queue 1, of tags TagA and TagB in turns."""
    tags = [
        PROPERTIES.replace("TagA", "TagB") if number % 2 else PROPERTIES for number in range(10)
    ]
    rooms.sent(
        [
            request(V2, SEND | {"i": each}, b"x" * 50, opaque=number)
            for number, each in enumerate(tags)
        ]
    )


@BINARY
@pytest.mark.parametrize("flag", ["4", "6", "2", "3"])
def test_a_pull_that_finds_messages_is_answered_without_the_general_way(
    rooms: TwoRooms, flag: str, binary: bool
) -> None:
    stocked(rooms)
    online(rooms)
    for offset, count in ((0, 32), (3, 2), (9, 1), (0, -5)):
        fields = PULL | {
            "sysFlag": flag,
            "queueOffset": f"{offset:06}",
            "maxMsgNums": str(count),
            "commitOffset": str(offset),
        }
        (answer,) = rooms.sent([request(PULLED, fields, binary=binary, opaque=offset)])
        assert answer.remark == "FOUND"
        assert answer.body is not None
    assert rooms.fast.general == []


def test_a_pull_gets_the_tags_that_its_group_subscribed_last(rooms: TwoRooms) -> None:
    stocked(rooms)
    for version, tag in enumerate(("TagA", "TagB"), 1):
        online(rooms, tag, version, java_hash(tag))
        (answer,) = rooms.sent([request(PULLED, PULL | {"subVersion": str(version)})])
        assert answer.body is not None
        assert (answer.body.count(b"TagA") > 0, answer.body.count(b"TagB") > 0) == (
            tag == "TagA",
            tag == "TagB",
        )
    assert rooms.fast.general == []


@pytest.mark.parametrize(
    "changes",
    [
        {"queueOffset": "11"},
        {"queueOffset": "-1"},
        {"queueId": "4"},
        {"queueId": "-1"},
        {"topic": "Unknown"},
        {"consumerGroup": "new"},
        {"consumerGroup": ""},
        {"subVersion": "2"},
        {"subVersion": "x"},
        {"sysFlag": "4", "subscription": "TagA||TagB"},
        {"sysFlag": "4", "expressionType": "SQL92", "subscription": "a = 1"},
        {"sysFlag": "4", "expressionType": ""},
    ],
    ids=str,
)
def test_a_pull_that_may_not_or_is_told_something_else_goes_the_general_way(
    rooms: TwoRooms, changes: dict[str, str]
) -> None:
    stocked(rooms)
    online(rooms)
    rooms.turn(request(PULLED, PULL | changes))
    assert rooms.fast.general == [PULLED]
    assert len(rooms.fast.hold) == len(rooms.plain.hold)


def test_a_pull_of_a_group_that_subscribes_by_an_expression_gets_what_that_wants_also_after_it_waited(
    rooms: TwoRooms,
) -> None:
    stocked(rooms)
    subscription = SubscriptionData("T", "TAGS = 'TagB'", 1, expression_type="SQL92")
    for room in rooms.both:
        room.settings.enable_property_filter = True
        data = ConsumerData(
            "g", message_model=MessageModel.CLUSTERING, subscriptions=(subscription,)
        )
        room.consumers.register(room.channels[2], client("c"), data, room.clock.monotonic_ms())
        finish(room.known_filters.heard("g", (subscription,)))
    (answer,) = rooms.sent([request(PULLED, PULL)])
    assert (answer.body or b"").count(b"TagB") == 5
    assert (answer.body or b"").count(b"TagA") == 0
    assert rooms.turn(request(PULLED, PULL | {"queueOffset": "10"}))[0][0] == []
    assert rooms.turn((1, request(V2, SEND, b"unwanted")))[0][0] == []
    ((_, data),) = rooms.turn(
        (1, request(V2, SEND | {"i": PROPERTIES.replace("TagA", "TagB")}, b"wanted"))
    )[0][0]
    assert b"unwanted" not in data
    assert b"wanted" in data
    assert rooms.fast.general == []
    for room in rooms.both:
        room.settings.enable_property_filter = False
    (answer,) = rooms.sent([request(PULLED, PULL)])
    assert "enablePropertyFilter" in (answer.remark or "")
    assert rooms.fast.general == [PULLED], "which says what is wrong"


@pytest.mark.parametrize(
    "changes", [{"queueOffset": "10"}, {"queueId": "2"}], ids=["at the end", "of an empty queue"]
)
@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_a_pull_that_waits_is_held_and_answered_without_the_general_way(
    rooms: TwoRooms, changes: dict[str, str], binary: bool
) -> None:
    stocked(rooms)
    online(rooms)
    assert rooms.turn(request(PULLED, PULL | changes, binary=binary))[0][0] == []
    assert len(rooms.fast.hold) == len(rooms.plain.hold) == 1
    fields = SEND | {"e": changes.get("queueId", "1")}
    answers = rooms.turn((1, request(V2, fields, b"hello")))
    assert [len(answers[number][0]) for number in (0, 1)] == [1, 1]
    assert rooms.fast.general == []


def test_a_pull_that_waited_in_vain_is_answered_by_the_general_way(rooms: TwoRooms) -> None:
    stocked(rooms)
    online(rooms)
    rooms.turn(request(PULLED, PULL | {"queueOffset": "10"}))
    for room in rooms.both:
        room.clock.advance_ms(15_000)
        room.pull_service.expire()
    ((_, data),) = rooms.turn()[0][0]
    assert frame.decode_one(data).code == ResponseCode.PULL_NOT_FOUND


def test_a_pull_is_refused_as_soon_as_its_group_or_topic_may_not(rooms: TwoRooms) -> None:
    stocked(rooms)
    online(rooms)
    pull = request(PULLED, PULL)
    rooms.turn(pull)
    for room in rooms.both:
        room.groups.set_readable("g", "T", False)
    assert rooms.sent([pull])[0].code == ResponseCode.NO_PERMISSION
    for room in rooms.both:
        room.groups.set_readable("g", "T", True)
    assert rooms.sent([pull])[0].code == 0
    for room in rooms.both:
        room.topics.update(TopicConfig("T", 4, 4, 2))
    assert rooms.sent([pull])[0].code == ResponseCode.NO_PERMISSION
    for room in rooms.both:
        room.topics.update(TopicConfig("T", 4, 4, 6))
        list(room.consumers.on_close(room.channels[2]))
    assert rooms.sent([pull])[0].code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert rooms.fast.general == [PULLED] * 3


def test_a_reset_that_waits_is_given_by_the_general_way(rooms: TwoRooms) -> None:
    stocked(rooms)
    online(rooms)
    for room in rooms.both:
        room.offsets.assign_reset("g", "T", 1, 5)
    assert [rooms.sent([request(PULLED, PULL)])[0].code for _ in range(2)] == [
        ResponseCode.PULL_OFFSET_MOVED,
        0,
    ]
    assert rooms.fast.general == [PULLED]


def test_what_a_pull_commits_is_in_the_journal_before_its_answer_leaves(rooms: TwoRooms) -> None:
    stocked(rooms)
    online(rooms)
    journal = rooms.fast.config_folder / "consumerOffset.journal"
    before = journal.stat().st_size
    rooms.turn(request(PULLED, PULL | {"sysFlag": "3", "commitOffset": "4"}))
    assert rooms.fast.offsets.query("g", "T", 1) == 4
    assert journal.stat().st_size > before
    assert rooms.fast.general == []


def test_a_pull_that_waits_is_answered_by_a_send_of_the_same_turn(rooms: TwoRooms) -> None:
    online(rooms)
    answers = rooms.turn((0, request(PULLED, PULL)), (1, request(V2, SEND, b"hello")))
    assert [len(answers[number][0]) for number in (0, 1)] == [1, 1]
    assert rooms.fast.general == []


def test_nobody_hears_of_messages_while_nobody_waits_for_one(rooms: TwoRooms) -> None:
    heard: list[Arrival] = []
    rooms.fast.store.dispatcher.add_listener(heard.append, rooms.fast.pull_service.is_awaiting)
    rooms.sent([request(V2, SEND, b"x")])
    assert heard == []
    online(rooms)
    rooms.turn(request(PULLED, PULL | {"queueOffset": "1"}))
    rooms.turn((1, request(V2, SEND, b"y")))
    assert [arrival.next_offset for arrival in heard] == [2]


def test_a_peer_that_takes_no_answers_is_not_served_on(tmp_path: Path) -> None:
    room = PathRoom(tmp_path, fast=True)
    room.turn((0, request(V2, SEND, b"x")))
    link: Any = room.channels[0].link
    write = link.write

    def stops_reading(data: bytes) -> None:
        write(data)
        link.reading = False

    link.write = stops_reading
    data = bytearray(
        b"".join(request(PULLED, PULL | {"sysFlag": "4"}, opaque=number) for number in range(5))
    )
    assert 0 < room.endpoint.receive(link, data, 0, len(data)) < len(data)
    room.endpoint.end_of_iteration()
    assert [opaque for opaque, _ in room.answers()[0][0]] == [
        0,
        1,
    ], "the send, and the pull that filled its room"
    room.close()
