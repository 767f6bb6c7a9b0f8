"""What the tests of the link to name servers share: a link on a stage, name servers of ours, and
some that only listen.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.registration.link import NameServerLink
from orbitmq.broker.registration.requests import BrokerIdentity, RegistrationAnswer
from orbitmq.common.clock import SystemClock
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.name_server import NameServer
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig, TopicRouteData
from orbitmq.protocol.bodies.registration import RegisterBrokerBody
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.nameserver import GetRouteInfoRequestHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.client import ClientConfig, RemotingClient
from support.remoting.peers import address, run, serving

REGISTER, UNREGISTER, VERSION, TOPIC = 103, 104, 322, 217


class Topics:
    """The broker's topics, changed by a test."""

    def __init__(self, *names: str) -> None:
        self.topics = {name: TopicConfig(name, 4, 4) for name in names}
        self.version = DataVersion(counter=1, timestamp=1)

    @property
    def table(self) -> MappingProxyType[str, TopicConfig]:
        return MappingProxyType(self.topics)

    @property
    def data_version(self) -> DataVersion:
        return self.version

    def next_version(self) -> None:
        self.version = DataVersion(counter=self.version.counter + 1, timestamp=1)

    def put(self, name: str, queues: int = 4) -> None:
        self.topics[name] = TopicConfig(name, queues, queues)
        self.next_version()


class Stage:
    """A link, the client it uses, and what it was answered."""

    def __init__(self, client: RemotingClient, name_servers: str | None, **settings: Any) -> None:
        self.client = client
        self.topics = Topics("one", "two")
        self.config = BrokerConfig(broker_name="broker-a", namesrv_addr=name_servers, **settings)
        self.answers: list[RegistrationAnswer] = []
        self.link = NameServerLink(
            self.config,
            BrokerIdentity.of(self.config, 10911),
            self.topics,
            client,
            self.answers.append,
        )

    async def change(self, name: str, queues: int = 4) -> None:
        """Change a topic, and wait until name servers have it."""
        self.topics.put(name, queues)
        self.link.topics_changed([name])
        await self.link.settled()

    async def ask(self, name_server: str, topic: str) -> TopicRouteData | None:
        """The route of a topic."""
        request = RemotingCommand.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)
        )
        answer = await self.client.invoke(name_server, request)
        return None if answer.body is None else TopicRouteData.decode(answer.body)

    async def queues(self, name_server: str, topic: str) -> int | None:
        """How many queues a name server says that a topic has."""
        route = await self.ask(name_server, topic)
        return None if route is None else route.queue_datas[0].write_queue_nums


@contextlib.asynccontextmanager
async def name_server(folder: Path, port: int = 0) -> AsyncIterator[str]:
    """A name server of ours; its address."""
    server = NameServer(
        NameServerConfig(listen_port=port, kv_config_path=str(folder / "kvConfig.json"))
    )
    await server.start()
    try:
        yield f"127.0.0.1:{server.address[1]}"
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def staged(name_servers: str | None, **settings: Any) -> AsyncIterator[Stage]:
    """A link that was started, and is stopped with the block."""
    with tempfile.TemporaryDirectory() as folder:
        async with RemotingClient(ClientConfig(), SystemClock()) as client:
            stage = Stage(client, name_servers, store_path_root_dir=folder, **settings)
            await stage.link.start()
            try:
                yield stage
            finally:
                await stage.link.stop()


Answer = Callable[[RemotingCommand], RemotingCommand | None]


class Listener:
    """A name server of the test: notes what it is asked, and answers as it is told."""

    def __init__(self) -> None:
        self.asked: list[RemotingCommand] = []
        self.answer: Answer = lambda request: request.reply(0)

    def __call__(self, _: Channel, request: RemotingCommand) -> RemotingCommand | None:
        self.asked.append(request)
        return self.answer(request)

    def topics(self) -> list[set[str]]:
        """The topics of each registration so far."""
        bodies = [request.body for request in self.asked if request.code == REGISTER]
        return [set(RegisterBrokerBody.decode(body).topics) for body in bodies]

    def codes(self) -> list[int]:
        return [request.code for request in self.asked]


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[tuple[Listener, str]]:
    listener = Listener()
    async with serving(
        handlers=dict.fromkeys((REGISTER, UNREGISTER, VERSION, TOPIC), listener)
    ) as server:
        yield listener, address(server)


def scenario(test: Callable[[Path], Awaitable[None]], folder: Path) -> None:
    run(lambda: test(folder))
