"""Timed messages, as users see them: each comes at its millisecond, not before; once; may be taken
back until then; and survives kills.
"""

from __future__ import annotations

import json
import random
import struct
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator

import pytest

from orbitmq.blocking import Producer
from orbitmq.client.messages import Message
from orbitmq.common.errors import RequestRefusedError, SendFailedError
from orbitmq.common.topic_names import TIMER_TOPIC
from orbitmq.protocol.bodies.delay import DelayOffsets, TimingCounts
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.testing import LocalCluster, ManualClock
from support.common.waiting import wait_until
from support.embedded.local_cluster import asked, bodies

BEGIN_MS = 1_800_000_000_400  # not the begin of a second
RECALLS = {"recallMessageEnable": "true"}


@pytest.fixture
def mq() -> Iterator[LocalCluster]:
    with LocalCluster(
        clock=ManualClock(now_ms=BEGIN_MS), topics={"T": 1}, broker=RECALLS
    ) as cluster:
        yield cluster


def sent_at(mq: LocalCluster, *messages: tuple[bytes, int]) -> list[str | None]:
    """Send messages that are due so many milliseconds after the begin; the handles by which they
    may be taken back.
    """
    with Producer(mq.name_server) as producer:
        return [
            producer.send(Message("T", body, deliver_at_ms=BEGIN_MS + after_ms)).recall_handle
            for body, after_ms in messages
        ]


def recall(mq: LocalCluster, handle: str | None) -> str:
    assert handle is not None
    with Producer(mq.name_server) as producer:
        return producer.recall("T", handle)


@pytest.mark.parametrize("after_ms", [1, 300, 599, 600, 601, 5_000, 60_600, 3_600_123])
def test_a_timed_message_comes_at_its_millisecond(mq: LocalCluster, after_ms: int) -> None:
    sent_at(mq, (b"later", after_ms))
    mq.advance_ms(after_ms - 1)
    assert bodies(mq) == []
    mq.advance_ms(1)
    assert bodies(mq) == [b"later"]
    mq.advance(100)
    assert bodies(mq) == [b"later"]


def test_messages_of_one_second_come_in_the_order_of_their_times_and_those_of_one_time_as_they_were_sent(
    mq: LocalCluster,
) -> None:
    times = [50, 900, 50, 700, 300, 900, 1]
    sent_at(mq, *((b"%d" % number, 10_000 + time) for number, time in enumerate(times)))
    mq.advance_ms(10_300)
    assert bodies(mq) == [b"6", b"0", b"2", b"4"]
    mq.advance_ms(600)
    assert bodies(mq) == [b"6", b"0", b"2", b"4", b"3", b"1", b"5"]


def test_a_delay_counts_from_when_the_message_was_stored(mq: LocalCluster) -> None:
    with Producer(mq.name_server) as producer:
        producer.send(Message("T", b"later", delay_ms=2_345))
    mq.advance_ms(2_344)
    assert bodies(mq) == []
    mq.advance_ms(1)
    assert bodies(mq) == [b"later"]


def test_a_time_that_is_over_is_now(mq: LocalCluster) -> None:
    sent_at(mq, (b"now", -5_000), (b"now too", 0))
    assert bodies(mq) == [b"now", b"now too"]


@pytest.mark.parametrize(
    ("keys", "delay_ms_max"), [({}, 3 * 86_400_000), ({"timerMaxDelaySec": "60"}, 60_000)]
)
def test_a_time_too_far_away_is_refused(keys: dict[str, str], delay_ms_max: int) -> None:
    clock = ManualClock(now_ms=BEGIN_MS)
    with LocalCluster(clock=clock, topics={"T": 1}, broker=keys) as mq:
        sent_at(mq, (b"later", delay_ms_max))
        with pytest.raises(RequestRefusedError, match="timerMaxDelaySec") as refused:
            sent_at(mq, (b"never", delay_ms_max + 1))
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_message_far_away_is_rolled_and_comes_at_its_millisecond_all_the_same() -> None:
    keys = {"timerRollWindowSlot": "10", **RECALLS}
    with LocalCluster(clock=ManualClock(now_ms=BEGIN_MS), topics={"T": 1}, broker=keys) as mq:
        handles = sent_at(mq, (b"rolled", 47_123), (b"taken back", 47_124))
        with Producer(mq.name_server) as producer:
            producer.send(Message("T", b"delayed", delay_ms=33_333))
        mq.advance_ms(5_000)
        recall(mq, handles[1])
        mq.advance_ms(28_332)
        assert bodies(mq) == []
        mq.advance_ms(1)
        assert bodies(mq) == [b"delayed"]
        mq.advance_ms(13_789)
        assert bodies(mq) == [b"delayed"]
        mq.advance_ms(1)
        assert bodies(mq) == [b"delayed", b"rolled"]
        mq.advance_ms(100_000)
        assert bodies(mq) == [b"delayed", b"rolled"]
        times = Counter(bodies(mq, topic=TIMER_TOPIC))
        assert (times[b"rolled"], times[b"delayed"]) == (5, 4), "one for each ten seconds"


