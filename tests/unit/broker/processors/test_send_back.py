"""What becomes of messages that consumers could not consume: which come again, when and where, and
which are dead letters.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.observability.stats import StatName
from orbitmq.broker.plugins.interfaces import SentBack
from orbitmq.broker.processors.plugin_hooks import Hooks
from orbitmq.message import properties
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.groups import GroupConfig, GroupRetryPolicy
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.store.config import FlushMode
from support.broker.retries import BACK, SCHEDULE, RetriesRoom, back_fields, retry_fields
from support.common.installed_packages import install, site_packages
from support.common.waiting import wait_until
from support.remoting.channels import sent

NOW = 513  # the version of a client of these days
OLD = 120  # that of one which cannot say how often a message comes again


@pytest.fixture
def room(tmp_path: Path) -> Iterator[RetriesRoom]:
    room = RetriesRoom(tmp_path)
    yield room
    room.close()


def send_back(room: RetriesRoom, offset: int, *, version: int = NOW, **changes: Any) -> int:
    answer = room.begin(room.back, BACK, back_fields(offset, **changes), version=version)
    if answer is None:
        room.loop.run()
        (answer,) = sent(room.channel)
    assert (answer.remark, answer.ext_fields, answer.body) == (None, None, None)
    return answer.code


def test_a_message_that_is_sent_back_waits_at_the_level_of_its_attempt_and_is_the_same_but_one_retry_older(
    room: RetriesRoom,
) -> None:
    first = room.put(b"body", TAGS="tag", KEYS="a b", UNIQ_KEY="U1", DELAY="0")
    before = room.store.reads.message_at(first.offset)
    assert before is not None
    assert send_back(room, first.offset) == ResponseCode.SUCCESS
    (copy,) = room.stored(SCHEDULE, 2)
    assert (copy.body, copy.flag, copy.sys_flag, copy.born_host, copy.born_time_ms) == (
        *(before.body, before.flag, before.sys_flag, before.born_host, before.born_time_ms),
    )
    assert copy.reconsume_times == 1
    assert copy.properties() == {
        **{
            "TAGS": "tag",
            "KEYS": "a b",
            "UNIQ_KEY": "U1",
            "WAIT": "false",
            "DELAY": "3",
            "RETRY_TOPIC": "T",
        },
        **{"ORIGIN_MESSAGE_ID": before.msg_id, "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"},
    }
    assert room.topics.find("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1)


@pytest.mark.parametrize(
    ("times", "wanted", "level"),
    [(0, 0, 3), (5, 0, 8), (2, 1, 1), (0, 18, 18), (15, 0, 18), (0, 99, 18)],
)
def test_the_delay_is_what_the_consumer_wants_or_grows_with_the_attempts(
    room: RetriesRoom, times: int, wanted: int, level: int
) -> None:
    first = room.put_copy(times)
    assert send_back(room, first.offset, delayLevel=wanted) == ResponseCode.SUCCESS
    (copy,) = room.stored(SCHEDULE, level - 1)
    assert (copy.properties()["DELAY"], copy.reconsume_times) == (str(level), times + 1)


def test_what_came_from_a_retry_topic_keeps_the_topic_and_the_id_that_it_had_at_first(
    room: RetriesRoom,
) -> None:
    first = room.put(topic="%RETRY%g", RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="first id")
    assert send_back(room, first.offset) == ResponseCode.SUCCESS
    names = room.stored(SCHEDULE, 2)[0].properties()
    assert (names["RETRY_TOPIC"], names["ORIGIN_MESSAGE_ID"]) == ("T", "first id")
    assert room.figures.stats.view(StatName.SNDBCK_PUT_NUMS, "T@g") is not None


@pytest.mark.parametrize(
    ("times", "changes", "version", "is_dead"),
    [
        (16, {}, NOW, True),
        (15, {}, NOW, False),
        (3, {"maxReconsumeTimes": 3}, NOW, True),
        (3, {"maxReconsumeTimes": 3}, OLD, False),
        (0, {"maxReconsumeTimes": 0}, NOW, True),
        (20, {"maxReconsumeTimes": 30}, NOW, False),
        (0, {"delayLevel": -1}, NOW, True),
    ],
)
def test_a_message_that_came_too_often_or_is_given_up_is_a_dead_letter(
    room: RetriesRoom, times: int, changes: dict[str, Any], version: int, is_dead: bool
) -> None:
    first = room.put_copy(times)
    assert send_back(room, first.offset, version=version, **changes) == ResponseCode.SUCCESS
    letters = room.stored("%DLQ%g")
    assert [letter.reconsume_times for letter in letters] == ([times + 1] if is_dead else [])
    assert room.told[-1].is_dead_letter is is_dead
    if is_dead:
        assert letters[0].properties()["DELAY"] == "0"
        assert room.topics.find("%DLQ%g") == TopicConfig("%DLQ%g", 1, 1)


def test_a_group_says_how_often_and_over_how_many_queues_its_messages_come_again_whatever_its_retry_policy(
    room: RetriesRoom,
) -> None:
    room.groups.update(
        GroupConfig(
            "g", retry_queue_nums=4, retry_max_times=1, retry_policy=GroupRetryPolicy("EXPONENTIAL")
        )
    )
    fresh = room.put()
    for _ in range(20):
        send_back(room, fresh.offset)
    assert {message.properties()["REAL_QID"] for message in room.stored(SCHEDULE, 2)} == {
        "0",
        "1",
        "2",
        "3",
    }
    send_back(room, room.put_copy(1).offset)
    assert len(room.stored("%DLQ%g")) == 1


def test_a_group_without_retry_queues_has_nothing_again(room: RetriesRoom) -> None:
    room.groups.update(GroupConfig("g", retry_queue_nums=0))
    end = room.store.log.end_offset
    assert send_back(room, room.put().offset) == ResponseCode.SUCCESS
    assert room.store.log.end_offset > end
    assert (room.topics.find("%RETRY%g"), room.told) == (None, [])


def test_what_cannot_be_sent_back_is_refused_with_a_reason_and_changes_nothing(
    room: RetriesRoom,
) -> None:
    offset = room.put().offset

    def refusal(**changes: Any) -> tuple[int, str]:
        refused = room.refusal(room.back, BACK, back_fields(**{"offset": offset, **changes}))
        return refused.code, str(refused)

    for wrong in (offset + 1, -1, 10**9):
        code, remark = refusal(offset=wrong)
        assert (code, remark.partition(":")[0]) == (
            ResponseCode.SYSTEM_ERROR,
            f"look message by offset failed, {wrong}",
        )
    assert refusal(group="no group")[0] == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    room.settings.broker_permission = 4
    assert refusal()[1].startswith("the broker[127.0.0.1] sending message is forbidden")
    room.settings.broker_permission = 6
    room.topics.update(TopicConfig("%RETRY%g", 1, 1, 4))
    assert refusal() == (
        ResponseCode.NO_PERMISSION,
        "the topic[%RETRY%g] sending message is forbidden: give it the permission to be written",
    )


def test_with_sync_flush_a_consumer_hears_when_the_copy_is_on_disk(tmp_path: Path) -> None:
    room = RetriesRoom(tmp_path, flush_mode=FlushMode.SYNC)
    try:
        offset = room.put().offset
        assert room.begin(room.back, BACK, back_fields(offset), version=NOW) is None
        room.loop.run()
        assert sent(room.channel) == [], "its retry topic is saved, its message is not"

        def answered() -> list[RemotingCommand]:
            room.store.tick()
            return sent(room.channel)

        answers = wait_until(answered)
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS]
    finally:
        room.close()


# -- sent to the retry topic by the consumer itself


def test_what_a_consumer_sends_to_its_retry_topic_waits_too(room: RetriesRoom) -> None:
    names = {"DELAY": "4", "RETRY_TOPIC": "T", "UNIQ_KEY": "U1"}
    answer = room.ask(
        room.sends,
        RequestCode.SEND_MESSAGE,
        retry_fields(names, reconsumeTimes=1, maxReconsumeTimes=16),
        b"again",
    )
    assert answer.code == ResponseCode.SUCCESS
    (copy,) = room.stored(SCHEDULE, 3)
    assert (copy.body, copy.reconsume_times, copy.properties()["REAL_TOPIC"]) == (
        b"again",
        1,
        "%RETRY%g",
    )


def test_what_came_more_often_than_it_may_is_a_dead_letter_that_waits_for_nothing(
    room: RetriesRoom,
) -> None:
    names = {"DELAY": "4", "RETRY_TOPIC": "T", "UNIQ_KEY": "U1"}
    room.begin(
        room.sends,
        RequestCode.SEND_MESSAGE,
        retry_fields(names, reconsumeTimes=3, maxReconsumeTimes=2),
        b"x",
        version=NOW,
    )
    (letter,) = room.stored("%DLQ%g")
    assert letter.properties()["DELAY"] == "-1"
    assert letter.raw_properties.count(properties.DELAY.encode()) == 1


def test_what_a_group_that_consumes_in_order_sends_to_its_retry_topic_is_a_dead_letter_as_long_as_it_holds_queues(
    room: RetriesRoom,
) -> None:
    queue = MessageQueue("T", "broker-a", 0)

    def send(body: bytes) -> None:
        room.begin(
            room.sends,
            RequestCode.SEND_MESSAGE,
            retry_fields({"DELAY": "3"}, reconsumeTimes=1),
            body,
            version=NOW,
        )

    room.locks.lock("g", [queue], "client", room.clock.monotonic_ms())
    send(b"in order")
    room.clock.advance_ms(60_001)
    send(b"the lock is over")
    room.locks.lock("g", [queue], "client", room.clock.monotonic_ms())
    room.locks.unlock("g", [queue], "client")
    send(b"the lock was given up")
    assert [letter.body for letter in room.stored("%DLQ%g")] == [b"in order"]
    assert [message.body for message in room.stored(SCHEDULE, 2)] == [
        b"the lock is over",
        b"the lock was given up",
    ]


# -- hooks


HOOK = """
HEARD = []

class Hook:
    def sent_back(self, message):
        HEARD.append(message)
        raise ValueError("on purpose")
"""


def test_hooks_of_other_packages_hear_what_is_sent_back_and_their_mistakes_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with site_packages(tmp_path / "site") as site:
        install(
            site, "hook_package", "[orbitmq.send_back_hooks]\nmeter = hook_package:Hook\n", HOOK
        )
        tell = Hooks(lambda: 0).sent_back
        assert tell is not None
        message = SentBack(
            consumer_group="g",
            topic="T",
            message_id="id",
            reconsume_times=3,
            is_dead_letter=True,
            client_address="127.0.0.1:1",
        )
        tell(message)
        assert [message] == sys.modules["hook_package"].HEARD
    assert "meter" in caplog.text
    assert Hooks(lambda: 0).sent_back is None
