"""What clients can be told of a cluster, of sending and of where to begin, and what then
happens.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from orbitmq import (
    ClientSettings,
    ClientTls,
    ConsumeFromWhere,
    ConsumerSettings,
    Message,
    Producer,
    ProducerSettings,
    PushConsumer,
    SendStatus,
)
from orbitmq.embedded.cluster import EmbeddedCluster
from orbitmq.protocol.codes import ResponseCode
from orbitmq.remoting.client import ClientConfig
from orbitmq.testing import LocalCluster
from support.client.library import run
from support.client.scripted_broker import scripted_broker
from support.common.waiting import until


@pytest.mark.parametrize(
    "remoting", [None, ClientConfig(connect_timeout_ms=5_000)], ids=["alone", "with limits"]
)
def test_tls_is_spoken_on_every_connection(remoting: ClientConfig | None) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        settings = ClientSettings(
            name_servers=cluster.name_server_address, tls=ClientTls(enabled=True), remoting=remoting
        )
        async with Producer(settings) as producer:
            await producer.send(Message("T", b"x"))
            connections = producer.session.client.connections
            assert {channel.remote_address for channel in connections} == {
                cluster.name_server_address,
                cluster.broker_address,
            }
            assert all(channel.is_tls for channel in connections)

    run(scenario)


def test_messages_go_to_the_fast_port_when_that_is_wanted() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        host, _, port = cluster.broker_address.rpartition(":")
        async with Producer(
            ClientSettings(name_servers=cluster.name_server_address, vip_channel=True)
        ) as producer:
            assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK
            assert f"{host}:{int(port) - 2}" in {
                channel.remote_address for channel in producer.session.client.connections
            }

    run(scenario)


@contextmanager
def address_server(name_servers: str) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(name_servers.encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/rocketmq/nsaddr"
        finally:
            server.shutdown()
            thread.join()


def test_name_servers_are_looked_up_or_taken_from_the_environment_in_this_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def send(settings: ClientSettings) -> list[str]:
        async with Producer(settings) as producer:
            await producer.send(Message("T", b"x"))
            return producer.session.client.name_servers.in_order()

    async def scenario(cluster: EmbeddedCluster) -> None:
        there, nowhere = cluster.name_server_address, "127.0.0.1:1"
        monkeypatch.delenv("NAMESRV_ADDR", raising=False)
        with address_server(f"{there}\n") as url:
            assert await send(ClientSettings(address_server=url)) == [there]
        monkeypatch.setenv("NAMESRV_ADDR", there)
        assert await send(ClientSettings(address_server="http://127.0.0.1:1/nobody")) == [there]
        monkeypatch.setenv("NAMESRV_ADDR", nowhere)
        assert await send(ClientSettings(name_servers=[there])) == [there]

    run(scenario)


def test_a_broker_that_was_slow_is_left_alone_for_a_while_when_that_is_wanted() -> None:
    async def main() -> None:
        with LocalCluster(partitions=True, brokers=2, topics={"T": 1}) as mq:
            settings = ProducerSettings(
                timeout_ms=20_000, try_timeout_ms=300, avoid_slow_brokers=True
            )
            async with Producer(mq.name_server, settings=settings) as producer:
                with mq.partition("broker-a"):
                    for _ in range(2):
                        await producer.send(Message("T", b"x"))
                results = [await producer.send(Message("T", b"x")) for _ in range(8)]
                assert {result.queue.broker_name for result in results} == {"broker-b"}, (
                    "although the other one is back"
                )

    asyncio.run(main())


@pytest.mark.parametrize(
    ("retries", "wanted", "tries"), [(2, True, 3), (0, True, 1), (2, False, 1)]
)
def test_a_message_that_is_stored_less_safely_than_asked_for_is_sent_again_when_that_is_wanted(
    retries: int, wanted: bool, tries: int
) -> None:
    async def main() -> None:
        settings = ProducerSettings(timeout_ms=20_000, retries=retries, retry_when_not_safe=wanted)
        async with (
            scripted_broker() as broker,
            Producer(broker.address, settings=settings) as producer,
        ):
            broker.answer_code = ResponseCode.FLUSH_DISK_TIMEOUT
            assert (await producer.send(Message("T", b"x"))).status is SendStatus.FLUSH_DISK_TIMEOUT
            assert len(broker.sent) == tries

    asyncio.run(main())


def test_a_topic_that_a_message_makes_has_as_many_queues_as_its_producer_wants() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(
            cluster.name_server_address, settings=ProducerSettings(new_topic_queue_count=2)
        ) as producer:
            assert {(await producer.send(Message("T", b"x"))).queue.queue_id for _ in range(4)} == {
                0,
                1,
            }
            await producer.session.refresh_routes()
            assert len(await producer.queues("T")) == 2, "which the name server says too"

    run(scenario)


def test_a_new_group_begins_at_the_time_that_it_is_told() -> None:
    async def main() -> None:
        with LocalCluster(topics={"T": 1}, virtual_clock=True) as mq:
            async with Producer(mq.name_server) as producer:
                await producer.send(Message("T", b"before"))
                await asyncio.to_thread(mq.advance, 10)
                begin_ms = mq.clock.now_ms()
                await producer.send(Message("T", b"then"))
                await asyncio.to_thread(mq.advance, 10)
                await producer.send(Message("T", b"later"))
            heard: list[bytes] = []
            settings = ConsumerSettings(
                consume_from=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, consume_from_ms=begin_ms
            )
            consumer = PushConsumer(
                mq.name_server, "g", lambda message: heard.append(message.body), settings=settings
            )
            consumer.subscribe("T")
            async with consumer, asyncio.timeout(60):
                await until(lambda: b"later" in heard)
            assert sorted(heard) == [b"later", b"then"]

    asyncio.run(main())