def test_a_message_that_is_taken_back_does_not_come_and_others_of_its_second_do(
    mq: LocalCluster,
) -> None:
    handles = sent_at(mq, (b"first", 3_000), (b"second", 3_001), (b"third", 3_002))
    recall(mq, handles[1])
    mq.advance(10)
    assert bodies(mq) == [b"first", b"third"]


def test_a_recall_is_refused_when_the_second_of_the_message_has_begun(mq: LocalCluster) -> None:
    (handle,) = sent_at(mq, (b"soon", 2_000))
    mq.advance_ms(1_601)
    with pytest.raises(RequestRefusedError) as refused:
        recall(mq, handle)
    assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
    mq.advance_ms(399)
    assert bodies(mq) == [b"soon"]


def test_recalls_are_refused_unless_they_are_allowed() -> None:
    with LocalCluster(clock=ManualClock(now_ms=BEGIN_MS), topics={"T": 1}) as mq:
        (handle,) = sent_at(mq, (b"soon", 2_000))
        with pytest.raises(RequestRefusedError, match="recallMessageEnable") as refused:
            recall(mq, handle)
        assert refused.value.code == ResponseCode.NO_PERMISSION


@pytest.mark.slow
def test_a_message_that_waits_for_longer_than_files_are_kept_comes_all_the_same() -> None:
    hours = ";".join(f"{hour:02d}" for hour in range(24))
    keys = {"fileReservedTime": "1", "deleteWhen": hours, "mappedFileSizeCommitLog": str(1 << 20)}
    with LocalCluster(virtual_clock=True, topics={"T": 1, "Other": 1}, broker=keys) as mq:
        with Producer(mq.name_server) as producer:
            producer.send(Message("T", b"later", delay_ms=6 * 3_600_000))
            for _ in range(8):
                producer.send(
                    Message("Other", random.randbytes(200_000))
                )  # which clients cannot compress
        for _ in range(11):
            mq.advance(1_800)
        assert not (mq.store() / "commitlog/00000000000000000000").exists()
        assert bodies(mq) == []
        mq.advance(1_800)
        assert bodies(mq) == [b"later"]


def test_what_waits_survives_a_restart_and_nothing_comes_twice(mq: LocalCluster) -> None:
    handles = sent_at(
        mq, (b"before", 1_000), (b"same second", 1_500), (b"later", 20_000), (b"taken back", 20_001)
    )
    recall(mq, handles[3])
    mq.advance_ms(1_200)
    mq.restart()
    assert bodies(mq) == [b"before"]
    mq.advance_ms(299)
    assert bodies(mq) == [b"before"]
    mq.advance_ms(1)
    assert bodies(mq) == [b"before", b"same second"]
    mq.advance_ms(18_500)
    assert bodies(mq) == [b"before", b"same second", b"later"]
    mq.restart()
    mq.advance_ms(20_000)
    assert bodies(mq) == [b"before", b"same second", b"later"]


def test_a_broker_follows_its_clock_back_and_goes_on_at_once() -> None:
    clock = ManualClock(now_ms=BEGIN_MS)
    with LocalCluster(clock=clock, topics={"T": 1}) as mq, Producer(mq.name_server) as producer:
        sent_at(mq, (b"before", 1_000))
        mq.advance(30)
        clock.set_wall_ms(clock.now_ms() + 10 * 86_400_000)
        mq.advance(30)
        clock.set_wall_ms(clock.now_ms() - 10 * 86_400_000 - 40_000)
        producer.send(Message("T", b"after", deliver_at_ms=clock.now_ms() + 2_000))
        mq.advance_ms(1_999)
        assert bodies(mq) == [b"before"]
        mq.advance_ms(1)
        assert bodies(mq) == [b"before", b"after"]
        mq.restart()
        producer.send(Message("T", b"level", delay_level=1))
        mq.advance_ms(3_000)
        assert bodies(mq) == [b"before", b"after", b"level"]


def test_a_kill_loses_no_timed_message_and_brings_none_early(mq: LocalCluster) -> None:
    due = {b"%d" % number: 37 * number for number in range(1, 300)}
    sent_at(mq, *due.items())
    passed_ms = 0
    for step_ms in (700, 1_900, 650, 3_000):
        mq.advance_ms(step_ms)
        passed_ms += step_ms
        assert set(bodies(mq)) == {body for body, at_ms in due.items() if at_ms <= passed_ms}
        mq.advance_ms(600)  # the log is flushed twice a second
        passed_ms += 600
        mq.kill()
        mq.restart()
        mq.advance_ms(1)
        passed_ms += 1
    mq.advance_ms(20_000)
    assert set(bodies(mq)) == due.keys()


@pytest.mark.slow
def test_a_broker_process_that_is_killed_delivers_no_timed_message_twice() -> None:
    with LocalCluster(processes=True, topics={"T": 1}) as cluster:
        with Producer(cluster.name_server) as producer:
            for number in range(100):
                producer.send(
                    Message("T", b"%d" % number, delay_ms=1_000 + 5 * number), timeout_ms=60_000
                )  # not sent twice
        wait_until(lambda: len(bodies(cluster)) >= 30, "some are delivered")
        cluster.kill()
        cluster.restart()
        wait_until(lambda: len(bodies(cluster)) >= 100, "all are delivered")
        assert sorted(bodies(cluster)) == sorted(b"%d" % number for number in range(100))


