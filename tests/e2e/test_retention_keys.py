"""What a whole broker keeps beyond, and for less than, `fileReservedTime`: `protectUnconsumed` and
the topic attribute `reserve.time`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.offsets import (
    GetMinOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from orbitmq.protocol.headers.topics import CreateTopicRequestHeader
from orbitmq.testing import LocalCluster
from support.broker.process import create_request, pull_request
from support.common.waiting import wait_until
from support.embedded.local_cluster import asked, bodies, send

HOUR_S = 3600
COUNT = 300
KEYS = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "fileReservedTime": "2",
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
}


def ask(mq: LocalCluster, request: RemotingCommand) -> RemotingCommand:
    answer = asked(lambda client: client.invoke(mq.broker_address(), request, 30_000))
    assert answer.code == ResponseCode.SUCCESS, answer
    return answer


def commit(mq: LocalCluster, group: str, offset: int) -> None:
    pull = pull_request("T", 0)
    ask(
        mq,
        RemotingCommand(pull.code, ext_fields={**(pull.ext_fields or {}), "consumerGroup": group}),
    )  # which makes the group
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic="T", queue_id=0, commit_offset=offset
    )
    ask(mq, RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header))


def min_offset(mq: LocalCluster) -> int:
    answer = ask(
        mq,
        RemotingCommand.request(
            RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic="T", queue_id=0)
        ),
    )
    return int((answer.ext_fields or {})["offset"])


def fill(mq: LocalCluster) -> None:
    """Send messages that fill several files of the log, and a young one."""
    send(mq, *(b"%03d" % number * 70 for number in range(COUNT)))
    mq.advance(HOUR_S)
    send(mq, b"young")


@pytest.mark.parametrize("at_run_time", [False, True])
def test_an_expired_file_stays_until_every_group_of_its_topic_has_consumed_it(
    at_run_time: bool,
) -> None:
    protection = "protectUnconsumed=true"
    with LocalCluster(
        virtual_clock=True, broker=KEYS | ({} if at_run_time else dict([protection.split("=")]))
    ) as mq:
        fill(mq)
        if at_run_time:
            ask(mq, RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=protection.encode()))
        oldest = min((mq.store() / "commitlog").iterdir())
        commit(mq, "quick", COUNT + 1)
        commit(mq, "slow", 1)
        mq.advance(4 * HOUR_S)
        assert oldest.exists()
        assert len(bodies(mq)) == COUNT + 1
        commit(mq, "slow", COUNT + 1)
        mq.advance(2 * HOUR_S)
        wait_until(lambda: not oldest.exists(), "the oldest file goes")


def test_without_protection_an_expired_file_goes_although_a_group_has_not_consumed_it() -> None:
    with LocalCluster(virtual_clock=True, broker=KEYS) as mq:
        fill(mq)
        oldest = min((mq.store() / "commitlog").iterdir())
        commit(mq, "slow", 1)
        mq.advance(4 * HOUR_S)
        wait_until(lambda: not oldest.exists(), "the oldest file goes")


def test_a_topic_keeps_messages_for_as_many_hours_as_its_attribute_says() -> None:
    with LocalCluster(virtual_clock=True, broker=KEYS | {"fileReservedTime": "72"}) as mq:
        header = CreateTopicRequestHeader.from_fields(create_request("T").ext_fields)
        ask(
            mq,
            RemotingCommand.request(
                RequestCode.UPDATE_AND_CREATE_TOPIC, replace(header, attributes="+reserve.time=2")
            ),
        )
        send(mq, *(b"old %d" % number for number in range(5)))
        mq.advance(1.5 * HOUR_S)
        send(mq, b"young")
        assert min_offset(mq) == 0
        mq.advance(1 * HOUR_S)
        wait_until(lambda: min_offset(mq) == 5, "messages older than two hours go")


def test_what_a_group_has_not_consumed_outlasts_the_time_of_its_topic() -> None:
    with LocalCluster(
        virtual_clock=True, broker=KEYS | {"fileReservedTime": "72", "protectUnconsumed": "true"}
    ) as mq:
        header = CreateTopicRequestHeader.from_fields(create_request("T").ext_fields)
        ask(
            mq,
            RemotingCommand.request(
                RequestCode.UPDATE_AND_CREATE_TOPIC, replace(header, attributes="+reserve.time=2")
            ),
        )
        send(mq, *(b"old %d" % number for number in range(5)))
        commit(mq, "slow", 3)
        mq.advance(3 * HOUR_S)
        wait_until(lambda: min_offset(mq) == 3, "what the group consumed goes, and nothing else")
