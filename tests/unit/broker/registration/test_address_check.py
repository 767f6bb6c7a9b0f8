"""The check of the address that clients are told: silence when it is the broker's, a warning that
says what to set when it is not.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.config.broker_config import load_broker
from orbitmq.broker.registration.address_check import AdvertisedAddressCheck
from orbitmq.common.clock import SystemClock
from orbitmq.protocol.bodies.nameserver import decode_kv_table
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import ClientConfig, RemotingClient
from support.broker.process import SMALL_FILES, send_request
from support.common.free_ports import free_port
from support.common.waiting import until
from support.remoting.peers import free_address, run


@asynccontextmanager
async def broker(folder: Path, **keys: str) -> AsyncIterator[Broker]:
    flags = (
        SMALL_FILES
        | {
            "listenPort": str(free_port("127.0.0.1")),
            "storePathRootDir": str(folder),
            "brokerName": "a",
        }
        | keys
    )
    running = Broker(load_broker(environment={}, flags=flags).settings)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


def check(
    address: str, boot_time: str = "1", *, speaks_plaintext: bool = True
) -> AdvertisedAddressCheck:
    return AdvertisedAddressCheck(
        address, ClientConfig(), SystemClock(), lambda: boot_time, speaks_plaintext=speaks_plaintext
    )


async def warnings(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    """What the check warned of; `count` of them are waited for."""

    def found() -> list[str]:
        return [
            record.getMessage()
            for record in caplog.records
            if "own_address_fails" in record.message
        ]

    await until(lambda: len(found()) >= count, f"{count} warnings")
    return found()


async def boot_time(address: str) -> str:
    """When the broker there says that it was started."""
    async with RemotingClient(ClientConfig(), SystemClock()) as client:
        answer = await client.invoke(
            address, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        )
    return decode_kv_table(answer.body or b"")["bootTimestamp"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_address_that_is_the_brokers_own_is_no_news(
    tmp_path: Path, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, brokerIP1=host) as running:
            address = "{}:{}".format(*running.address)
            assert address.startswith(f"{host}:")
            assert await check(address, await boot_time(address)).problem() is None
            assert await check(address, "1").problem() == "another program answers there"

    run(scenario)
    assert "own_address_fails" not in caplog.text


def test_a_broker_that_speaks_tls_only_is_not_asked_who_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker(
            tmp_path, **{"tls.server.mode": "enforcing", "tls.test.mode.enable": "true"}
        ) as running:
            address = "{}:{}".format(*running.address)
            assert await check(address, speaks_plaintext=False).problem() is None
            assert await check(address, speaks_plaintext=True).problem() is not None

    run(scenario)
    assert "own_address_fails" not in caplog.text


def test_a_name_of_this_host_is_what_clients_are_told_and_records_have_its_ipv4_address(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, brokerIP1="localhost") as running:
            address = "{}:{}".format(*running.address)
            async with RemotingClient(ClientConfig(), SystemClock()) as client:
                answer = await client.invoke(address, send_request("T", b"x"))
            assert answer.ext_fields is not None
            assert answer.ext_fields["msgId"].startswith("7F000001")

    run(scenario)


def test_an_address_where_nobody_listens_is_warned_of_and_the_broker_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, brokerIP1="127.0.0.2", bindAddress="127.0.0.1") as running:
            (warning,) = await warnings(caplog, 1)
            port = running.address[1]
            assert (
                f"address=127.0.0.2:{port} why='cannot connect to 127.0.0.2:{port}: Connection"
                " refused" in warning
            )
            assert "set brokerIP1" in warning
            assert "bindAddress" in warning
            assert "listenPort" in warning
            socket.create_connection(("127.0.0.1", port)).close()

    run(scenario)


def test_another_broker_that_answers_there_is_told_from_this_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker(
            tmp_path / "other", bindAddress="127.0.0.2", brokerIP1="127.0.0.2"
        ) as other:
            port = str(other.address[1])
            async with broker(
                tmp_path / "this", bindAddress="127.0.0.1", brokerIP1="127.0.0.2", listenPort=port
            ):
                assert "why='another program answers there'" in (await warnings(caplog, 1))[0]

    run(scenario)


@pytest.mark.parametrize("speaks_plaintext", [True, False])
def test_what_goes_wrong_is_said(speaks_plaintext: bool) -> None:
    async def scenario() -> None:
        why = await check(free_address(), speaks_plaintext=speaks_plaintext).problem()
        assert "127.0.0.1" in (why or "")

    run(scenario)


def test_a_program_that_is_no_broker_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            assert "closed before the response came" in (
                await check(f"127.0.0.1:{port}").problem() or ""
            )

    run(scenario)


def test_an_address_that_is_none_is_told() -> None:
    async def scenario() -> None:
        assert await check("127.0.0.1:0").problem() is not None

    run(scenario)


def test_a_broker_stops_while_the_check_is_under_way() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            waiting = check(f"127.0.0.1:{silent.getsockname()[1]}")
            silent.setblocking(False)
            waiting.start()
            peer, _ = await asyncio.get_running_loop().sock_accept(silent)
            with peer:
                peer.setblocking(False)
                await waiting.stop()
                while await asyncio.get_running_loop().sock_recv(peer, 1 << 16):
                    pass  # the request, then the end: the connection of the check is closed

    run(scenario)
