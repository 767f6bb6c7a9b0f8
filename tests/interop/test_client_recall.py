"""Recalls of the client library: by the original 5.5.0 broker and by ours, and what brokers say
that recall nothing.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from interop.apache import Release
from interop.broker_clients import Cluster, original_cluster
from interop.client_matrix_room import OURS, cluster_of
from interop.frames import Request, ask
from orbitmq.client.consumer.push_consumer import ConsumerSettings, PushConsumer
from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.client.producer.producer import Producer
from orbitmq.common.errors import InvalidMessageError, NotFoundError, RequestRefusedError
from orbitmq.protocol.bodies.subscriptions import ConsumeFromWhere
from support.common.waiting import until

pytestmark = [pytest.mark.clients, pytest.mark.needs("java", "maven"), pytest.mark.timeout(180)]


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(90):
            await scenario()

    asyncio.run(main())


@pytest.fixture(scope="module", params=["5.5.0", OURS])
def cluster(request: pytest.FixtureRequest, module_home: Path) -> Iterator[Cluster]:
    settings = {"recallMessageEnable": "true", "timerWheelEnable": "true"}
    with cluster_of(request.param, module_home / request.param, settings) as cluster:
        cluster.make_topics({"Recalls": 1, "Other": 1})
        yield cluster


def test_a_message_that_was_recalled_does_not_come(cluster: Cluster) -> None:
    received: list[ReceivedMessage] = []

    async def scenario() -> None:
        settings = ConsumerSettings(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer = PushConsumer(
            cluster.name_server.address, "consumers", received.append, settings=settings
        )
        consumer.subscribe("Recalls")
        async with Producer(cluster.name_server.address) as producer, consumer:
            unwanted = await producer.send(Message("Recalls", b"unwanted", delay_ms=6_000))
            wanted = await producer.send(Message("Recalls", b"wanted", delay_ms=6_000))
            assert unwanted.recall_handle
            assert wanted.recall_handle
            assert await producer.recall("Recalls", unwanted.recall_handle) == unwanted.msg_id
            last = await producer.send(Message("Recalls", b"last", delay_ms=9_000))
            await until(lambda: len(received) >= 2)
            assert last.recall_handle
            with pytest.raises(
                RequestRefusedError,
                match=rf"did not recall {last.msg_id}: .*the message is already delivered",
            ) as refused:
                await producer.recall("Recalls", last.recall_handle)
            assert refused.value.code == 604

    run(scenario)
    assert [message.body for message in received] == [b"wanted", b"last"]


def test_what_is_not_a_handle_of_the_topic_is_said_to_be_so(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with Producer(cluster.name_server.address) as producer:
            result = await producer.send(Message("Recalls", b"x", delay_ms=60_000))
            assert result.recall_handle
            with pytest.raises(InvalidMessageError, match="'nonsense' is not a recall handle"):
                await producer.recall("Recalls", "nonsense")
            with pytest.raises(RequestRefusedError, match="the handle is for another topic"):
                await producer.recall("Other", result.recall_handle)
            with pytest.raises(
                NotFoundError, match="broker broker-x, which holds message ID, has no master"
            ):
                await producer.recall(
                    "Recalls", base64.urlsafe_b64encode(b"v1 Recalls broker-x 1 ID").decode()
                )

    run(scenario)


HANDLE = base64.urlsafe_b64encode(
    b"v1 T broker-a 99999999999999 C00002027E7C4E0E2F2A4FF5D2210000"
).decode()


def refused_by(cluster: Cluster) -> str:
    cluster.make_topics({"T": 1})

    async def recall() -> str:
        async with Producer(cluster.name_server.address) as producer:
            with pytest.raises(RequestRefusedError) as refused:
                await producer.recall("T", HANDLE)
            return str(refused.value)

    return asyncio.run(recall())


def test_a_broker_that_may_not_recall_is_told_how_to(cluster: Cluster) -> None:
    assert ask(cluster.broker.address, Request(25, {}, b"recallMessageEnable=false")).code == 0
    assert "set recallMessageEnable=true on the broker" in refused_by(cluster)


def test_brokers_that_cannot_recall_say_so(apache_4: Release, tmp_path: Path) -> None:
    with original_cluster(apache_4, tmp_path / "original") as original:
        assert "which need RocketMQ 5.3 or later" in refused_by(original)
