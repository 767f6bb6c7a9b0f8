"""A master and its slaves as whole brokers: acknowledgements, refusals, addresses, TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq import (
    ClientSettings,
    Message,
    Producer,
    ProducerSettings,
    PullConsumer,
    SendStatus,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import ClientConfig, RemotingClient
from support.broker.nameserver_link import name_server
from support.broker.process import create_request, send_request
from support.broker.running import RunningBroker, broker, request
from support.common.waiting import until

SYNC = {"brokerRole": "SYNC_MASTER"}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(90):
            await scenario()

    asyncio.run(main())


@asynccontextmanager
async def pair(
    folder: Path, master_keys: dict[str, str], slave_keys: dict[str, str] | None = None
) -> AsyncIterator[tuple[RunningBroker, RunningBroker]]:
    """A master and a slave that follows it."""
    async with (
        name_server(folder) as address,
        broker(folder / "m", namesrvAddr=address, **master_keys) as master,
        broker(folder / "s", namesrvAddr=address, **{**SLAVE, **(slave_keys or {})}) as slave,
    ):
        yield master, slave


async def followed(master: RunningBroker, count: int = 1) -> None:
    """Wait until so many slaves follow a master."""
    await until(
        lambda: len(master.components.replication.quorum.replicas) == count,
        f"{count} slaves follow",
    )


async def send(master: RunningBroker, count: int = 1) -> list[RemotingCommand]:
    return [await master(send_request("T", b"%d" % number)) for number in range(count)]


def log_bytes(running: RunningBroker) -> bytes:
    log = running.components.store.log
    return b"".join(
        bytes(file.view()[: max(min(log.end_offset, file.end) - file.start, 0)])
        for file in log.files.files
    )


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_slave_has_everything_that_was_acknowledged(tmp_path: Path, flush: str) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, SYNC, {"flushDiskType": flush}) as (master, slave):
            await followed(master)
            await master(create_request("T"))
            for answer in await send(master, 50):
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                assert slave.components.store.log.end_offset == (
                    master.components.store.log.end_offset
                )
            assert log_bytes(slave) == log_bytes(master)

    run(scenario)


def test_an_async_master_waits_for_no_slave(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, {"brokerRole": "ASYNC_MASTER"}) as (master, slave):
            await followed(master)
            await master(create_request("T"))
            assert not master.components.store.waits
            assert {answer.code for answer in await send(master, 20)} == {ResponseCode.SUCCESS}
            await until(lambda: log_bytes(slave) == log_bytes(master))

    run(scenario)


def test_without_a_slave_a_sync_master_says_so_and_has_the_message(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, **SYNC) as master:
            await master(create_request("T"))
            (answer,) = await send(master)
            assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert (answer.ext_fields or {})["queueOffset"] == "0", "the header is that of success"
            assert master.components.store.queues.max_offset("T", 0) == 1

    run(scenario)


def test_a_send_that_no_slave_confirms_in_time_is_answered_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        keys = {**SYNC, "inSyncReplicas": "2", "slaveTimeout": "30"}
        async with broker(tmp_path, **keys) as master:
            await master(create_request("T"))
            (answer,) = await send(master)
            assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert (answer.ext_fields or {})["queueOffset"] == "0"

    run(scenario)


def test_without_enough_copies_messages_are_refused_and_not_stored(tmp_path: Path) -> None:
    async def scenario() -> None:
        keys = {**SYNC, "inSyncReplicas": "2", "minInSyncReplicas": "2"}
        async with pair(tmp_path, keys) as (master, slave):
            await master(create_request("T"))
            await followed(master)
            (answer,) = await send(master)
            assert answer.code == ResponseCode.SUCCESS
            await slave.components.replication.following.link.stop()  # type: ignore[union-attr]
            await followed(master, 0)
            end = master.components.store.log.end_offset
            (answer,) = await send(master)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (answer.remark or "").startswith("in-sync replicas not enough: 1 of the 2")
            assert master.components.store.log.end_offset == end

    run(scenario)


REFUSED = {
    RequestCode.SEND_MESSAGE_V2: (ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy"),
    RequestCode.UPDATE_AND_CREATE_TOPIC: (ResponseCode.SYSTEM_ERROR, "Can't modify topic or"),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (ResponseCode.SYSTEM_ERROR, "Can't modify topic or"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (
        ResponseCode.SYSTEM_ERROR,
        "Can not reset offset in slave broker",
    ),
    RequestCode.END_TRANSACTION: (ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave"),
    RequestCode.RECALL_MESSAGE: (ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave"),
}


@pytest.mark.parametrize("code", sorted(REFUSED), ids=lambda code: RequestCode(code).name)
def test_a_slave_refuses_what_only_a_master_does(tmp_path: Path, code: RequestCode) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, **SLAVE) as slave:
            asked = send_request("T", b"x") if code == 310 else request(code)
            answer = await slave(asked)
            expected, remark = REFUSED[code]
            assert (answer.code, (answer.remark or "")[: len(remark)]) == (expected, remark)
            assert slave.components.store.log.end_offset == 0

    run(scenario)


def test_a_slave_follows_a_configured_address_without_name_servers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path / "m", **SYNC, haPeers="127.0.0.1") as master:
            address = f"127.0.0.1:{master.broker.config.ha_listen_port}"
            async with broker(tmp_path / "s", **SLAVE, haMasterAddress=address) as slave:
                await followed(master)
                await master(create_request("T"))
                assert {answer.code for answer in await send(master, 5)} == {ResponseCode.SUCCESS}
                assert log_bytes(slave) == log_bytes(master)

    run(scenario)


def test_a_host_that_is_no_member_may_not_follow(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path / "m", **SYNC) as master:
            address = f"127.0.0.1:{master.broker.config.ha_listen_port}"
            async with broker(tmp_path / "s", **SLAVE, haMasterAddress=address) as slave:
                follower = slave.components.replication.following.follower  # type: ignore[union-attr]
                await until(lambda: "ended" in (follower.problem or ""), "it was sent away")
                assert master.components.replication.quorum.replicas == ()

    run(scenario)


@pytest.mark.parametrize("uses_tls", [True, False])
def test_slaves_follow_by_tls_unless_they_are_told_not_to(tmp_path: Path, uses_tls: bool) -> None:
    async def scenario() -> None:
        keys = {"useTLS": "true", "haUseTls": str(uses_tls).lower()}
        async with pair(tmp_path, SYNC, keys) as (master, _):
            await followed(master)
            (connection,) = master.components.replication.feed.connections
            transport = connection._transport
            assert transport is not None
            assert (transport.get_extra_info("ssl_object") is not None) == uses_tls

    run(scenario)


def test_a_slave_is_registered_beside_its_master_and_finds_it_when_it_comes_later(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path) as address,
            broker(tmp_path / "s", namesrvAddr=address, **SLAVE) as slave,
            RemotingClient(ClientConfig(), slave.broker._clock) as client,
        ):
            follower = slave.components.replication.following.follower  # type: ignore[union-attr]
            await until(lambda: "haMasterAddress" in (follower.problem or ""))
            async with broker(tmp_path / "m", namesrvAddr=address, **SYNC) as master:
                await followed(master)
                answer = await client.invoke(
                    address, request(RequestCode.GET_BROKER_CLUSTER_INFO), 10_000
                )
                body = (answer.body or b"").decode()
                assert master.address in body
                assert slave.address in body

    run(scenario)


def test_a_slave_that_was_killed_continues_and_messages_of_meanwhile_come_to_it(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path) as address,
            broker(tmp_path / "m", namesrvAddr=address, **SYNC) as master,
        ):
            await master(create_request("T"))
            slave = broker(tmp_path / "s", namesrvAddr=address, **SLAVE)
            async with slave as running:
                await followed(master)
                await send(master, 10)
                await running.broker.kill()
            await followed(master, 0)
            assert {answer.code for answer in await send(master, 10)} == {
                ResponseCode.SLAVE_NOT_AVAILABLE
            }
            async with broker(tmp_path / "s", namesrvAddr=address, **SLAVE) as again:
                await until(lambda: log_bytes(again) == log_bytes(master))

    run(scenario)


def test_everything_is_read_from_the_slave_when_the_master_is_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path) as address,
            broker(tmp_path / "s", namesrvAddr=address, **SLAVE) as slave,
        ):
            async with broker(tmp_path / "m", namesrvAddr=address, **SYNC) as master:
                await followed(master)
                settings = ClientSettings(name_servers=address, timeout_ms=30_000)
                patient = ProducerSettings(timeout_ms=30_000)
                async with Producer(settings, settings=patient) as producer:
                    sent = [
                        await producer.send(Message("T", b"%d" % number)) for number in range(30)
                    ]
                assert {each.status for each in sent} == {SendStatus.SEND_OK}
                await until(lambda: slave.components.metadata.topics.find("T") is not None)
                await master.broker.kill()
            found: list[bytes] = []
            async with PullConsumer(settings, "g") as consumer:
                for queue in await consumer.queues("T"):
                    pulled = await consumer.pull(queue, 0)
                    found += [message.body for message in pulled.messages]
        assert sorted(found) == sorted(b"%d" % number for number in range(30))

    run(scenario)
