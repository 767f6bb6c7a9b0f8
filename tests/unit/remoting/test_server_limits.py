"""Every limit of a server: what one peer, or all together, may cost, without cost to others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orbitmq.common.clock import SystemClock
from orbitmq.protocol import frame
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting import server as server_module
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.remoting.server import RemotingServer, ServerConfig
from support.common.waiting import until
from support.remoting import peers
from support.remoting.peers import ECHO, SIZED, connected, request, run, serving

KIB = 1024
SMALL = ServerConfig(unsent_bytes_max=256 * KIB, send_buffer_bytes=16 * KIB)


def links(server: RemotingServer) -> list[Any]:
    """Return the plaintext connections of a server, oldest first."""
    assert server._sockets is not None
    return list(server._sockets.links.values())


@contextlib.asynccontextmanager
async def deaf(server: RemotingServer, questions: bytes) -> AsyncIterator[socket.socket]:
    """A peer with a small window that sends requests, and reads nothing unless the test does."""
    loop = asyncio.get_running_loop()
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * KIB)
        peer.connect(server.address)
        peer.setblocking(False)
        sending = loop.create_task(loop.sock_sendall(peer, questions))
        yield peer
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def read(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await asyncio.get_running_loop().sock_recv(peer, size - len(data))
        assert piece, f"the connection ended after {len(data)} of {size} bytes"
        data += piece
    return data


async def read_command(peer: socket.socket) -> RemotingCommand:
    head = await read(peer, 4)
    command: RemotingCommand = frame.decode_one(
        head + await read(peer, struct.unpack(">i", head)[0])
    )
    return command


def test_a_peer_that_does_not_read_is_not_read_and_gets_every_answer_when_it_does() -> None:
    asked, size = 300, 10_000

    async def scenario() -> None:
        handled: list[int] = []

        def counted(channel: Channel, question: RemotingCommand) -> RemotingCommand:
            handled.append(question.opaque)
            return peers.sized(channel, question)

        async with (
            serving(SMALL, {SIZED: counted, ECHO: peers.echo}) as server,
            connected(server) as other,
        ):
            assert (await other.ask(request(ECHO, 0))).opaque == 0
            questions = b"".join(request(SIZED, n, size=str(size)) for n in range(asked))
            async with deaf(server, questions) as peer:
                await until(
                    lambda: len(links(server)) == 2 and not links(server)[1].reading,
                    "that reading stops",
                )
                link, before = links(server)[1], len(handled)
                assert before < asked
                assert SMALL.unsent_bytes_max < link.unsent <= 2 * SMALL.unsent_bytes_max + 2 * size
                for n in range(20):
                    assert (await other.ask(request(ECHO, n))).opaque == n
                assert len(handled) == before, "it was served although it takes nothing"
                for n in range(asked):
                    answer = await read_command(peer)
                    assert (answer.opaque, len(answer.body or b"")) == (n, size)
                assert handled == list(range(asked))
                assert link.reading
                assert link.unsent == 0

    run(scenario)


def test_one_answer_above_the_limit_goes_out_and_the_next_request_is_served_when_it_is_taken() -> (
    None
):
    async def scenario() -> None:
        async with serving(SMALL) as server:
            questions = request(SIZED, 1, size="3000000") + request(SIZED, 2, size="3000000")
            async with deaf(server, questions) as peer:
                await until(
                    lambda: len(links(server)) == 1 and not links(server)[0].reading,
                    "that reading stops",
                )
                assert links(server)[0].unsent < 3_000_100
                assert [(await read_command(peer)).opaque for _ in range(2)] == [1, 2]

    run(scenario)


def test_a_peer_that_stops_being_read_within_an_iteration_is_not_mistaken_for_one_that_ended() -> (
    None
):
    """Writes caused by another peer's request may stop reading a link in an iteration in which it
    is readable too.
    """

    async def scenario() -> None:
        known: list[Channel] = []

        def flood(_: Channel, question: RemotingCommand) -> RemotingCommand:
            for channel in known:
                channel.send(RemotingCommand(7, body=bytes(2_000_000), flag=2))
            return question.reply(0)

        def remember(channel: Channel, question: RemotingCommand) -> RemotingCommand:
            known.append(channel)
            return question.reply(0)

        async with serving(SMALL, {1: flood, 2: remember, ECHO: peers.echo}) as server:
            victims = [socket.create_connection(server.address) for _ in range(4)]
            attacker = socket.create_connection(server.address)
            try:
                for victim in victims:
                    victim.sendall(request(2, 1))
                await until(lambda: len(known) == 4)
                for peer, data in (
                    (attacker, request(1, 1)),
                    *((victim, request(ECHO, 2)) for victim in victims),
                ):
                    peer.sendall(data)  # no await: all are ready in the same iteration
                await until(
                    lambda: sum(not link.reading for link in links(server)) > 0,
                    "that reading stops",
                )
                await asyncio.sleep(0.02)
                assert server.connections == 5
                for victim in victims:
                    victim.setblocking(False)
                    seen = [(await read_command(victim)).opaque for _ in range(3)]
                    assert seen == [1, 0, 2]
            finally:
                for peer in (attacker, *victims):
                    peer.close()

    run(scenario)


def test_the_one_that_holds_most_unfinished_bytes_is_closed_when_all_hold_too_many() -> None:
    async def scenario() -> None:
        witness = peers.Witness()
        config = ServerConfig(unfinished_bytes_max=300_000)
        async with (
            serving(config, listeners=(witness,)) as server,
            connected(server) as modest,
            connected(server) as hoarder,
        ):
            big = request(ECHO, 1, body=bytes(1_000_000))
            hoarder.write(big[:290_000])
            await until(lambda: server.connections == 2)
            await asyncio.sleep(0.02)
            whole = request(ECHO, 2, body=bytes(50_000))
            modest.write(whole[:40_000])
            assert await hoarder.ended()
            assert "unfinished incoming bytes of all connections" in str(witness.problems)
            assert (await modest.ask(whole[40_000:])).opaque == 2
            assert server.connections == 1
        assert server._sockets is None

    run(scenario)


def test_what_a_closed_peer_left_unfinished_is_not_counted_any_more() -> None:
    async def scenario() -> None:
        async with serving(ServerConfig(unfinished_bytes_max=300_000)) as server:
            for _ in range(5):
                async with connected(server) as peer:
                    peer.write(request(ECHO, 1, body=bytes(250_000))[:200_000])
                    await until(lambda: server.connections == 1)
                    await asyncio.sleep(0.01)
                await until(lambda: server.connections == 0)
            async with connected(server) as peer:
                assert (await peer.ask(request(ECHO, 1, body=bytes(250_000)))).opaque == 1

    run(scenario)


def test_peers_beyond_the_limit_are_refused_and_counted_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.05)

    async def scenario() -> None:
        async with (
            serving(ServerConfig(connections_max=2)) as server,
            connected(server) as one,
            connected(server) as two,
        ):
            await until(lambda: server.connections == 2)
            for _ in range(10):
                async with connected(server) as third:
                    assert await third.ended()
            assert (await one.ask(request(ECHO, 1))).opaque == 1
            two.writer.close()
            await until(lambda: server.connections == 1)
            async with connected(server) as third:
                assert (await third.ask(request(ECHO, 1))).opaque == 1
            await until(lambda: "connections refused" in caplog.text)
            await until(lambda: refused() == 10, "that all refusals are logged")

    def refused() -> int:
        return sum(
            int(record.getMessage().partition("count=")[2].split()[0]) for record in caplog.records
        )

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert refused() == 10
    assert len(caplog.records) <= 10


def test_idle_peers_are_closed_and_busy_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.02)

    async def scenario() -> None:
        witness = peers.Witness()
        async with (
            serving(ServerConfig(idle_ms_max=5_000), listeners=(witness,)) as server,
            connected(server) as idle,
            connected(server) as busy,
        ):
            ending = asyncio.create_task(idle.ended())
            while not ending.done():
                assert (await busy.ask(request(ECHO, 1))).opaque == 1
                await asyncio.sleep(0.02)
            assert await ending
            assert witness.of(witness.channels[0]) == ["connect", "idle", "close"]
            assert witness.of(witness.channels[1]) == ["connect"]
            assert witness.channels[0].close_reason == "idle for 5 s"

    run(scenario)


def test_a_crowd_of_idle_peers_is_closed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 3600)

    async def scenario() -> None:
        async with (
            serving(ServerConfig(idle_ms_max=1)) as server,
            contextlib.AsyncExitStack() as crowd,
        ):
            for _ in range(120):
                await crowd.enter_async_context(connected(server))
            await until(lambda: server.connections == 120)
            await asyncio.sleep(0.01)
            left = [server.connections for _ in server._close_idle()]
            assert left == [
                120 - server_module.CLOSED_PER_SLICE,
                120 - 2 * server_module.CLOSED_PER_SLICE,
            ]
            assert server.connections == 0

    run(scenario)


def test_zero_means_that_no_peer_is_ever_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.01)

    async def scenario() -> None:
        async with serving(ServerConfig(idle_ms_max=0)) as server, connected(server) as peer:
            assert await peer.is_silent(0.1)
            assert server.connections == 1

    run(scenario)


def test_a_peer_that_takes_nothing_is_idle_even_while_it_is_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.02)

    async def scenario() -> None:
        witness = peers.Witness()
        config = ServerConfig(
            idle_ms_max=300, unsent_bytes_max=64 * KIB, send_buffer_bytes=16 * KIB
        )
        async with (
            serving(config, listeners=(witness,)) as server,
            deaf(server, request(SIZED, 1, size="4000000")),
        ):
            await until(lambda: bool(witness.channels) and not witness.channels[0].link.reading)
            while witness.channels[0].is_open:
                witness.channels[0].send(RemotingCommand(1, flag=2))
                await asyncio.sleep(0.01)
            assert witness.of(witness.channels[0]) == ["connect", "idle", "close"]

    run(scenario)


def test_two_sides_that_both_send_much_do_not_wait_for_each_other() -> None:
    async def scenario() -> None:
        config = ServerConfig(
            unsent_bytes_max=256 * KIB, send_buffer_bytes=64 * KIB, receive_buffer_bytes=64 * KIB
        )
        async with (
            serving(config) as server,
            RemotingClient(ClientConfig(unsent_bytes_max=256 * KIB), SystemClock()) as client,
        ):
            body = bytes(1_000_000)
            calls = [
                client.invoke(
                    peers.address(server), RemotingCommand(ECHO, body=body), timeout_ms=90_000
                )
                for _ in range(40)
            ]
            answers = await asyncio.gather(*calls)
            assert all(answer.body == body for answer in answers)

    run(scenario)


OUT_OF_DESCRIPTORS = """
import asyncio, logging, resource, socket, sys
from support.common.waiting import until
from support.remoting import peers
from orbitmq.remoting import server as server_module

