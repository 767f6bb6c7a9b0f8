"""A broker of ours registers with real name servers, and their routes and clients show it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from interop import apache, programs
from interop.apache import Release, Server
from interop.frames import Request, ask
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.registration.link import NameServerLink
from orbitmq.broker.registration.requests import BrokerIdentity, RegistrationAnswer
from orbitmq.common.clock import SystemClock
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.settings import client_config
from support.common.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.needs("java", "maven")]

PORT = 23911


class Topics:
    """A broker's topics."""

    def __init__(self) -> None:
        self.topics = {
            "broker-ours": TopicConfig("broker-ours", 1, 1, 7),
            "Mail": TopicConfig("Mail", 4, 4),
        }
        self.data_version = DataVersion(counter=1, timestamp=1_700_000_000_000)

    @property
    def table(self) -> MappingProxyType[str, TopicConfig]:
        return MappingProxyType(self.topics)

    def put(self, topic: TopicConfig) -> None:
        self.topics[topic.name] = topic
        self.data_version = DataVersion(
            counter=self.data_version.counter + 1, timestamp=1_700_000_000_000
        )


@asynccontextmanager
async def linked(
    name_servers: list[Server], **settings: Any
) -> AsyncIterator[tuple[NameServerLink, Topics, BrokerConfig, list[RegistrationAnswer]]]:
    """A link that was started, and is stopped with the block."""
    config = BrokerConfig(
        broker_name="broker-ours",
        listen_port=PORT,
        namesrv_addr=";".join(each.address for each in name_servers),
        **settings,
    )
    topics, answers = Topics(), list[RegistrationAnswer]()
    async with RemotingClient(client_config(config), SystemClock()) as client:
        link = NameServerLink(
            config, BrokerIdentity.of(config, PORT), topics, client, answers.append
        )
        await link.start()
        try:
            yield link, topics, config, answers
        finally:
            await link.stop()


async def route(name_server: Server, topic: str) -> Any:
    """What a name server says of a topic; None when it does not know it."""
    answer = await asyncio.to_thread(ask, name_server.address, Request(105, {"topic": topic}))
    return answer.json() if answer.code == 0 else None


@pytest.fixture(scope="module")
def originals(apache_5: Release, apache_4: Release, module_home: Path) -> Any:
    """A name server of each release."""
    servers = [
        apache.name_server(apache_5, module_home / "names-5"),
        apache.name_server(apache_4, module_home / "names-4"),
    ]
    with apache.running(*servers):
        yield servers


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="plain"),
        pytest.param({"compressed_register": True}, id="compressed"),
        pytest.param({"enable_single_topic_register": True}, id="topic alone"),
        pytest.param(
            {
                "force_register": False,
                "enable_split_registration": True,
                "split_registration_size": 2,
            },
            id="asked first, split",
        ),
    ],
)
def test_real_name_servers_show_our_broker_its_topics_and_their_changes(
    originals: list[Server], settings: dict[str, Any]
) -> None:
    async def scenario() -> None:
        async with linked(originals, **settings) as (link, topics, _, _):
            assert list(link.name_servers.values()) == [True, True]
            for each in originals:
                mail = await route(each, "Mail")
                (broker,), (queues,) = mail["brokerDatas"], mail["queueDatas"]
                assert (broker["brokerName"], broker["cluster"]) == (
                    "broker-ours",
                    "DefaultCluster",
                )
                assert list(broker["brokerAddrs"].values()) == [f"127.0.0.1:{PORT}"]
                assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (
                    4,
                    4,
                    6,
                )
            for changed in (TopicConfig("New", 3, 3), TopicConfig("Mail", 8, 8, 4)):
                topics.put(changed)
                link.topics_changed([changed.name])
                await link.settled()
                for each in originals:
                    (queues,) = (await route(each, changed.name))["queueDatas"]
                    assert (queues["writeQueueNums"], queues["perm"]) == (
                        changed.write_queue_nums,
                        changed.perm,
                    )
            link.period_over()
            await link.settled()
            assert list(link.name_servers.values()) == [True, True]
            await link.stop()
            for each in originals:

                async def is_forgotten(each: Server = each) -> bool:
                    return await route(each, "Mail") is None

                await until(is_forgotten, f"{each.address} forgets the broker")

    asyncio.run(scenario())


def test_a_broker_without_permission_to_write_has_no_topic_to_write_to(
    originals: list[Server], tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with linked(originals, store_path_root_dir=str(tmp_path)) as (
            link,
            topics,
            config,
            _,
        ):
            await asyncio.to_thread(config.update, "brokerPermission=4")
            topics.put(TopicConfig("Other", 1, 1))
            link.register_all()
            await link.settled()
            for each in originals:
                assert (await route(each, "Mail"))["queueDatas"][0]["perm"] == 4

    asyncio.run(scenario())


def test_order_configuration_reaches_our_broker(originals: list[Server]) -> None:
    async def scenario() -> None:
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Mail"}
        for each in originals:
            await asyncio.to_thread(
                ask, each.address, Request(100, {**order, "value": "broker-ours:4"})
            )
        try:
            async with linked(originals) as (_, _, _, answers):
                assert {answer.name_server: answer.order_topics for answer in answers} == {
                    each.address: {"Mail": "broker-ours:4"} for each in originals
                }
        finally:
            for each in originals:
                await asyncio.to_thread(ask, each.address, Request(102, order))

    asyncio.run(scenario())


def test_mqadmin_lists_our_broker(
    release: Release, originals: list[Server], tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with linked(originals):
            with programs.admin(release, tmp_path) as mqadmin:
                for each in originals:
                    said = await asyncio.to_thread(
                        mqadmin, "topicRoute", "-n", each.address, "-t", "Mail"
                    )
                    assert '"broker-ours"' in said, said
                    assert f"127.0.0.1:{PORT}" in said, said

    asyncio.run(scenario())
