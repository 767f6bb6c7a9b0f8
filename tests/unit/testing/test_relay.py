"""The relay: bytes flow both ways until the link is cut, and then as the kind of cut demands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from orbitmq.testing.local_brokers import BEHIND_RELAYS
from orbitmq.testing.relay import LinkState, Relay
from support.common.free_ports import free_port
from support.common.waiting import until
from support.remoting.peers import run

HOST = "127.0.0.1"


class Echo:
    """An echo server behind a relay."""

    def __init__(self) -> None:
        self.port = free_port(HOST)
        self.relay = Relay(HOST, BEHIND_RELAYS, self.port)
        self.heard = bytearray()
        self.writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                self.heard += data
                writer.write(data)
        self.writers.discard(writer)
        writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.port)


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[Echo]:
    behind = Echo()
    server = await asyncio.start_server(behind.serve, BEHIND_RELAYS, behind.port)
    behind.relay.open()
    try:
        yield behind
    finally:
        await behind.relay.close()
        server.close()
        await until(lambda: not behind.writers, "the server lost its peers")


def test_everything_goes_through_and_an_end_is_passed_on() -> None:
    async def scenario() -> None:
        async with echo() as behind:
            reader, writer = await behind.connect()
            sent = bytes(range(256)) * 20_000
            writer.write(sent)
            writer.write_eof()
            assert await reader.read(-1) == sent
            writer.close()

    run(scenario)


def test_a_silent_cut_holds_bytes_and_new_connections_back_until_it_is_healed() -> None:
    async def scenario() -> None:
        async with echo() as behind:
            reader, writer = await behind.connect()
            writer.write(b"before")
            assert await reader.readexactly(6) == b"before"
            await behind.relay.set_state(LinkState.SILENT)
            writer.write(b"during")
            (
                newer_reader,
                newer_writer,
            ) = await behind.connect()  # the system completes it, but it is not served
            newer_writer.write(b"anybody")
            for served in behind.writers:
                served.write(b"from the server")
            for _ in range(200):
                await asyncio.sleep(0)
            assert bytes(behind.heard) == b"before"
            await behind.relay.set_state(LinkState.FREE)
            assert sorted(await reader.readexactly(len(b"from the serverduring"))) == sorted(
                b"from the serverduring"
            )
            assert await newer_reader.readexactly(7) == b"anybody"
            writer.close()
            newer_writer.close()

    run(scenario)


def test_a_cut_by_resets_breaks_connections_and_refuses_new_ones_until_it_is_healed() -> None:
    async def scenario() -> None:
        async with echo() as behind:
            reader, writer = await behind.connect()
            writer.write(b"before")
            assert await reader.readexactly(6) == b"before"
            await behind.relay.set_state(LinkState.RESET)
            with pytest.raises(ConnectionResetError):
                await reader.read()
            with pytest.raises(ConnectionRefusedError):
                await behind.connect()
            await behind.relay.set_state(LinkState.FREE)
            reader, writer = await behind.connect()
            writer.write(b"after")
            assert await reader.readexactly(5) == b"after"
            writer.close()

    run(scenario)


def test_nobody_behind_it_is_a_reset_and_a_closed_relay_refuses_also_when_the_way_changes() -> None:
    async def scenario() -> None:
        behind = Echo()
        behind.relay.open()
        reader, writer = await behind.connect()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        await behind.relay.close()
        await behind.relay.set_state(LinkState.SILENT)
        await behind.relay.set_state(LinkState.FREE)
        with pytest.raises(ConnectionRefusedError):
            await behind.connect()

    run(scenario)


def test_a_peer_that_breaks_off_is_gone_for_the_server_too() -> None:
    async def scenario() -> None:
        async with echo() as behind:
            _, writer = await behind.connect()
            await until(lambda: len(behind.writers) == 1, "the server has a peer")
            writer.transport.abort()
            await until(lambda: not behind.writers, "the server lost its peer")

    run(scenario)