logging.basicConfig(stream=sys.stdout, level=logging.ERROR, format="%(message)s")
server_module.ACCEPT_PAUSE_SECONDS = 0.2

async def scenario():
    async with peers.serving() as server, peers.connected(server) as early:
        assert (await early.ask(peers.request(peers.ECHO, 1))).opaque == 1
        waiting = [socket.create_connection(server.address) for _ in range(10)]
        for peer in waiting:
            peer.sendall(peers.request(peers.ECHO, 5))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(peer.fileno() for peer in waiting) + 1, 4096))
        for n in range(20):  # connected peers are served while no new one can be
            assert (await early.ask(peers.request(peers.ECHO, n))).opaque == n
            await asyncio.sleep(0.02)
        assert server.connections == 1, server.connections
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        await until(lambda: server.connections == 11, "everybody who waited is accepted")
        for peer in waiting:
            peer.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(peer, 100)
            peer.close()

peers.run(scenario)
print("served all")
"""


def test_without_descriptors_accepting_pauses_and_goes_on_when_there_are_some() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_DESCRIPTORS],
        env={
            "PYTHONPATH": ":".join(path for path in sys.path if path),
            "ORBITMQ_PURE": peers.pure_mode(),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "served all"
    pauses = [line for line in lines if "accepting pauses" in line]
    assert 1 <= len(pauses) <= 5, lines  # not one per iteration
    assert "ulimit -n" in pauses[0]
