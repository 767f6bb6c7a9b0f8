"""A name server and a broker in one process, asked over the wire: what is sent is read, waits are
answered, restarts keep everything.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from orbitmq.admin import Admin
from orbitmq.common.clock import SystemClock
from orbitmq.common.service import StartFailedError
from orbitmq.embedded.cluster import ClusterSettings, EmbeddedCluster
from orbitmq.message.record import decode_all
from orbitmq.protocol.bodies.offsets import ConsumerOffsets
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.offsets import UpdateConsumerOffsetRequestHeader
from orbitmq.protocol.headers.pull import PullMessageRequestHeader
from orbitmq.protocol.headers.send import SendMessageRequestHeaderV2
from orbitmq.remoting.client import ClientConfig, RemotingClient
from support.common.free_ports import free_port

SUSPEND, SUBSCRIPTION = 2, 4


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(main())


@asynccontextmanager
async def cluster(
    settings: ClusterSettings | None = None,
) -> AsyncIterator[tuple[EmbeddedCluster, RemotingClient]]:
    running = EmbeddedCluster(settings)
    await running.start()
    try:
        async with RemotingClient(ClientConfig(), SystemClock()) as client:
            yield running, client
    finally:
        await running.stop()


async def send(
    client: RemotingClient, address: str, body: bytes, topic: str = "T"
) -> RemotingCommand:
    header = SendMessageRequestHeaderV2(
        producer_group="p",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
    )
    return await client.invoke(
        address, RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)
    )


async def pull(
    client: RemotingClient, address: str, offset: int, *, sys_flag: int = SUBSCRIPTION
) -> RemotingCommand:
    header = PullMessageRequestHeader(
        consumer_group="g",
        topic="T",
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=sys_flag,
        commit_offset=0,
        suspend_timeout_millis=10_000,
        sub_version=0,
        subscription="*",
    )
    return await client.invoke(
        address, RemotingCommand.request(RequestCode.PULL_MESSAGE, header), 15_000
    )


def bodies(answer: RemotingCommand) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer
    return [message.body for message in decode_all(answer.body or b"")]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_is_sent_is_read_and_a_pull_that_waits_is_answered_by_the_message(flush: str) -> None:
    async def scenario() -> None:
        async with cluster(ClusterSettings(broker={"flushDiskType": flush})) as (running, client):
            broker = running.broker_address
            answers = await asyncio.gather(
                *(send(client, broker, b"%d" % number) for number in range(20))
            )
            assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
            assert bodies(await pull(client, broker, 0)) == [b"%d" % number for number in range(20)]
            waiting = asyncio.create_task(pull(client, broker, 20, sys_flag=SUSPEND | SUBSCRIPTION))
            await send(client, broker, b"at last")
            assert bodies(await waiting) == [b"at last"]
            async with Admin(running.name_server_address) as admin:
                route = await admin.topics.route("T")
            assert [data.broker_name for data in route.queue_datas] == ["broker-a"]

    run(scenario)


def test_a_restart_keeps_messages_topics_and_offsets(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = ClusterSettings(
            store=tmp_path / "store",
            broker={"mappedFileSizeCommitLog": "1048576", "maxIndexNum": "1000"},
        )
        async with cluster(settings) as (running, client):
            for number in range(5):
                await send(client, running.broker_address, b"%d" % number)
            await pull(client, running.broker_address, 0)  # which makes the group known
            committed = UpdateConsumerOffsetRequestHeader(
                consumer_group="g", topic="T", queue_id=0, commit_offset=3
            )
            answer = await client.invoke(
                running.broker_address,
                RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, committed),
            )
            assert answer.code == ResponseCode.SUCCESS, answer
        assert not (tmp_path / "store" / "abort").exists()
        async with cluster(settings) as (running, client):
            assert bodies(await pull(client, running.broker_address, 3)) == [b"3", b"4"]
            answer = await send(client, running.broker_address, b"5")
            assert (answer.ext_fields or {})["queueOffset"] == "5"
        offsets = ConsumerOffsets.decode(
            (tmp_path / "store/config/consumerOffset.json").read_bytes()
        )
        assert offsets.offsets["T@g"] == {0: 3}

    run(scenario)


def test_prometheus_reads_what_the_broker_did() -> None:
    async def scenario() -> None:
        port = free_port("127.0.0.1")
        settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
        async with cluster(ClusterSettings(broker=settings)) as (running, client):
            for _ in range(3):
                await send(client, running.broker_address, b"x")
            await pull(client, running.broker_address, 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            text = (await reader.read()).decode()
            writer.close()
            values = {
                line.split("{")[0]: line.rsplit(" ", 1)[1]
                for line in text.splitlines()
                if 'topic="T"' in line
            }
            assert (
                float(values["rocketmq_messages_in_total"])
                == float(values["rocketmq_messages_out_total"])
                == 3
            )

    run(scenario)


def test_a_start_that_fails_names_the_part_and_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        port = free_port("127.0.0.1")
        with socket.create_server(("127.0.0.1", port - 2)):
            broken = EmbeddedCluster(ClusterSettings(store=tmp_path, broker_port=port))
            with pytest.raises(
                StartFailedError,
                match=(
                    rf"broker did not start: fast remoting server on port {port - 2} did not start"
                ),
            ):
                await broken.start()
        async with cluster(ClusterSettings(store=tmp_path, broker_port=port)) as (running, client):
            assert (await send(client, running.broker_address, b"x")).code == ResponseCode.SUCCESS

    run(scenario)


def test_two_brokers_do_not_open_one_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(ClusterSettings(store=tmp_path)):
            with pytest.raises(
                StartFailedError,
                match=r"store did not start: this process has the store .* open already",
            ):
                await EmbeddedCluster(ClusterSettings(store=tmp_path)).start()

    run(scenario)


@contextmanager
def orbitmq_up(*options: str) -> Iterator[dict[str, str]]:
    """`orbitmq up` in a process of its own, and what it says of itself."""
    command = [
        sys.executable,
        "-c",
        "from orbitmq.cli.main import main; main()",
        "up",
        "--ephemeral",
        "--json",
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_orbitmq_up_says_where_it_is_and_leaves_nothing_behind() -> None:
    with orbitmq_up() as found:
        host, port = found["broker"].split(":")
        socket.create_connection((host, int(port)), 5).close()
        assert Path(found["store"]).is_dir()
    assert not Path(found["store"]).exists()


def test_orbitmq_up_takes_the_port_that_it_is_given() -> None:
    port = free_port("127.0.0.1")
    with orbitmq_up("--broker-port", str(port)) as found:
        assert found["broker"] == f"127.0.0.1:{port}"
        assert found["nameServer"] != "127.0.0.1:9876"
