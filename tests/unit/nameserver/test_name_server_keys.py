"""Keys whose effect shows only in a whole name server: each scenario is one that would fail if the
key were not looked at.
"""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from orbitmq.common.clock import SystemClock
from orbitmq.common.config import load
from orbitmq.common.slices import Slices
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.housekeeping import Housekeeping
from orbitmq.nameserver.name_server import NameServer
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig
from orbitmq.protocol.bodies.registration import RegisterBrokerBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.testing.manual_clock import ManualClock
from orbitmq.testing.virtual_time import VirtualTimeLoop
from support.remoting.peers import run


@asynccontextmanager
async def name_server(folder: Path, **flags: str) -> AsyncIterator[str]:
    """A name server with these keys; its address."""
    own = {
        "listenPort": "0",
        "kvConfigPath": str(folder / "kvConfig.json"),
        "configStorePath": str(folder / "namesrv.properties"),
    }
    server = NameServer(load(NameServerConfig, environment={}, flags=own | flags).settings)
    await server.start()
    try:
        yield f"127.0.0.1:{server.address[1]}"
    finally:
        await server.stop()


@contextmanager
def address_server(path: str, told: str) -> Iterator[str]:
    """An HTTP server that tells a text at one path; where it is."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == path else 404)
            self.end_headers()
            self.wfile.write(told.encode())

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def registration(**fields: str) -> RemotingCommand:
    body = RegisterBrokerBody(
        data_version=DataVersion(counter=1),
        topics={name: TopicConfig(name) for name in ("T", "U")},
        filter_servers=[],
    )
    own = {
        "brokerName": "b",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "c",
        "haServerAddr": "",
        "brokerId": "0",
    }
    return RemotingCommand(
        RequestCode.REGISTER_BROKER, ext_fields=own | fields, body=body.encode(compressed=False)
    )


async def asked(client: RemotingClient, where: str, request: RemotingCommand) -> RemotingCommand:
    return await client.invoke(where, request, 30_000)


def route(topic: str = "T") -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})


def test_a_topic_that_is_not_known_is_looked_up_in_the_environment_that_is_named(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path / "other") as other,
            RemotingClient(ClientConfig(), SystemClock()) as client,
        ):
            assert (await asked(client, other, registration())).code == ResponseCode.SUCCESS
            with address_server("/rocketmq/mine-attic?nofix=1", other) as domain:
                keys = {
                    "rocketmq.namesrv.domain": domain,
                    "rocketmq.namesrv.domain.subgroup": "mine",
                    "productEnvName": "attic",
                }
                async with name_server(tmp_path, clusterTest="true", **keys) as here:
                    assert (await asked(client, here, route())).code == ResponseCode.SUCCESS
                async with name_server(tmp_path, **keys) as here:
                    assert (await asked(client, here, route())).code == ResponseCode.TOPIC_NOT_EXIST

    run(scenario)


def test_brokers_that_fell_silent_are_looked_for_after_each_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    loop = VirtualTimeLoop(clock)
    looked_at_ms: list[int] = []

    def scan(_: Housekeeping) -> Slices[None]:
        looked_at_ms.append(clock.monotonic_ms() - begun_ms)
        yield from ()

    async def scenario() -> None:
        async with name_server(tmp_path, scanNotActiveBrokerInterval="3000"):
            await loop.advance(7_000)

    begun_ms = clock.monotonic_ms()
    monkeypatch.setattr(Housekeeping, "scan", scan)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())
    assert looked_at_ms == [3_000, 6_000]


def test_brokers_that_fell_silent_are_looked_for_as_often_as_is_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path, scanNotActiveBrokerInterval="20") as here,
            RemotingClient(ClientConfig(), SystemClock()) as client,
        ):
            assert (
                await asked(client, here, registration(heartbeatTimeoutMillis="1"))
            ).code == ResponseCode.SUCCESS
            async with RemotingClient(
                ClientConfig(), SystemClock()
            ) as another:  # that of the broker is closed with it
                while (await asked(another, here, route())).code == ResponseCode.SUCCESS:
                    pass

    run(scenario)


def test_kept_values_and_updates_are_in_the_files_that_are_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path) as here,
            RemotingClient(ClientConfig(), SystemClock()) as client,
        ):
            fields = {"namespace": "n", "key": "k", "value": "v"}
            put = RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields=fields)
            assert (await asked(client, here, put)).code == ResponseCode.SUCCESS
            update = RemotingCommand(
                RequestCode.UPDATE_NAMESRV_CONFIG,
                body=b"enableTopicList=false\nserverChannelMaxIdleTimeSeconds=7\n",
            )
            assert (await asked(client, here, update)).code == ResponseCode.SUCCESS
        assert '"k"' in (tmp_path / "kvConfig.json").read_text()
        assert (
            tmp_path / "namesrv.properties"
        ).read_text() == "enableTopicList=false\nserverChannelMaxIdleTimeSeconds=7\n"

    run(scenario)
