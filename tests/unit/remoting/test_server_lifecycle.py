"""Connections begin and end: events of listeners, handlers that close, and what is left after a
stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
import weakref

import pytest

from orbitmq.common.clock import SystemClock
from orbitmq.common.errors import ConfigurationError, RemoteUnavailableError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.versions import CURRENT_VERSION
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.remoting.server import RemotingServer, ServerConfig
from orbitmq.remoting.tls import ClientTls, client_context
from support.common.waiting import until
from support.remoting import peers
from support.remoting.peers import ECHO, Witness, connected, request, run, serving


def test_listeners_are_told_of_each_connection_once() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server:
            async with connected(server) as peer:
                await peer.ask(request(ECHO, 1))
                assert witness.of(witness.channels[0]) == ["connect"]
                assert witness.channels[0].remote_address == peer.address
                peer.writer.close()
                await until(lambda: server.connections == 0)
            async with connected(server) as peer:
                await peer.ask(request(ECHO, 1))
        assert [witness.of(channel) for channel in witness.channels] == [["connect", "close"]] * 2
        assert not any(channel.is_open for channel in witness.channels)

    run(scenario)


def test_a_peer_that_resets_its_connection_is_told_as_closed() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server:
            for data in (b"", request(ECHO, 1)):
                with socket.create_connection(server.address) as peer:
                    peer.sendall(data)
                    await asyncio.sleep(0.02)
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                await until(lambda: server.connections == 0)
        for channel in witness.channels:
            assert [name for name in witness.of(channel) if name != "exception"] == [
                "connect",
                "close",
            ]

    run(scenario)


@pytest.mark.parametrize(
    "tls", [None, client_context(ClientTls(enabled=True))], ids=["plain", "tls"]
)
def test_a_server_that_takes_no_more_work_still_answers_what_it_took(
    tls: ssl.SSLContext | None,
) -> None:
    async def scenario() -> None:
        taken: list[tuple[Channel, RemotingCommand]] = []

        def later(channel: Channel, request: RemotingCommand) -> None:
            taken.append((channel, request))

        async with serving(handlers={ECHO: later}) as server, connected(server, tls) as peer:
            peer.write(request(ECHO, 1))
            await until(lambda: len(taken) == 1)
            await server.quiesce()
            await server.quiesce()
            peer.write(request(ECHO, 2))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(server.address)
            channel, asked = taken[0]
            channel.send(asked.reply(0))
            assert (await peer.receive()).opaque == 1
            await server.stop()
            assert await peer.ended()
            assert len(taken) == 1

    run(scenario)


def test_connections_that_come_while_peers_are_told_to_go_away_are_taken() -> None:
    async def scenario() -> None:
        async with serving(ServerConfig(drain_seconds=600)) as server, connected(server) as peer:
            stopping = asyncio.create_task(server.stop())
            await asyncio.sleep(0)
            assert (
                await peer.ask(request(ECHO, 1, version=CURRENT_VERSION))
            ).code == ResponseCode.GO_AWAY
            async with connected(server) as late:
                assert (await late.ask(request(ECHO, 1, body=b"x"))).body == b"x", (
                    "an old client does not know what GO_AWAY means"
                )
                stopping.cancel()
                server.config = ServerConfig()
                await server.stop()
                assert await late.ended()

    run(scenario)


def test_a_failing_listener_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Witness):
        def on_connect(self, channel: Channel) -> None:
            raise RuntimeError("connect")

        def on_close(self, channel: Channel) -> None:
            raise RuntimeError("close")

        def on_exception(self, channel: Channel, problem: BaseException) -> None:
            raise RuntimeError("exception")

    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(Broken(), witness)) as server, connected(server) as good:
            async with connected(server) as bad:
                bad.write(b"\xff" * 10)
                assert await bad.ended()
            assert (await good.ask(request(ECHO, 1))).opaque == 1
            assert [witness.of(channel) for channel in witness.channels] == [
                ["connect"],
                ["connect", "exception", "close"],
            ]

    with caplog.at_level(logging.CRITICAL):
        run(scenario)


def test_a_listener_may_refuse_a_peer_by_closing_it() -> None:
    class Refusing(Witness):
        def on_connect(self, channel: Channel) -> None:
            super().on_connect(channel)
            channel.close("not today")

    async def scenario() -> None:
        refusing = Refusing()
        async with serving(listeners=(refusing,)) as server, connected(server) as peer:
            assert await peer.ended()
            assert refusing.of(refusing.channels[0]) == ["connect", "close"]
            assert server.connections == 0

    run(scenario)


# ---------------------------------------------------------------- handlers that close, within the
# iteration


def test_a_handler_that_closes_its_own_channel_ends_it_and_nothing_behind_is_handled() -> None:
    async def scenario() -> None:
        handled: list[int] = []

        def closing(channel: Channel, question: RemotingCommand) -> RemotingCommand:
            handled.append(question.opaque)
            channel.close("enough")
            return question.reply(0)

        witness = Witness()
        for data in (request(1, 1) + request(1, 2), request(1, 1)[:20]):
            handled.clear()
            async with (
                serving(handlers={1: closing, ECHO: peers.echo}, listeners=(witness,)) as server,
                connected(server) as other,
            ):
                async with connected(server) as peer:
                    peer.write(data)
                    if len(data) == 20:  # in pieces, so that the pending bytes are consumed
                        await asyncio.sleep(0.01)
                        peer.write(request(1, 1)[20:] + request(1, 2))
                    assert await peer.ended()
                assert handled == [1], (
                    "a request was handled on a channel whose end had been reported"
                )
                assert (await other.ask(request(ECHO, 3))).opaque == 3

    run(scenario)


def test_a_handler_may_close_others_that_are_ready_in_the_same_turn() -> None:
    async def scenario() -> None:
        witness = Witness()

        def cull(channel: Channel, question: RemotingCommand) -> RemotingCommand:
            for other in witness.channels:
                if other is not channel and other.is_open:
                    other.close("culled")
            return question.reply(0)

        async with serving(handlers={1: cull, ECHO: peers.echo}, listeners=(witness,)) as server:
            sockets = [socket.create_connection(server.address) for _ in range(30)]
            try:
                await until(lambda: server.connections == 30)
                # no await between: one iteration sees them all
                for number, peer in enumerate(sockets):
                    peer.sendall(request(1 if number % 10 == 0 else ECHO, number))
                await until(lambda: server.connections <= 1, "that one is left")
                assert server.connections == 1
            finally:
                for peer in sockets:
                    peer.close()
        assert all(witness.of(channel) == ["connect", "close"] for channel in witness.channels)

    run(scenario)


def test_a_descriptor_that_is_reused_within_an_iteration_serves_only_its_new_peer() -> None:
    """Close many in an iteration in which new peers wait: they get the same descriptors while old
    events are still in the list.
    """

    async def scenario() -> None:
        witness = Witness()
        served: list[tuple[str, int]] = []

        def cull(channel: Channel, question: RemotingCommand) -> RemotingCommand:
            for other in witness.channels:
                if other is not channel and other.is_open:
                    other.close("culled")
            return question.reply(0)

        def note(channel: Channel, question: RemotingCommand) -> RemotingCommand:
            served.append((channel.remote_address, question.opaque))
            return question.reply(0, body=b"for " + channel.remote_address.encode())

        async with serving(handlers={1: cull, ECHO: note}, listeners=(witness,)) as server:
            for round_number in range(20):
                old = [socket.create_connection(server.address) for _ in range(40)]
                await until(lambda: server.connections == 40)
                new: list[socket.socket] = []
                old[round_number].sendall(request(1, 0))
                for number, peer in enumerate(old):
                    if number != round_number:
                        peer.sendall(request(ECHO, 1000 + number))
                    if number % 4 == 0:
                        new.append(socket.create_connection(server.address))
                await until(lambda: len(witness.channels) % 50 == 0)
                opened = {f"127.0.0.1:{peer.getsockname()[1]}": peer for peer in new}
                open_still = {
                    channel.remote_address: channel
                    for channel in witness.channels
                    if channel.is_open
                }
                for name, peer in opened.items():
                    if name in open_still:
                        peer.sendall(request(ECHO, 7))
                        peer.setblocking(False)
                        got = await asyncio.get_running_loop().sock_recv(peer, 4096)
                        assert b"for " + name.encode() in got
                for peer in (*old, *new):
                    peer.close()
                await until(lambda: server.connections == 0)
        assert all(witness.of(channel) == ["connect", "close"] for channel in witness.channels)
        assert {opaque for _, opaque in served} >= {7}

    run(scenario)


def test_nothing_of_a_closed_connection_is_kept() -> None:
    async def scenario() -> None:
        class Seen(Witness):
            def on_connect(self, channel: Channel) -> None:
                refs.append(weakref.ref(channel))

            def on_close(self, channel: Channel) -> None: ...

        refs: list[weakref.ref[Channel]] = []
        async with serving(listeners=(Seen(),)) as server:
            for _ in range(3):
                async with connected(server) as peer:
                    assert (await peer.ask(request(ECHO, 1, body=bytes(100_000)))).opaque == 1
                    peer.write(request(ECHO, 2, body=bytes(100_000))[:50_000])
                    await asyncio.sleep(0.01)
                await until(lambda: server.connections == 0)
            gc.collect()
            assert [ref() for ref in refs] == [None] * 3

    run(scenario)


def test_a_failing_close_handler_keeps_no_other_peer_from_its_response(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The waiters of a closing connection are called in the middle of sending all replies."""

    async def scenario() -> None:
        witness = Witness()

        def broken(_: object) -> None:
            raise RuntimeError("a waiter fails")

        def wait_for_all(_: Channel, question: RemotingCommand) -> RemotingCommand:
            for channel in witness.channels:
                with contextlib.suppress(RemoteUnavailableError):
                    server.endpoint.invoke_callback(channel, RemotingCommand(9), 1000, broken)
            return question.reply(0)

        async with serving(
            handlers={1: wait_for_all, ECHO: peers.echo}, listeners=(witness,)
        ) as server:
            for _ in range(5):
                async with connected(server) as first, connected(server) as last:
                    with socket.create_connection(server.address) as dying:
                        await until(lambda: server.connections == 3)
                        dying.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                        dying.sendall(request(ECHO, 5, body=bytes(10)))
                        first.write(request(1, 1))
                        last.write(request(ECHO, 2))
                    codes = {(await first.receive()).code for _ in range(2)}
                    assert codes == {0, 9}
                    assert {(await last.receive()).code for _ in range(2)} == {0, 9}
                    last.write(request(ECHO, 3))
                    assert (await last.receive()).opaque == 3
                await until(lambda: server.connections == 0)
                witness.events.clear()

    with caplog.at_level(logging.CRITICAL):
        run(scenario)


