"""How far groups are: committed, asked for, compared, copied; with real offsets and a small
store.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.consume.offset_service import OffsetService
from orbitmq.broker.processors.consumer_offsets import ConsumerOffsetProcessor
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.bodies.offsets import ConsumerOffsets
from orbitmq.protocol.codes import RequestCode
from support.broker.socketless import ADDRESS, BrokerRoom, body_of
from support.remoting.channels import sent

QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
STATS, ALL_STATS, SPAN = (
    RequestCode.GET_CONSUME_STATS,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
)
CORRECTION, CLONE = RequestCode.QUERY_CORRECTION_OFFSET, RequestCode.CLONE_GROUP_OFFSET
BY_WHO, BY_GROUP = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, RequestCode.QUERY_TOPICS_BY_CONSUMER
SUBSCRIPTION = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
QUEUE = {"consumerGroup": "g", "topic": "T", "queueId": 0}
COMMIT = {**QUEUE, "commitOffset": 2}
MAX_LONG = (1 << 63) - 1


@pytest.fixture
def offsets(room: BrokerRoom) -> ConsumerOffsetProcessor:
    return processor_of(room)


def processor_of(room: BrokerRoom) -> ConsumerOffsetProcessor:
    return ConsumerOffsetProcessor(
        room.settings,
        OffsetService(
            topics=room.topics, groups=room.groups, offsets=room.offsets, store=room.store
        ),
        topics=room.topics,
        groups=room.groups,
        offsets=room.offsets,
        consumers=room.consumers,
        store=room.store,
        clock=room.clock,
        address=lambda: ADDRESS,
        get_tps=lambda topic, group: 2.5 if (topic, group) == ("T", "g") else 0.0,
    )


def test_no_group_is_behind_by_less_than_nothing_when_the_clock_was_set_back(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    room.put()
    room.offsets.commit("g", "T", 0, 0, client="c")
    room.clock.set_wall_ms(room.clock.now_ms() - 86_400_000)
    assert (
        body_of(room.ask(offsets, SPAN, {"topic": "T", "group": "g"}))["consumeTimeSpanSet"][0][
            "delayTime"
        ]
        == 0
    )


# --- 14


def test_an_offset_that_was_committed_is_told(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    answer = room.ask(offsets, UPDATE, COMMIT)
    assert (answer.code, answer.remark, answer.ext_fields, answer.body) == (0, None, {}, None)
    answer = room.ask(offsets, QUERY, QUEUE)
    assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {"offset": "2"})
    room.ask(offsets, UPDATE, {**COMMIT, "commitOffset": 1})
    assert room.ask(offsets, QUERY, QUEUE).ext_fields == {"offset": "1"}


def test_a_new_group_begins_with_the_first_message_of_a_young_queue(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    room.put()
    for fields in (
        QUEUE,
        {**QUEUE, "setZeroIfNotFound": "true"},
        {**QUEUE, "consumerGroup": "never seen"},
    ):
        answer = room.ask(offsets, QUERY, fields)
        assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {"offset": "0"})
    answer = room.ask(offsets, QUERY, {**QUEUE, "setZeroIfNotFound": "false"})
    assert (answer.code, answer.remark, answer.ext_fields) == (
        22,
        "Not found, do not set to zero, maybe this group boot first",
        {},
    )


@pytest.mark.parametrize("fields", [{}, {"setZeroIfNotFound": "true"}])
def test_a_new_group_that_asks_before_the_first_message_of_a_queue_is_stored_begins_with_it(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor, fields: dict[str, Any]
) -> None:
    first = room.ask(
        offsets, QUERY, {**QUEUE, **fields}
    )  # a consumer that gets no offset here asks for the end of the queue next
    room.put()
    assert room.store.queues.max_offset("T", 0) == 1
    assert (first.code, first.remark, first.ext_fields) == (0, None, {"offset": "0"})


def test_who_wants_no_zero_gets_none_of_an_empty_queue_either(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    assert room.ask(offsets, QUERY, {**QUEUE, "setZeroIfNotFound": "false"}).code == 22


@pytest.mark.parametrize("fields", [{"queueId": 99}, {"queueId": -1}, {"topic": "nope"}])
def test_a_new_group_of_a_queue_that_is_not_there_is_told_that_there_is_no_offset(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor, fields: dict[str, Any]
) -> None:
    room.put()
    answer = room.ask(offsets, QUERY, {**QUEUE, **fields})
    assert (answer.code, answer.remark, answer.ext_fields) == (
        22,
        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        {},
    )


def test_a_new_group_of_a_queue_whose_first_message_is_cold_is_told_that_there_is_no_offset(
    tmp_path: Path,
) -> None:
    room = BrokerRoom(tmp_path, memory_percent_max=0)
    room.put()
    assert room.ask(processor_of(room), QUERY, QUEUE).code == 22
    room.close()


# --- 15


def test_a_commit_that_nobody_waits_for_counts_too(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    room.begin(offsets, UPDATE, COMMIT, flag=2)
    assert (room.offsets.query("g", "T", 0), sent(room.channel)) == (2, [])


def test_a_commit_while_a_reset_waits_is_passed_over(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    room.offsets.assign_reset("g", "T", 0, 7)
    answer = room.ask(offsets, UPDATE, COMMIT)
    assert (answer.code, answer.remark, answer.ext_fields) == (
        0,
        "Offset has been previously reset",
        {},
    )
    assert room.offsets.query("g", "T", 0) == 7
    room.offsets.server_side_reset = False
    room.ask(offsets, UPDATE, COMMIT)
    assert room.offsets.query("g", "T", 0) == 2


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"consumerGroup": "nope"}, 26, "Group nope not exist!"),
        ({"topic": "nope"}, 17, "Topic nope not exist!"),
        ({"commitOffset": -1}, 29, "offset -1 of queue 0"),
        ({"commitOffset": -(1 << 63)}, 29, "offset -9223372036854775808 of queue 0"),
        ({"queueId": -1}, 29, "offset 2 of queue -1"),
        ({"commitOffset": "x"}, 1, "the field commitOffset"),
        ({"commitOffset": 1 << 63}, 1, "the field commitOffset"),
        *(({name: None}, 1, f"the field {name}") for name in COMMIT),
    ],
)
def test_a_commit_that_makes_no_sense_is_refused_and_changes_nothing(
    room: BrokerRoom,
    offsets: ConsumerOffsetProcessor,
    change: dict[str, Any],
    code: int,
    remark: str,
) -> None:
    room.offsets.commit("g", "T", 0, 5)
    refused = room.refusal(
        offsets,
        UPDATE,
        {name: value for name, value in {**COMMIT, **change}.items() if value is not None},
    )
    assert (refused.code, refused.remark[: len(remark)]) == (code, remark)
    assert "nope" not in room.groups


# --- 43 and 45


def test_a_slave_is_told_all_offsets(room: BrokerRoom, offsets: ConsumerOffsetProcessor) -> None:
    room.offsets.commit("g", "T", 1, 5)
    body = room.ask(offsets, RequestCode.GET_ALL_CONSUMER_OFFSET).body
    assert body is not None
    assert b"\n" not in body
    assert ConsumerOffsets.decode(body).offsets == {"T@g": {1: 5}}


# --- 208 and 317


def fill(room: BrokerRoom) -> int:
    """Three messages in queue 0 and one in queue 1, of which `g` consumed two and none; when the
    second was stored.
    """
    times = [room.put(queue_id=queue_id).store_time_ms for queue_id in (0, 0, 0, 1)]
    room.offsets.commit("g", "T", 0, 2)
    room.offsets.commit_pull("g", "T", 0, 3)
    return times[1]


def wrapper(broker: int, consumer: int, pull: int = 0, last_ms: int = 0) -> dict[str, int]:
    return {
        "brokerOffset": broker,
        "consumerOffset": consumer,
        "lastTimestamp": last_ms,
        "pullOffset": pull,
    }


def test_a_group_is_told_how_far_it_is_in_every_queue(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    second_ms = fill(room)
    expected = {
        "consumeTps": 2.5,
        "offsetTable": {
            "T:0": wrapper(3, 2, 3, second_ms),
            "T:1": wrapper(1, 0),
            "T:2": wrapper(0, 0),
            "T:3": wrapper(0, 0),
        },
    }
    for fields in (
        {},
        {"topic": "T"},
        {"topic": " "},
        {"topicList": "T"},
        {"topicList": "T;T;nope;"},
    ):
        assert body_of(room.ask(offsets, STATS, {"consumerGroup": "g", **fields})) == expected


def test_of_a_group_that_is_online_only_what_it_subscribes_is_told_unless_topics_are_listed(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    fill(room)
    room.consume("g", "Other")
    nothing = {"consumeTps": 0.0, "offsetTable": {}}
    assert body_of(room.ask(offsets, STATS, {"consumerGroup": "g"})) == nothing
    assert body_of(room.ask(offsets, STATS, {"consumerGroup": "g", "topic": "T"})) == nothing
    assert (
        len(
            body_of(room.ask(offsets, STATS, {"consumerGroup": "g", "topicList": "T"}))[
                "offsetTable"
            ]
        )
        == 4
    )


def test_of_groups_and_topics_that_are_not_there_nothing_is_told(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    nothing = {"consumeTps": 0.0, "offsetTable": {}}
    assert body_of(room.ask(offsets, STATS, {"consumerGroup": "nope"})) == nothing
    assert body_of(room.ask(offsets, STATS, {"consumerGroup": "g", "topic": "nope"})) == nothing
    assert room.refusal(offsets, STATS, {}).code == 1
    assert "nope" not in room.groups


def test_all_groups_are_told_how_far_they_are(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    second_ms = fill(room)
    body = body_of(room.ask(offsets, ALL_STATS, {"isOrder": "false"}))
    told = {group: stats for each in body["consumeStatsList"] for group, stats in each.items()}
    assert told.keys() == room.groups.table.keys()
    (stats,) = told.pop("g")
    assert stats == {
        "consumeTps": 2.5,
        "offsetTable": {
            "T:0": wrapper(3, 2, 0, second_ms),
            "T:1": wrapper(1, 0),
            "T:2": wrapper(0, 0),
            "T:3": wrapper(0, 0),
        },
    }
    assert not any(told.values())
    assert (body["brokerAddr"], body["totalDiff"], body["totalInflightDiff"]) == (ADDRESS, 2, -2)


def test_only_ordered_topics_are_told_when_asked_so(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    fill(room)
    room.topics.update(TopicConfig("Ordered", 1, 1, order=True))
    room.offsets.commit("g", "Ordered", 0, 0)
    body = body_of(room.ask(offsets, ALL_STATS, {"isOrder": "true"}))
    stats = next(each["g"] for each in body["consumeStatsList"] if "g" in each)
    assert [list(each["offsetTable"]) for each in stats] == [["Ordered:0"]]
    assert room.refusal(offsets, ALL_STATS, {}).code == 1


# --- 303


def test_the_times_of_a_topic_are_told_as_seen_by_a_group(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    second_ms = fill(room)
    room.clock.advance_ms(1000)
    now_ms = room.clock.now_ms()
    spans = body_of(room.ask(offsets, SPAN, {"topic": "T", "group": "g"}))["consumeTimeSpanSet"]
    assert [span["messageQueue"]["queueId"] for span in spans] == [0, 1, 2, 3]
    first, second, third, _ = spans
    assert (first["minTimeStamp"], first["maxTimeStamp"], first["consumeTimeStamp"]) == (
        second_ms - 1,
        second_ms + 1,
        second_ms,
    )
    assert first["delayTime"] == now_ms - second_ms - 1
    assert (second["consumeTimeStamp"], second["delayTime"]) == (second_ms + 2, now_ms + 1)
    assert (third["minTimeStamp"], third["maxTimeStamp"], third["consumeTimeStamp"]) == (-1, -1, -1)


def test_a_group_that_consumed_all_has_no_delay(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    fill(room)
    room.offsets.commit("g", "T", 0, 3)
    assert (
        body_of(room.ask(offsets, SPAN, {"topic": "T", "group": "g"}))["consumeTimeSpanSet"][0][
            "delayTime"
        ]
        == 0
    )


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"topic": "nope", "group": "g"}, 17), ({"topic": "T"}, 1), ({"group": "g"}, 1)],
)
def test_there_are_no_times_without_topic_and_group(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor, fields: dict[str, str], code: int
) -> None:
    assert room.refusal(offsets, SPAN, fields).code == code


# --- 308


def test_the_smallest_offset_of_the_groups_is_told_by_queue(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    for group, queue_id, offset in (
        ("a", 0, 5),
        ("b", 0, 3),
        ("b", 1, 7),
        ("c", 0, 1),
        ("c", 1, 9),
    ):
        room.offsets.commit(group, "T", queue_id, offset)

    def told(**fields: str) -> dict[str, int]:
        answer = body_of(
            room.ask(offsets, CORRECTION, {"topic": "T", "compareGroup": "nobody", **fields})
        )
        assert set(answer) == {"correctionOffsets"}
        return dict(answer["correctionOffsets"])

    assert told() == {"0": 1, "1": 7}
    assert told(filterGroups="c") == {"0": 3, "1": 7}
    assert told(filterGroups="c", compareGroup="c") == {"0": MAX_LONG, "1": 7}
    assert told(filterGroups="b,c") == {"0": 5}
    assert told(topic="nope") == {}
    assert room.offsets.query("c", "T", 0) == 1, "groups that are passed over keep their offsets"


@pytest.mark.parametrize("fields", [{"topic": "T"}, {"compareGroup": "g"}, None])
def test_a_correction_needs_a_topic_and_a_group(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor, fields: dict[str, str] | None
) -> None:
    assert room.refusal(offsets, CORRECTION, fields).code == 1


# --- 314


def test_offsets_are_copied_from_group_to_group(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    room.topics.update(TopicConfig("Other", 1, 1))
    room.offsets.commit("g", "T", 0, 5)
    room.offsets.commit("g", "Other", 0, 6)
    answer = room.ask(offsets, CLONE, {"srcGroup": "g", "destGroup": "new", "topic": "T"})
    assert (answer.code, answer.remark, answer.body) == (0, None, None)
    assert (dict(room.offsets.of("new", "T")), dict(room.offsets.of("new", "Other"))) == (
        {0: 5},
        {},
    )
    room.ask(offsets, CLONE, {"srcGroup": "g", "destGroup": "all"})
    assert (dict(room.offsets.of("all", "T")), dict(room.offsets.of("all", "Other"))) == (
        {0: 5},
        {0: 6},
    )


def test_offsets_of_topics_that_a_group_online_does_not_subscribe_are_copied_only_when_it_is_said_to_be_offline(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    room.offsets.commit("g", "T", 0, 5)
    room.consume("g", "Other")
    fields = {"srcGroup": "g", "destGroup": "new", "topic": "T"}
    room.ask(offsets, CLONE, fields)
    assert not room.offsets.topics_of("new")
    room.ask(offsets, CLONE, {**fields, "offline": "true"})
    assert room.offsets.topics_of("new") == {"T"}


@pytest.mark.parametrize(
    "change", [{"topic": "nope"}, {"srcGroup": "nope"}, {"topic": "nope", "offline": "true"}]
)
def test_what_is_not_there_is_not_copied(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor, change: dict[str, str]
) -> None:
    room.offsets.commit("g", "T", 0, 5)
    before = room.state()
    assert (
        room.ask(offsets, CLONE, {"srcGroup": "g", "destGroup": "new", "topic": "T", **change}).code
        == 0
    )
    assert room.state() == before


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"srcGroup": "g", "topic": "T"}, 1),
        ({"destGroup": "new", "topic": "T"}, 1),
        ({"srcGroup": "g", "destGroup": "a@b"}, 29),
    ],
)
def test_offsets_are_not_copied_to_what_is_no_group(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor, fields: dict[str, str], code: int
) -> None:
    room.offsets.commit("g", "T", 0, 5)
    assert room.refusal(offsets, CLONE, fields).code == code


# --- 300, 343, 345


def test_who_consumes_a_topic_is_told_online_or_not(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    room.offsets.commit("g", "T", 0, 5)
    room.consume("online")
    assert room.ask(offsets, BY_WHO, {"topic": "T"}).body == b'{"groupList":["g","online"]}'
    assert room.ask(offsets, BY_WHO, {"topic": "nope"}).body == b'{"groupList":[]}'
    assert room.refusal(offsets, BY_WHO, {}).code == 1


def test_what_a_group_consumes_is_told_with_the_address_of_the_broker(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    room.offsets.commit("g", "T", 0, 5)
    assert (
        room.ask(offsets, BY_GROUP, {"group": "g"}).body
        == b'{"brokerAddr":"127.0.0.1:10911","topicList":["T"]}'
    )
    assert (
        room.ask(offsets, BY_GROUP, {"group": "nope"}).body
        == b'{"brokerAddr":"127.0.0.1:10911","topicList":[]}'
    )
    assert room.refusal(offsets, BY_GROUP, {}).code == 1


def test_how_a_group_subscribes_a_topic_is_told(
    room: BrokerRoom, offsets: ConsumerOffsetProcessor
) -> None:
    room.consume("g")
    body = body_of(room.ask(offsets, SUBSCRIPTION, {"group": "g", "topic": "T"}))
    assert body["subscriptionData"]["subString"] == "*"
    assert (
        room.ask(offsets, SUBSCRIPTION, {"group": "nope", "topic": "nope"}).body
        == b'{"group":"nope","topic":"nope"}'
    )
    assert room.ask(offsets, SUBSCRIPTION, {"group": "g"}).body == b'{"group":"g"}'
    assert room.refusal(offsets, SUBSCRIPTION, {"topic": "T"}).code == 1


@pytest.mark.parametrize(
    ("zone", "text"),
    [("UTC", "2023-11-14#22:13:20:001"), ("Asia/Shanghai", "2023-11-15#06:13:20:001")],
)
def test_times_are_written_for_people_too_in_the_time_zone_of_the_broker(
    room: BrokerRoom,
    offsets: ConsumerOffsetProcessor,
    monkeypatch: pytest.MonkeyPatch,
    zone: str,
    text: str,
) -> None:
    assert room.put().store_time_ms == 1_700_000_000_001
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        spans = body_of(room.ask(offsets, SPAN, {"topic": "T", "group": "g"}))["consumeTimeSpanSet"]
        assert [
            spans[0][name] for name in ("minTimeStampStr", "maxTimeStampStr", "consumeTimeStampStr")
        ] == [text] * 3
    finally:
        monkeypatch.undo()
        time.tzset()