# -- requests


def answered(mq: LocalCluster, code: int, fields: dict[str, str] | None = None) -> RemotingCommand:
    return asked(
        lambda client: client.invoke(mq.broker_address(), RemotingCommand(code, ext_fields=fields))
    )


def test_slaves_and_operators_are_told_how_far_deliveries_are(mq: LocalCluster) -> None:
    sent_at(mq, (b"later", 5_000))
    with Producer(mq.name_server) as producer:
        producer.send(Message("T", b"level", delay_level=2))
    mq.advance_ms(1_200)
    body = answered(mq, RequestCode.GET_ALL_DELAY_OFFSET).body or b""
    assert DelayOffsets.decode(body).offsets == {2: 0}
    read_ms, log_end, queue_offset, master_offset, *_ = struct.unpack(
        ">7q", answered(mq, RequestCode.GET_TIMER_CHECK_POINT).body or b""
    )
    assert (read_ms % 1000, log_end, queue_offset, master_offset) == (0, 52, 1, 1)
    counts = TimingCounts.decode(answered(mq, RequestCode.GET_TIMER_METRICS).body or b"").counts
    assert {topic: each.waiting for topic, each in counts.items()} == {"T": 1}
    info = json.loads(answered(mq, RequestCode.GET_BROKER_RUNTIME_INFO).body or b"")["table"]
    assert (
        info["scheduleMessageOffset_2"],
        info["timerCongestNum"],
        info["timerOffsetBehind"],
    ) == ("0,1", "1", "0")


def handle_of(
    topic: str = "T",
    broker: str = "broker-a",
    at_ms: int | str = BEGIN_MS + 60_000,
    version: str = "v1",
) -> str:
    return urlsafe_b64encode(f"{version} {topic} {broker} {at_ms} id".encode()).decode()


@pytest.mark.parametrize(
    ("topic", "handle", "code", "says"),
    [
        (
            "Nothing",
            handle_of("Nothing"),
            ResponseCode.TOPIC_NOT_EXIST,
            "the topic[Nothing] not exist",
        ),
        ("T", "x", ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
        ("T", handle_of(version="v2"), ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
        ("T", handle_of(at_ms="soon"), ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
        ("T", handle_of("U"), ResponseCode.ILLEGAL_OPERATION, "topic not match"),
        (
            "T",
            handle_of(broker="broker-x"),
            ResponseCode.ILLEGAL_OPERATION,
            "the message is on broker-x",
        ),
        ("T", handle_of(at_ms=BEGIN_MS), ResponseCode.ILLEGAL_OPERATION, "timestamp invalid"),
        (
            "T",
            handle_of(at_ms=BEGIN_MS + 3 * 86_400_000),
            ResponseCode.ILLEGAL_OPERATION,
            "timestamp invalid",
        ),
    ],
)
def test_a_recall_that_cannot_hold_is_refused(
    mq: LocalCluster, topic: str, handle: str, code: int, says: str
) -> None:
    answer = answered(
        mq,
        RequestCode.RECALL_MESSAGE,
        {"topic": topic, "recallHandle": handle, "producerGroup": "p"},
    )
    assert (answer.code, says in (answer.remark or ""), answer.ext_fields) == (
        code,
        True,
        {"MSG_REGION": "DefaultRegion"},
    ), answer


def test_a_recall_is_refused_while_the_timer_takes_nothing_in(mq: LocalCluster) -> None:
    first, second = sent_at(mq, (b"first", 5_000), (b"second", 5_000))
    mq.advance_ms(100)

    def is_stopped(text: str) -> None:
        config = RemotingCommand(
            RequestCode.UPDATE_BROKER_CONFIG, body=f"timerStopEnqueue={text}".encode()
        )
        assert (
            asked(lambda client: client.invoke(mq.broker_address(), config)).code
            == ResponseCode.SUCCESS
        )

    is_stopped("true")
    with pytest.raises(RequestRefusedError, match="timerStopEnqueue=true") as refused:
        recall(mq, first)
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    is_stopped("false")
    recall(mq, second)
    mq.advance_ms(6_000)
    assert bodies(mq) == [b"first"]


def test_without_a_timer_wheel_times_are_refused_and_levels_are_not() -> None:
    with LocalCluster(
        clock=ManualClock(now_ms=BEGIN_MS), topics={"T": 1}, broker={"timerWheelEnable": "false"}
    ) as mq:
        with pytest.raises(SendFailedError, match="timerWheelEnable=true"):
            sent_at(mq, (b"later", 1_000))
        with Producer(mq.name_server) as producer:
            producer.send(Message("T", b"level", delay_level=1))
        mq.advance(1)
        assert bodies(mq) == [b"level"]
        assert answered(mq, RequestCode.GET_TIMER_CHECK_POINT).code == ResponseCode.SYSTEM_ERROR
        assert not (mq.store() / "timerwheel").exists()
