"""Limits on what all connections of a server hold together: unsent and unfinished bytes, TLS
handshakes; and which connection is closed above them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from orbitmq.common.errors import TooManyRequestsError
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.budgets import Budgets
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.remoting.freed_memory import PEAK_MIN, FreedMemory
from orbitmq.remoting.server import RemotingServer, ServerConfig
from orbitmq.remoting.tls import ClientTls, client_context
from orbitmq.remoting.tls_peers import GRACE_MS
from orbitmq.testing.manual_clock import ManualClock
from support.common.waiting import until
from support.remoting import peers
from support.remoting.peers import ECHO, SIZED, Witness, connected, request, run, serving

KIB = 1024
ANYBODY = client_context(ClientTls(enabled=True))
SMALL = ServerConfig(
    unsent_bytes_max=256 * KIB, send_buffer_bytes=16 * KIB, unsent_bytes_total_max=1024 * KIB
)


class Holder:
    """A connection without a socket."""

    def __init__(self, budgets: Budgets, *, backlog: int = 0, unfinished: int = 0) -> None:
        self.budgets, self.backlog, self.unfinished = budgets, backlog, unfinished
        self.problem: Exception | None = None
        budgets.unsent += backlog
        budgets.unfinished += unfinished

    def fail(self, problem: Exception) -> None:
        self.problem = problem
        self.budgets.unsent -= self.backlog
        self.budgets.unfinished -= self.unfinished
        self.backlog = self.unfinished = 0


def held(budgets: Budgets, **sizes: list[int]) -> list[Holder]:
    holders = [Holder(budgets, **{name: size}) for name, each in sizes.items() for size in each]
    budgets.join(lambda: holders)
    return holders


@pytest.mark.parametrize(
    ("name", "key"), [("backlog", "maxUnsentBytes"), ("unfinished", "maxPendingBytes")]
)
def test_the_greediest_are_closed_until_the_others_fit_and_are_told_size_limit_and_key(
    name: str, key: str
) -> None:
    budgets = Budgets(unsent_max=100, unfinished_max=100)
    holders = held(budgets, **{name: [30, 60, 10, 40]})
    budgets.relieve()
    assert [holder.problem is not None for holder in holders] == [False, True, False, False]
    assert "60 of the 140" in str(holders[1].problem)
    assert f"100 ({key})" in str(holders[1].problem)
    assert budgets.unsent + budgets.unfinished == 80


def test_of_connections_that_hold_the_same_the_oldest_is_closed() -> None:
    budgets = Budgets(unsent_max=100, unfinished_max=100)
    holders = held(budgets, backlog=[10, 50, 50, 50])
    budgets.relieve()
    assert [holder.problem is not None for holder in holders] == [False, True, True, False]


def test_no_connection_is_closed_at_the_limit() -> None:
    budgets = Budgets(unsent_max=100, unfinished_max=100)
    holders = held(budgets, backlog=[50, 50], unfinished=[100])
    budgets.relieve()
    assert [holder.problem for holder in holders] == [None] * 3


def test_one_who_holds_too_much_of_both_is_closed_once_for_both() -> None:
    budgets = Budgets(unsent_max=100, unfinished_max=100)
    holders = [
        Holder(budgets, backlog=90, unfinished=90),
        Holder(budgets, backlog=50, unfinished=50),
    ]
    budgets.join(lambda: holders)
    budgets.relieve()
    assert [holder.problem is not None for holder in holders] == [True, False]


# ---------------------------------------------------------------- unsent bytes


@contextlib.asynccontextmanager
async def deaf(
    server: RemotingServer, tls: ssl.SSLContext | None, questions: bytes
) -> AsyncIterator[peers.Peer]:
    """A peer that sends requests and does not read."""
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * KIB)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, server.address)
        reader, writer = await asyncio.open_connection(
            sock=raw, limit=KIB, ssl=tls, server_hostname="localhost" if tls is not None else None
        )
        writer.write(questions)
        try:
            yield peers.Peer(reader, writer)
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@pytest.mark.parametrize(
    "kinds", [(None,), (ANYBODY,), (None, ANYBODY)], ids=["plaintext", "tls", "both"]
)
def test_peers_that_never_read_are_closed_greediest_first_and_all_others_are_served(
    kinds: tuple[ssl.SSLContext | None, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        witness = Witness()
        async with (
            serving(SMALL, listeners=(witness,)) as server,
            contextlib.AsyncExitStack() as stack,
        ):
            other = await stack.enter_async_context(connected(server))
            assert (await other.ask(request(ECHO, 1))).opaque == 1
            for number in range(12):
                questions = b"".join(
                    request(SIZED, n, size=str(20_000 + 1000 * number)) for n in range(30)
                )
                await stack.enter_async_context(deaf(server, kinds[number % len(kinds)], questions))
            await until(lambda: len(witness.problems) >= 6, "that the greediest are closed")
            for n in range(20):
                assert (await other.ask(request(SIZED, n, size="1000"))).opaque == n
                assert server.budgets.unsent <= SMALL.unsent_bytes_total_max
            assert other.address not in {
                channel.remote_address for name, channel in witness.events if name == "exception"
            }
            assert all("maxUnsentBytes" in str(problem) for problem in witness.problems)
            assert server.budgets.unsent > 0
        assert (server.budgets.unsent, server.budgets.unfinished) == (0, 0)

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "connection closed peer=127.0.0.1:" in caplog.text
    assert "unsent bytes of all connections" in caplog.text


def test_the_peer_whose_answers_exceed_the_limit_is_closed_within_the_handler_that_writes_them_and_told_of_later() -> (
    None
):
    async def scenario() -> None:
        seen: list[tuple[bool, int]] = []
        witness = Witness()

        def flood(channel: Channel, question: RemotingCommand) -> RemotingCommand:
            for _ in range(40):
                channel.send(RemotingCommand(7, body=bytes(100_000), flag=2))
                seen.append((channel.is_open, server.budgets.unsent))
            return question.reply(0)

        async with serving(SMALL, {1: flood, ECHO: peers.echo}, listeners=(witness,)) as server:
            async with deaf(server, None, request(1, 1)) as peer:
                await until(lambda: bool(witness.problems))
                await peer.rest()
            assert all(is_open for is_open, _ in seen), (
                "the handler saw the end of the connection that it was writing to"
            )
            assert max(unsent for _, unsent in seen) <= SMALL.unsent_bytes_total_max
            assert server.budgets.unsent == 0
            assert witness.of(witness.channels[0]) == ["connect", "exception", "close"]

    run(scenario)


def test_what_peers_take_late_is_not_counted_any_more() -> None:
    async def scenario() -> None:
        async with serving(SMALL) as server, contextlib.AsyncExitStack() as stack:
            late = [
                await stack.enter_async_context(deaf(server, tls, request(SIZED, 1, size="400000")))
                for tls in (None, ANYBODY)
            ]
            await until(lambda: server.budgets.unsent > 500_000)
            for peer in late:
                assert len((await peer.receive()).body or b"") == 400_000
            server.tls.recounted()
            assert server.budgets.unsent == 0

    run(scenario)


def test_a_peer_that_takes_nothing_is_not_asked_either() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with (
            serving(SMALL, listeners=(witness,)) as server,
            deaf(server, None, request(SIZED, 1, size="900000")),
        ):
            await until(lambda: bool(witness.channels) and not witness.channels[0].link.reading)
            before = server.budgets.unsent
            with pytest.raises(TooManyRequestsError, match="does not read what was sent"):
                await witness.channels[0].invoke(RemotingCommand(40, body=bytes(100_000)), 1000)
            await asyncio.sleep(0)
            assert server.budgets.unsent <= before

    run(scenario)


# ---------------------------------------------------------------- shares of the server's time


@pytest.mark.parametrize("tls", [None, ANYBODY], ids=["plaintext", "tls"])
def test_a_peer_that_asks_for_much_at_once_does_not_hold_up_another(
    tls: ssl.SSLContext | None,
) -> None:
    async def scenario() -> None:
        handled: list[int] = []

        def counted(
            answer: Callable[[Channel, RemotingCommand], RemotingCommand],
        ) -> Callable[[Channel, RemotingCommand], RemotingCommand]:
            def handle(channel: Channel, question: RemotingCommand) -> RemotingCommand:
                handled.append(question.code)
                return answer(channel, question)

            return handle

        handlers = {SIZED: counted(peers.sized), ECHO: counted(peers.echo)}
        async with (
            serving(ServerConfig(), handlers) as server,
            connected(server, tls) as greedy,
            connected(server) as modest,
        ):
            for peer in (greedy, modest):  # whose replies are known by now
                assert (await peer.ask(request(ECHO, 0))).opaque == 0
            handled.clear()
            count = 100
            greedy.write(b"".join(request(SIZED, n, size="200000") for n in range(count)))
            await until(lambda: bool(handled))
            modest.write(request(ECHO, 1))
            assert (await modest.receive()).opaque == 1
            before = handled.index(ECHO)
            assert before < count // 2, f"{before} requests of the greedy peer were handled before"
            assert [(await greedy.receive()).opaque for _ in range(count)] == list(range(count))
            assert handled.count(SIZED) == count

    run(scenario)


def test_requests_that_wait_for_their_share_are_each_handled_once_for_many_peers() -> None:
    async def scenario() -> None:
        count = 40
        questions = b"".join(request(SIZED, n, size="150000") for n in range(count))
        async with serving() as server, contextlib.AsyncExitStack() as stack:
            crowd = [await stack.enter_async_context(connected(server)) for _ in range(12)]
            for peer in crowd:
                peer.write(questions)

            async def opaques(peer: peers.Peer) -> list[int]:
                return [(await peer.receive()).opaque for _ in range(count)]

            assert await asyncio.gather(*map(opaques, crowd)) == [list(range(count))] * len(crowd)
            assert (server.budgets.unsent, server.budgets.unfinished) == (0, 0)

    run(scenario)


# ---------------------------------------------------------------- unfinished bytes


def test_unfinished_bytes_of_plaintext_and_tls_peers_are_one_sum() -> None:
    async def scenario() -> None:
        witness = Witness()
        frame = request(ECHO, 1, body=bytes(500_000))
        async with serving(
            ServerConfig(unfinished_bytes_max=300_000), listeners=(witness,)
        ) as server:
            async with connected(server, ANYBODY) as first, connected(server) as second:
                first.write(frame[:100_000])
                await until(lambda: server.budgets.unfinished == 100_000)
                second.write(frame[:250_000])
                assert await second.ended()
                assert server.budgets.unfinished == 100_000
            await until(lambda: server.budgets.unfinished == 0)
            assert ["maxPendingBytes" in str(problem) for problem in witness.problems] == [True]

    run(scenario)


def test_preambles_that_never_end_count_as_unfinished_bytes() -> None:
    head = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11" + struct.pack(">H", 4000)

    async def scenario() -> None:
        witness = Witness()
        config = ServerConfig(unfinished_bytes_max=10_000)
        async with (
            serving(config, listeners=(witness,)) as server,
            contextlib.AsyncExitStack() as stack,
        ):
            stalled = [await stack.enter_async_context(connected(server)) for _ in range(3)]
            for number, peer in enumerate(stalled[:2]):
                peer.write(head + bytes(3500))
                expected = (number + 1) * (len(head) + 3500)
                await until(lambda expected=expected: server.budgets.unfinished == expected)  # type: ignore[misc]
            stalled[2].write(head + bytes(3500))
            assert await stalled[0].ended(), "the oldest of equals"
            assert server.budgets.unfinished == 2 * (len(head) + 3500)
            stalled[2].write(bytes(500) + request(ECHO, 7))
            assert (await stalled[2].receive()).opaque == 7
            assert server.budgets.unfinished == len(head) + 3500

    run(scenario)


# ---------------------------------------------------------------- TLS handshakes


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ANYBODY.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_the_oldest_stalled_handshake_ends_for_a_new_one_and_a_burst_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        dispatcher = RequestDispatcher(clock)
        dispatcher.register(ECHO, peers.echo)
        witness = Witness()
        server = RemotingServer(
            ServerConfig(handshakes_max=2, idle_ms_max=0), dispatcher, clock, (witness,)
        )
        server.start()
        try:
            async with contextlib.AsyncExitStack() as stack:
                stalled = []
                for number in range(3):
                    peer = await stack.enter_async_context(connected(server))
                    peer.write(client_hello())
                    stalled.append(peer)
                    await until(
                        lambda number=number: len(server.budgets.handshakes) == min(number + 1, 2)  # type: ignore[misc]
                    )
                assert await stalled[2].ended(), (
                    "all places are taken by handshakes that may still come to an end"
                )
                clock.advance_ms(GRACE_MS)
                good = await stack.enter_async_context(connected(server, ANYBODY))
                assert (await good.ask(request(ECHO, 1))).opaque == 1
                assert await stalled[0].rest() is not None
                await until(lambda: len(server.budgets.handshakes) == 1)
                assert [
                    channel.remote_address for name, channel in witness.events if name == "close"
                ] == [
                    stalled[2].address,
                    stalled[0].address,
                ]
        finally:
            await server.stop()
        assert not server.budgets.handshakes

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "why=2 handshakes are in progress, the most allowed (maxTlsHandshakes)" in caplog.text
    assert f"why=it was the oldest of 2 handshakes, {GRACE_MS} ms old" in caplog.text


def test_a_handshake_that_takes_too_long_ends_and_the_log_names_the_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with serving(ServerConfig(handshake_ms_max=50)) as server, connected(server) as peer:
            peer.write(client_hello())
            await peer.rest()
            await until(lambda: server.connections == 0)

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "(tlsHandshakeTimeoutMillis)" in caplog.text


def test_servers_that_share_budgets_share_the_places_of_handshakes_and_the_bytes() -> None:
    async def scenario() -> None:
        config = ServerConfig(handshakes_max=1, unfinished_bytes_max=100_000)
        budgets = Budgets(unsent_max=1 << 20, unfinished_max=config.unfinished_bytes_max)
        servers = [
            RemotingServer(config, RequestDispatcher(clock), clock, budgets=budgets)
            for clock in [ManualClock()] * 2
        ]
        for server in servers:
            server.start()
        try:
            async with connected(servers[0]) as first, connected(servers[1]) as second:
                first.write(client_hello())
                await until(lambda: len(budgets.handshakes) == 1)
                second.write(client_hello())
                assert await second.ended()
            async with connected(servers[0]) as first, connected(servers[1]) as second:
                part = request(ECHO, 1, body=bytes(200_000))
                first.write(part[:70_000])
                await until(lambda: budgets.unfinished == 70_000)
                second.write(part[:60_000])
                assert await first.ended()
                await until(lambda: budgets.unfinished == 60_000)
        finally:
            for server in servers:
                await server.stop()
        assert (budgets.unsent, budgets.unfinished) == (0, 0)

    run(scenario)


# ---------------------------------------------------------------- memory


def test_memory_is_given_back_when_most_of_what_a_crowd_held_is_gone() -> None:
    memory = FreedMemory()
    asked = [PEAK_MIN // 2, 0, 2 * PEAK_MIN, PEAK_MIN, PEAK_MIN // 4, 0, 0]
    assert [memory.is_worth_it(size) for size in asked] == [
        False,
        False,
        False,
        False,
        True,
        False,
        False,
    ]


def test_giving_memory_back_does_no_harm() -> None:
    memory: Any = FreedMemory()
    memory.give_back(2 * PEAK_MIN)
    memory.give_back(0)
