"""What a test can do to the brokers of a `LocalCluster`: kill, stop, start again, cut off; and what
is left of messages then.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from orbitmq.common.errors import RemoteTimeoutError, RemoteUnavailableError
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from orbitmq.remoting.client import RemotingClient
from orbitmq.testing import LocalCluster
from support.broker.process import pull_request, send_request
from support.common.waiting import until, wait_until
from support.embedded.local_cluster import asked, bodies, nothing_left, route, send

SYNC = {"flushDiskType": "SYNC_FLUSH"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"virtual_clock": True}, {"partitions": True}, {"processes": True}]
)
def test_a_kill_loses_nothing_that_was_flushed_and_the_broker_recovers_where_it_was(
    options: dict[str, object],
) -> None:
    with LocalCluster(broker=SYNC, **options) as mq:  # type: ignore[arg-type]
        address = mq.broker_address()
        send(mq, b"1", b"2")
        mq.kill()
        assert (mq.store() / "abort").exists()
        mq.restart()
        assert mq.broker_address() == address
        send(mq, b"3")
        mq.kill()
        mq.kill()  # it is dead already
        mq.restart()
        assert bodies(mq) == [b"1", b"2", b"3"]


def test_a_kill_loses_what_was_not_flushed_and_a_clean_stop_does_not() -> None:
    with LocalCluster(virtual_clock=True) as mq:  # by which nothing is flushed until time moves
        send(mq, b"flushed")
        mq.advance(15)
        send(mq, b"lost")
        mq.kill()
        mq.restart()
        assert bodies(mq) == [b"flushed"]
        send(mq, b"kept")
        mq.stop_broker()
        assert not (mq.store() / "abort").exists()
        mq.restart()
        assert bodies(mq) == [b"flushed", b"kept"]


@pytest.mark.parametrize("options", [{}, {"partitions": True}])
def test_nothing_that_was_acknowledged_as_flushed_is_lost_by_kills_in_the_middle_of_sends(
    options: dict[str, object],
) -> None:
    async def send_until_it_breaks(
        client: RemotingClient, mq: LocalCluster, life: int
    ) -> list[bytes]:
        acknowledged: list[bytes] = []

        async def send_on(sender: int) -> None:
            with suppress(RemoteUnavailableError):
                for number in range(100_000):
                    body = b"%d-%d-%d" % (life, sender, number)
                    if (
                        await client.invoke(mq.broker_address(), send_request("T", body), 30_000)
                    ).code == ResponseCode.SUCCESS:
                        acknowledged.append(body)

        senders = [asyncio.create_task(send_on(sender)) for sender in range(8)]
        await until(lambda: len(acknowledged) >= 100, "some are acknowledged")
        await asyncio.to_thread(mq.kill)
        await asyncio.gather(*senders)
        return acknowledged

    with LocalCluster(broker=SYNC, **options) as mq:  # type: ignore[arg-type]
        acknowledged: list[bytes] = []
        for life in range(4):
            acknowledged += asked(lambda client, life=life: send_until_it_breaks(client, mq, life))  # type: ignore[misc]
            mq.restart()
        found = bodies(mq)
        assert set(acknowledged) <= set(found)
        assert len(set(found)) == len(found)


def test_topics_survive_a_kill_and_offsets_as_far_as_they_were_saved() -> None:
    def committed(mq: LocalCluster) -> str | None:
        header = QueryConsumerOffsetRequestHeader(consumer_group="g", topic="T", queue_id=0)
        request = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        return (
            asked(lambda client: client.invoke(mq.broker_address(), request)).ext_fields or {}
        ).get("offset")

    def commit(mq: LocalCluster, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group="g", topic="T", queue_id=0, commit_offset=offset
        )
        request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        assert (
            asked(lambda client: client.invoke(mq.broker_address(), request)).code
            == ResponseCode.SUCCESS
        )

    with LocalCluster(virtual_clock=True, topics={"made": 7}, broker=SYNC) as mq:
        send(mq, *(b"%d" % number for number in range(9)))
        bodies(mq)  # which makes the group known
        commit(mq, 5)
        mq.advance(10)
        wait_until(
            lambda: b'"T@g"' in _content(mq.store() / "config/consumerOffset.json"),
            "offsets are saved",
        )
        commit(mq, 8)
        mq.kill()
        mq.restart()
        assert committed(mq) == "5"
        assert route(mq, "made") == {"broker-a": 7}


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, True])
def test_a_killed_broker_breaks_connections_and_leaves_the_routes_while_the_other_goes_on(
    processes: bool,
) -> None:
    async def wait_and_be_cut_off(client: RemotingClient, mq: LocalCluster) -> None:
        address = mq.broker_address("broker-a")
        await client.invoke(address, send_request("T", b"a"))
        held = pull_request("T", 1)
        held.ext_fields = (held.ext_fields or {}) | {
            "sysFlag": "6",
            "suspendTimeoutMillis": "30000",
        }
        waiting = asyncio.create_task(client.invoke(address, held, 30_000))
        await asyncio.sleep(0)
        await asyncio.to_thread(mq.kill, "broker-a")
        with pytest.raises(RemoteUnavailableError):
            await waiting
        with pytest.raises(RemoteUnavailableError, match="refused"):
            await client.invoke(address, send_request("T", b"b"))

    with LocalCluster(brokers=2, processes=processes) as mq:
        send(mq, b"b", broker="broker-b")
        asked(lambda client: wait_and_be_cut_off(client, mq))
        wait_until(lambda: list(route(mq)) == ["broker-b"], "the name server forgets it")
        assert bodies(mq, "broker-b") == [b"b"]
        mq.restart("broker-a")
        assert sorted(route(mq)) == ["broker-a", "broker-b"]


def test_a_broker_that_is_stopped_says_farewell_and_its_port_is_kept_for_it() -> None:
    with LocalCluster(brokers=2, topics=["T"]) as mq:
        mq.stop_broker("broker-b")
        assert list(route(mq)) == ["broker-a"]
        host, _, port = mq.broker_address("broker-b").partition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
        with pytest.raises(OSError, match="in use"), socket.socket() as other:
            other.bind((host, int(port)))
        mq.restart("broker-b")
        assert sorted(route(mq)) == ["broker-a", "broker-b"]


def test_a_restart_without_a_name_is_one_of_all_brokers(tmp_path: Path) -> None:
    with nothing_left(tmp_path), LocalCluster(brokers=2) as mq:
        for name in mq.brokers:
            send(mq, name.encode(), broker=name)
        mq.restart()
        assert [bodies(mq, name) for name in mq.brokers] == [[b"broker-a"], [b"broker-b"]]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, True])
def test_behind_a_partition_nothing_arrives_until_it_is_healed(processes: bool) -> None:
    async def talk(client: RemotingClient, mq: LocalCluster) -> None:
        east, west = mq.broker_address("east"), mq.broker_address("west")
        assert (
            await client.invoke(east, send_request("T", b"before"))
        ).code == ResponseCode.SUCCESS
        with mq.partition("east"):
            waiting = asyncio.create_task(client.invoke(east, send_request("T", b"during"), 60_000))
            assert (
                await client.invoke(west, send_request("T", b"elsewhere"))
            ).code == ResponseCode.SUCCESS
            with pytest.raises(RemoteTimeoutError):
                await client.invoke(
                    east, send_request("T", b"impatient"), 20
                )  # and that connection is given up
            assert not waiting.done() or waiting.exception() is not None
        await asyncio.gather(waiting, return_exceptions=True)
        assert (await client.invoke(east, send_request("T", b"after"))).code == ResponseCode.SUCCESS

    with LocalCluster(brokers=["east", "west"], partitions=True, processes=processes) as mq:
        asked(lambda client: talk(client, mq))
        found = bodies(mq, "east")
        assert (found[0], found[-1], bodies(mq, "west")) == (b"before", b"after", [b"elsewhere"])


def test_what_was_sent_into_a_partition_arrives_when_it_is_healed() -> None:
    async def send_into_it(client: RemotingClient, mq: LocalCluster) -> None:
        await client.invoke(mq.broker_address(), send_request("T", b"before"))
        mq.partition()
        waiting = asyncio.create_task(
            client.invoke(mq.broker_address(), send_request("T", b"during"), 60_000)
        )
        await asyncio.sleep(0)
        mq.create_topic("meanwhile", queues=2)  # administration is not cut off
        assert not waiting.done()
        mq.heal()
        assert (await waiting).code == ResponseCode.SUCCESS

    with LocalCluster(partitions=True) as mq:
        asked(lambda client: send_into_it(client, mq))
        assert bodies(mq) == [b"before", b"during"]
        assert route(mq, "meanwhile") == {"broker-a": 2}


def test_a_partition_by_resets_is_told_at_once_and_outlives_a_restart() -> None:
    with LocalCluster(partitions=True, broker=SYNC) as mq:
        send(mq, b"before")
        with mq.partition(reset=True):
            for _ in range(2):
                with pytest.raises(RemoteUnavailableError, match="refused"):
                    send(mq, b"during")
                mq.restart()
            assert route(mq) == {"broker-a": 1}  # the name server hears it
        send(mq, b"after")
        assert bodies(mq) == [b"before", b"after"]