# ---------------------------------------------------------------- stop


def test_stop_sends_what_is_written_closes_everybody_and_frees_the_port() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server:
            readers = [await asyncio.open_connection(*server.address) for _ in range(5)]
            await until(lambda: server.connections == 5)
            for channel in witness.channels:
                channel.send(RemotingCommand(77, flag=2))
            await server.stop()
            await server.stop()
            assert server.connections == 0
            for reader, writer in readers:
                assert (await peers.Peer(reader, writer).receive()).code == 77
                assert await reader.read() == b""
                writer.close()
            assert {channel.close_reason for channel in witness.channels} == {"the server stops"}
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*server.address)
            again = RemotingServer(
                ServerConfig(port=server.address[1]),
                RequestDispatcher(SystemClock()),
                SystemClock(),
            )
            again.start()
            await again.stop()
        assert all(witness.of(channel) == ["connect", "close"] for channel in witness.channels)

    run(scenario)


def test_stop_while_peers_connect_and_ask_leaves_nothing() -> None:
    async def scenario() -> None:
        for _ in range(10):
            sockets: list[socket.socket] = []
            async with serving() as server:
                for number in range(20):
                    peer = socket.create_connection(server.address)
                    peer.sendall(b"\x16\x03\x01" if number % 3 == 0 else request(ECHO, number))
                    sockets.append(peer)
                await asyncio.sleep(0.001 if _ % 2 else 0)
            for peer in sockets:
                peer.close()
            assert server.connections == 0

    run(scenario)


