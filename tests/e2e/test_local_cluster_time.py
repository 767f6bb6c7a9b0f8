"""A `LocalCluster` whose time is moved by hand: what is due happens when it is, and nothing happens
before.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest

from orbitmq.common.errors import RemoteUnavailableError
from orbitmq.protocol.bodies.clients import ConsumerData, HeartbeatData
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.clients import GetConsumerListByGroupRequestHeader
from orbitmq.remoting.client import RemotingClient
from orbitmq.testing import LocalCluster, ManualClock
from support.broker.process import pull_request, send_request
from support.common.waiting import wait_until
from support.embedded.local_cluster import asked, bodies, route, send

HOUR_S = 3600
SMALL_FILES = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "2000"}


def held_pull(offset: int, suspend_ms: int) -> RemotingCommand:
    request = pull_request("T", offset)
    request.ext_fields = (request.ext_fields or {}) | {
        "sysFlag": "6",
        "suspendTimeoutMillis": str(suspend_ms),
    }
    return request


def test_a_held_pull_is_answered_when_its_time_is_over_and_not_before() -> None:
    async def scenario(client: RemotingClient, mq: LocalCluster) -> None:
        await client.invoke(mq.broker_address(), send_request("T", b"x"))
        waiting = asyncio.create_task(
            client.invoke(mq.broker_address(), held_pull(1, 15_000), 60_000)
        )
        await asyncio.sleep(0)
        await client.invoke(
            mq.broker_address(), pull_request("T", 1)
        )  # which is answered behind it
        mq.advance(14)
        await client.invoke(mq.broker_address(), pull_request("T", 1))
        assert not waiting.done()
        mq.advance(1.5)
        assert (await waiting).code == ResponseCode.PULL_NOT_FOUND

    with LocalCluster(virtual_clock=True) as mq:
        asked(lambda client: scenario(client, mq))


def test_old_files_go_when_their_time_has_come_by_the_clock_of_the_cluster() -> None:
    hours = ";".join(f"{hour:02d}" for hour in range(24))
    keys = SMALL_FILES | {"fileReservedTime": "2", "deleteWhen": hours}
    with LocalCluster(virtual_clock=True, broker=keys) as mq:
        send(mq, *(b"%d" % number * 200 for number in range(300)))
        mq.advance(HOUR_S)
        files = sorted((mq.store() / "commitlog").iterdir())
        send(mq, b"young")
        mq.advance(1.5 * HOUR_S)
        wait_until(lambda: not files[0].exists(), "the oldest file goes")
        assert files[-1].exists()


def test_messages_carry_the_time_of_the_clock() -> None:
    clock = ManualClock(now_ms=1_000_000_000_000)
    with LocalCluster(clock=clock) as mq:
        mq.advance_ms(1_234)
        send(mq, b"x")
        log = next((mq.store() / "commitlog").iterdir()).read_bytes()
        assert (1_000_000_001_234).to_bytes(8, "big") in log
        assert mq.clock is clock


def test_brokers_stay_registered_however_long_it_is_and_one_that_is_gone_does_not() -> None:
    with LocalCluster(virtual_clock=True, brokers=2, topics=["T"]) as mq:
        mq.advance(4 * HOUR_S)
        assert sorted(route(mq)) == ["broker-a", "broker-b"]
        mq.kill("broker-b")
        mq.advance(HOUR_S)
        assert sorted(route(mq)) == ["broker-a"]
        mq.restart("broker-b")
        assert sorted(route(mq)) == ["broker-a", "broker-b"]


async def members(client: RemotingClient, mq: LocalCluster) -> RemotingCommand:
    header = GetConsumerListByGroupRequestHeader(consumer_group="g")
    return await client.invoke(
        mq.broker_address(), RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    )


async def join(client: RemotingClient, mq: LocalCluster) -> None:
    consumer = ConsumerData(
        group="g",
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscriptions=(),
    )
    beat = HeartbeatData(client_id="somebody", consumers=(consumer,))
    answer = await client.invoke(
        mq.broker_address(), RemotingCommand.request(RequestCode.HEART_BEAT, body=beat.encode())
    )
    assert answer.code == ResponseCode.SUCCESS, answer


def test_clients_that_are_connected_stay_known_and_those_behind_a_partition_are_taken_for_dead() -> (
    None
):
    async def scenario(client: RemotingClient, mq: LocalCluster) -> None:
        await join(client, mq)
        mq.advance(HOUR_S)
        assert b"somebody" in ((await members(client, mq)).body or b"")
        with mq.partition():
            mq.advance(200)
        with suppress(RemoteUnavailableError):  # the broker closed its connection
            await members(client, mq)
        assert b"somebody" not in ((await members(client, mq)).body or b"")

    with LocalCluster(virtual_clock=True, partitions=True) as mq:
        asked(lambda client: scenario(client, mq))


def test_an_hour_that_passes_at_once_makes_no_broker_think_that_it_is_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        LocalCluster(virtual_clock=True, broker={"brokerFastFailureEnable": "true"}) as mq,
    ):
        mq.advance(HOUR_S)
        send(mq, b"x")
        assert bodies(mq) == [b"x"]
    assert caplog.records == []
