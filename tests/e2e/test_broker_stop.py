"""A broker that is told to stop: it leaves the name servers, answers what it took, brings
everything to disk, and takes bounded time.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.admin import Admin
from orbitmq.common.clock import SystemClock
from orbitmq.common.errors import NotFoundError, RemoteError, RemoteUnavailableError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.name_server import NameServer
from orbitmq.protocol import frame
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.topics import DeleteTopicRequestHeader
from orbitmq.remoting.client import ClientConfig, RemotingClient
from support.broker.process import (
    BrokerProcess,
    all_bodies,
    create_request,
    pull_request,
    send_request,
)
from support.common.free_ports import free_port
from support.common.waiting import until

PRODUCERS = 8
ANSWER_TIMEOUT_MS = 25_000  # what is neither answered nor closed shows as this


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(110):
            await scenario()

    asyncio.run(main())


@asynccontextmanager
async def name_server(folder: Path) -> AsyncIterator[str]:
    config = NameServerConfig(
        listen_port=0,
        kv_config_path=str(folder / "kvConfig.json"),
        delete_topic_with_broker_registration=True,
    )
    server = NameServer(config)
    await server.start()
    try:
        yield f"127.0.0.1:{server.address[1]}"
    finally:
        await server.stop()


class Stage:
    """A name server, a broker process that knows it, a client of the broker, and an admin."""

    def __init__(
        self, folder: Path, names: str, client: RemotingClient, admin: Admin, keys: dict[str, str]
    ) -> None:
        self.store = folder / "store"
        self.client = client
        self.admin = admin
        port = free_port("127.0.0.1")
        self.address = f"127.0.0.1:{port}"
        self._keys = {
            "namesrvAddr": names,
            "listenPort": str(port),
            "storePathRootDir": str(self.store),
            "brokerName": "a",
            **keys,
        }
        self._folder = folder
        self.broker = self._start()

    def _start(self) -> BrokerProcess:
        return BrokerProcess(self._folder / "process", self._keys)

    async def ready(self) -> None:
        await asyncio.to_thread(self.broker.wait_ready)

    async def restarted(self) -> None:
        """The same broker again."""
        self.broker = self._start()
        await self.ready()

    async def stop(self) -> int:
        """Tell it to stop; its exit code."""
        self.broker.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.broker.wait)

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        return await self.client.invoke(self.address, request, ANSWER_TIMEOUT_MS)


@asynccontextmanager
async def staged(folder: Path, **keys: str) -> AsyncIterator[Stage]:
    client_config = ClientConfig(reconnect_on_go_away=False)
    async with (
        name_server(folder) as names,
        RemotingClient(client_config, SystemClock()) as client,
        Admin(names) as admin,
    ):
        stage = Stage(folder, names, client, admin, keys)
        try:
            await stage.ready()
            yield stage
        finally:
            stage.broker.end()


class Load:
    """Producers that send as fast as they are answered, until one of their sends fails."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.acknowledged: list[bytes] = []
        self.ends: list[Exception] = []

    async def produce(self, number: int) -> None:
        count = 0
        while True:
            body = b"%d-%d" % (number, count)
            count += 1
            try:
                answer = await self._stage.ask(send_request("T", body))
            except RemoteError as problem:
                self.ends.append(problem)
                return
            assert answer.code == ResponseCode.SUCCESS, answer
            self.acknowledged.append(body)


def deaf_peer(address: str) -> socket.socket:
    """A peer that asks for more than its connection holds, and reads nothing."""
    host, _, port = address.rpartition(":")
    peer = socket.create_connection((host, int(port)))
    peer.setblocking(False)
    request = frame.encode(pull_request("Big", 0))
    try:
        for _ in range(200):
            peer.send(request)
    except BlockingIOError:
        pass
    return peer


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_broker_that_stops_under_load_has_everything_that_it_acknowledged(
    tmp_path: Path, flush: str
) -> None:
    async def scenario() -> None:
        async with staged(tmp_path, flushDiskType=flush) as stage:
            for number in range(8):
                await stage.ask(send_request("Big", b"%d" % number + b"x" * 200_000))
            deaf = deaf_peer(stage.address)
            load = Load(stage)
            producers = [asyncio.create_task(load.produce(number)) for number in range(PRODUCERS)]
            await until(lambda: len(load.acknowledged) > 200, "some load")
            assert (stage.store / "abort").exists()
            assert await stage.stop() == 0, stage.broker.errors()
            await asyncio.gather(*producers)
            deaf.close()
            assert all(isinstance(end, RemoteUnavailableError) for end in load.ends), load.ends
            assert not (stage.store / "abort").exists()
            with pytest.raises(NotFoundError):
                await stage.admin.topics.route("T")
            assert "name_server_left" in stage.broker.errors()
            await stage.restarted()
            stored = await all_bodies(stage.client, stage.address, "T")
            assert len(set(stored)) == len(stored)
            assert set(load.acknowledged) <= set(stored)
            assert await stage.stop() == 0

    run(scenario)


def test_clients_are_told_to_go_away_when_that_is_wanted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with staged(
            tmp_path, enableShutdownGracefully="true", shutdownWaitTimeSeconds="5"
        ) as stage:
            assert (await stage.ask(send_request("T", b"1"))).code == ResponseCode.SUCCESS
            stage.broker.send_signal(signal.SIGTERM)
            codes = []
            while ResponseCode.GO_AWAY not in codes:
                codes.append((await stage.ask(send_request("T", b"1"))).code)
            assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.GO_AWAY}
            host, _, port = stage.address.rpartition(":")
            socket.create_connection(
                (host, int(port))
            ).close()  # a connection that comes meanwhile does no harm
            assert await asyncio.to_thread(stage.broker.wait) == 0
            assert "Traceback" not in stage.broker.errors()

    run(scenario)


def test_what_an_operator_changes_is_known_to_name_servers_when_it_is_answered(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with staged(tmp_path) as stage:
            for number in range(10):
                topic = f"New-{number}"
                assert (await stage.ask(create_request(topic))).code == ResponseCode.SUCCESS
                assert (await stage.admin.topics.route(topic)).queue_datas[0].broker_name == "a"
                deleted = DeleteTopicRequestHeader(topic=topic)
                assert (
                    await stage.ask(
                        RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, deleted)
                    )
                ).code == ResponseCode.SUCCESS
                with pytest.raises(NotFoundError):
                    await stage.admin.topics.route(topic)
            assert await stage.stop() == 0

    run(scenario)


def test_a_topic_that_a_send_made_survives_a_kill(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with staged(tmp_path) as stage:
            answers = await asyncio.gather(
                *(
                    stage.ask(send_request(f"New-{number % 5}", b"%d" % number))
                    for number in range(20)
                )
            )
            stage.broker.send_signal(signal.SIGKILL)
            await asyncio.to_thread(stage.broker.wait)
            assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
            await stage.restarted()
            found = [
                await all_bodies(stage.client, stage.address, f"New-{number}")
                for number in range(5)
            ]
            assert sorted(int(body) for bodies in found for body in bodies) == list(range(20))
            assert await stage.stop() == 0

    run(scenario)


def test_files_that_only_the_original_uses_stay_as_they_are(tmp_path: Path) -> None:
    kept = {"consumerOrderInfo.json": '{"table":{}}'}
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    for name, text in kept.items():
        (config / name).write_text(text)

    async def scenario() -> None:
        async with staged(tmp_path) as stage:
            await stage.ask(send_request("T", b"1"))
            assert await stage.stop() == 0

    run(scenario)
    assert {name: (config / name).read_text() for name in kept} == kept