def test_a_port_in_use_is_told_with_what_to_do() -> None:
    async def scenario() -> None:
        async with serving() as server:
            other = RemotingServer(
                ServerConfig(port=server.address[1]),
                RequestDispatcher(SystemClock()),
                SystemClock(),
            )
            with pytest.raises(
                ConfigurationError,
                match=r"another program listens there; stop it, or choose another port \(listenPort\)",
            ):
                other.start()
            with pytest.raises(ConfigurationError, match="set bindAddress to one that it has"):
                RemotingServer(
                    ServerConfig(bind_address="203.0.113.1"),
                    RequestDispatcher(SystemClock()),
                    SystemClock(),
                ).start()

    run(scenario)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs a machine with IPv6 and IPv4")
@pytest.mark.parametrize("everywhere", ["", "::", "*"])
def test_every_interface_means_both_families(everywhere: str) -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(ServerConfig(bind_address=everywhere), listeners=(witness,)) as server:
            port = server.address[1]
            for host in ("127.0.0.1", "::1"):
                reader, writer = await asyncio.open_connection(host, port)
                peer = peers.Peer(reader, writer)
                assert (await peer.ask(request(ECHO, 1))).opaque == 1
                writer.close()
                await writer.wait_closed()
        assert [channel.remote_address.rpartition(":")[0] for channel in witness.channels] == [
            "127.0.0.1",
            "[::1]",
        ]

    run(scenario)
