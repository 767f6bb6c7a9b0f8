"""A name server for tests that are not async."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from orbitmq.common.clock import SystemClock
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.name_server import NameServer
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig
from orbitmq.protocol.bodies.registration import RegisterBrokerBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.nameserver import RegisterBrokerRequestHeader
from orbitmq.remoting.client import ClientConfig, RemotingClient


class RunningNameServer:
    """A name server in a thread of its own; a broker with two topics stays registered under the
    given address.
    """

    def __init__(self, directory: Path, *, broker_address: str | None = None) -> None:
        self._config = NameServerConfig(
            listen_port=0,
            kv_config_path=str(directory / "kvConfig.json"),
            config_store_path=str(directory / "namesrv.properties"),
        )
        self._broker_address = broker_address
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.address = ""
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> RunningNameServer:
        self._thread.start()
        assert self._ready.wait(60)
        if self._failure is not None:
            self._thread.join(60)
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self._failure is None

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except Exception as error:  # told to whoever waits for the start
            self._failure = error
            self._ready.set()

    async def _live(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = NameServer(self._config)
        await server.start()
        try:
            self.address = "{}:{}".format(*server.address)
            async with RemotingClient(ClientConfig(), SystemClock()) as broker:
                if self._broker_address is not None:
                    await self._register(broker, self._broker_address)
                self._ready.set()
                await self._stop.wait()
        finally:
            await server.stop()

    async def _register(self, broker: RemotingClient, address: str) -> None:
        header = RegisterBrokerRequestHeader(
            broker_name="broker-a",
            broker_addr=address,
            cluster_name="c1",
            ha_server_addr=address,
            broker_id=0,
        )
        names = ("TopicTest", "Other")
        body = RegisterBrokerBody(
            DataVersion(1, 0, 1), {name: TopicConfig(name, 4, 8, 6) for name in names}
        ).encode()
        answer = await broker.invoke(
            self.address, RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
        )
        assert answer.code == ResponseCode.SUCCESS
