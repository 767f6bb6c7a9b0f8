"""A whole broker in the loop of a test, on a free port, and how to ask it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from orbitmq.broker.broker import Broker
from orbitmq.broker.config.broker_config import load_broker
from orbitmq.broker.wiring.components import BrokerComponents
from orbitmq.common.clock import SystemClock
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.remoting.slices import SliceQueue
from orbitmq.store.file_layer import FileLayer
from support.broker.process import PATIENT, SMALL_FILES
from support.common.free_ports import free_port


class RunningBroker:
    """Called with a request, it gives the answer."""

    def __init__(self, broker: Broker, client: RemotingClient) -> None:
        self.broker = broker
        self.client = client
        self.address = f"127.0.0.1:{broker.config.listen_port}"

    @property
    def components(self) -> BrokerComponents:
        assert self.broker._requests is not None
        return self.broker._requests._components

    @property
    def slices(self) -> SliceQueue:
        """Work that the broker does in slices."""
        assert self.broker._requests is not None
        return self.broker._requests._components.slices

    async def __call__(self, request: RemotingCommand) -> RemotingCommand:
        return await self.client.invoke(self.address, request, 120_000)

    async def update(self, **keys: object) -> RemotingCommand:
        """Change keys as `mqadmin updateBrokerConfig` does; the answer."""
        text = "".join(f"{name}={value}\n" for name, value in keys.items())
        answer = await self(RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode()))
        assert answer.code == ResponseCode.SUCCESS, answer
        return answer


@asynccontextmanager
async def broker(
    folder: Path, layer: FileLayer | None = None, /, **keys: str
) -> AsyncIterator[RunningBroker]:
    """A broker that runs in this loop, with its store in `folder`."""
    port = free_port("127.0.0.1")
    flags = (
        SMALL_FILES
        | PATIENT
        | {"listenPort": str(port), "storePathRootDir": str(folder), "brokerName": "a"}
        | keys
    )
    running = Broker(load_broker(environment={}, flags=flags).settings, layer=layer)
    await running.start()
    try:
        async with RemotingClient(ClientConfig(), SystemClock()) as client:
            yield RunningBroker(running, client)
    finally:
        await running.stop()


def request(code: int, body: object = None, **fields: str) -> RemotingCommand:
    """A request of that code, with a JSON body."""
    return RemotingCommand(
        code, ext_fields=fields, body=None if body is None else json.dumps(body).encode()
    )
