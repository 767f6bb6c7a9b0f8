"""Filter servers of 4.9: known while they are alive, and told to name servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.admin import Admin
from orbitmq.broker.clients.filter_servers import SILENCE_MS_MAX, FilterServers
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.processors.filter_servers import FilterServerProcessor
from orbitmq.broker.registration.link import NameServerLink
from orbitmq.broker.registration.requests import BrokerIdentity
from orbitmq.common.clock import SystemClock
from orbitmq.common.errors import RequestRefusedError
from orbitmq.embedded.cluster import EmbeddedCluster
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.name_server import NameServer
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.clients import RegisterFilterServerRequestHeader
from orbitmq.remoting.client import ClientConfig, RemotingClient
from support.broker.process import create_request
from support.broker.socketless import BrokerRoom
from support.remoting.peers import run

REGISTER = RequestCode.REGISTER_FILTER_SERVER


class Stage:
    def __init__(self, room: BrokerRoom) -> None:
        self.room = room
        self.servers = FilterServers()
        self.processor = FilterServerProcessor(
            BrokerConfig(broker_name="broker-a"), self.servers, room.clock
        )

    def register(self, address: str) -> None:
        answer = self.room.ask(self.processor, REGISTER, {"filterServerAddr": address})
        assert (answer.code, answer.remark, answer.ext_fields) == (
            0,
            None,
            {"brokerName": "broker-a", "brokerId": "0"},
        )


@pytest.fixture
def stage(room: BrokerRoom) -> Stage:
    return Stage(room)


def test_a_filter_server_is_known_by_its_connection_and_keeps_its_first_address(
    stage: Stage,
) -> None:
    stage.register("10.0.0.1:40000")
    stage.register("10.0.0.2:40000")
    assert stage.servers.addresses == ["10.0.0.1:40000"]
    stage.room.channel = stage.room.peers.connect()
    stage.register("10.0.0.3:40000")
    assert stage.servers.addresses == ["10.0.0.1:40000", "10.0.0.3:40000"]


def test_a_filter_server_goes_with_its_connection(stage: Stage) -> None:
    stage.register("10.0.0.1:40000")
    stage.processor.on_close(stage.room.peers.connect())
    assert stage.servers.addresses == ["10.0.0.1:40000"]
    stage.processor.on_close(stage.room.channel)
    assert stage.servers.addresses == []


def test_a_filter_server_that_falls_silent_is_forgotten_and_its_connection_closed(
    stage: Stage,
) -> None:
    stage.register("10.0.0.1:40000")
    stage.room.clock.advance_ms(SILENCE_MS_MAX)
    stage.processor.scan()
    assert stage.servers.addresses == ["10.0.0.1:40000"]
    stage.register("10.0.0.1:40000")
    stage.room.clock.advance_ms(SILENCE_MS_MAX)
    stage.processor.scan()
    assert stage.room.channel.close_reason is None
    stage.room.clock.advance_ms(1)
    stage.processor.scan()
    assert stage.servers.addresses == []
    assert stage.room.channel.close_reason == "its filter server was silent for too long"


def test_a_filter_server_that_does_not_say_where_it_is_is_refused(stage: Stage) -> None:
    with pytest.raises(RequestRefusedError, match="filterServerAddr"):
        stage.room.begin(stage.processor, REGISTER, {})


def test_name_servers_hear_of_filter_servers_with_the_next_registration(
    stage: Stage, tmp_path: Path
) -> None:
    async def scenario() -> None:
        names = NameServer(
            NameServerConfig(listen_port=0, kv_config_path=str(tmp_path / "kvConfig.json"))
        )
        await names.start()
        address = f"127.0.0.1:{names.address[1]}"
        config = BrokerConfig(broker_name="broker-a", namesrv_addr=address)
        async with RemotingClient(ClientConfig(), SystemClock()) as client, Admin(address) as admin:
            identity = BrokerIdentity.of(config, 10911)
            link = NameServerLink(
                config,
                identity,
                stage.room.topics,
                client,
                lambda _: None,
                lambda: stage.servers.addresses,
            )
            await link.start()

            async def told() -> dict[str, list[str]]:
                link.period_over()
                await link.settled()
                return dict((await admin.topics.route("T")).filter_server_table)

            assert await told() == {}
            stage.register("10.0.0.1:40000")
            assert await told() == {identity.address: ["10.0.0.1:40000"]}
            stage.processor.on_close(stage.room.channel)
            assert await told() == {}
            await link.stop()
        await names.stop()

    run(scenario)


def test_a_broker_tells_of_a_filter_server_for_as_long_as_it_is_connected() -> None:
    async def scenario() -> None:
        cluster = EmbeddedCluster()
        await cluster.start()
        broker = cluster.broker_address
        async with (
            RemotingClient(ClientConfig(), SystemClock()) as client,
            Admin(cluster.name_server_address) as admin,
        ):

            async def told(topic: str) -> dict[str, list[str]]:
                """What the name server says once it has heard of another topic."""
                assert (
                    await client.invoke(broker, create_request(topic))
                ).code == ResponseCode.SUCCESS
                return dict((await admin.topics.route(topic)).filter_server_table)

            async with RemotingClient(ClientConfig(), SystemClock()) as filter_server:
                header = RegisterFilterServerRequestHeader(filter_server_addr="10.0.0.1:40000")
                answer = await filter_server.invoke(
                    broker, RemotingCommand.request(REGISTER, header)
                )
                assert answer.ext_fields == {"brokerName": "broker-a", "brokerId": "0"}
                assert await told("One") == {broker: ["10.0.0.1:40000"]}
            number = 0
            while await told(f"More-{number}"):  # its connection's end may come a moment later
                number += 1
        await cluster.stop()

    run(scenario)
