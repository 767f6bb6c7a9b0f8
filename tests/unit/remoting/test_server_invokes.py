"""A server sends requests to its clients, on the connections that they opened."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq.common.errors import RemoteTimeoutError, RemoteUnavailableError, TooManyRequestsError
from orbitmq.protocol import frame
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting import endpoint as endpoint_module
from orbitmq.remoting import server as server_module
from orbitmq.remoting.server import ServerConfig
from support.common.waiting import until
from support.remoting import peers
from support.remoting.peers import ECHO, Witness, connected, request, run, serving


def test_both_directions_share_one_connection_and_its_opaques_do_not_meet() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server, connected(server) as peer:
            assert (await peer.ask(request(ECHO, 0))).opaque == 0
            asking = [
                asyncio.create_task(
                    witness.channels[0].invoke(RemotingCommand(40, body=bytes([n])), 5000)
                )
                for n in range(3)
            ]
            asked = [await peer.receive() for _ in range(3)]
            assert [command.is_response for command in asked] == [False] * 3
            assert len({command.opaque for command in asked}) == 3
            peer.write(
                request(ECHO, asked[0].opaque, body=b"mine")
            )  # the same opaque, from the other side
            mine = await peer.receive()
            assert (mine.is_response, mine.body) == (True, b"mine")
            for command in reversed(asked):
                peer.write(frame.encode(command.reply(0, body=b"re:" + (command.body or b""))))
            assert [(await task).body for task in asking] == [b"re:\x00", b"re:\x01", b"re:\x02"]

    run(scenario)


def test_a_client_that_does_not_answer_is_a_timeout_that_names_it_and_a_late_answer_is_dropped() -> (
    None
):
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server, connected(server) as peer:
            await peer.ask(request(ECHO, 0))
            with pytest.raises(
                RemoteTimeoutError,
                match=rf"{peer.address} did not respond to request 40 within 20 ms",
            ):
                await witness.channels[0].invoke(RemotingCommand(40), 20)
            peer.write(frame.encode((await peer.receive()).reply(0)))
            assert (await peer.ask(request(ECHO, 1))).opaque == 1
            assert len(server.endpoint._in_flight) == 0

    run(scenario)


def test_when_the_connection_dies_the_waiting_calls_fail_at_once() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with (
            serving(listeners=(witness,)) as server,
            connected(server) as peer,
            connected(server) as other,
        ):
            await peer.ask(request(ECHO, 0))
            await other.ask(request(ECHO, 0))
            waiting = [
                asyncio.create_task(channel.invoke(RemotingCommand(40), 60_000))
                for channel in witness.channels
                for _ in range(3)
            ]
            await peer.receive()
            peer.writer.close()
            results = await asyncio.gather(*waiting[:3], return_exceptions=True)
            assert all(
                isinstance(result, RemoteUnavailableError)
                and "closed before the response came" in str(result)
                for result in results
            )
            assert not any(task.done() for task in waiting[3:])
            with pytest.raises(RemoteUnavailableError, match="is closed; nothing was sent"):
                await witness.channels[0].invoke(RemotingCommand(40), 1000)
            with pytest.raises(RemoteUnavailableError, match="is closed; nothing was sent"):
                witness.channels[0].invoke_oneway(RemotingCommand(40))
            await server.stop()
            rest = await asyncio.gather(*waiting[3:], return_exceptions=True)
            assert all(
                isinstance(result, RemoteUnavailableError) and "the server stops" in str(result)
                for result in rest
            )

    run(scenario)


def test_permits_run_out_and_come_back() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with (
            serving(ServerConfig(invoke_max=2), listeners=(witness,)) as server,
            connected(server) as peer,
        ):
            await peer.ask(request(ECHO, 0))
            channel = witness.channels[0]
            waiting = [
                asyncio.create_task(channel.invoke(RemotingCommand(40), 60_000)) for _ in range(2)
            ]
            asked = [await peer.receive() for _ in range(2)]
            with pytest.raises(TooManyRequestsError, match="nothing was sent"):
                await channel.invoke(RemotingCommand(40), 1000)
            channel.invoke_oneway(RemotingCommand(41))
            assert (await peer.receive()).is_oneway
            peer.write(frame.encode(asked[0].reply(0)))
            await waiting[0]
            again = asyncio.create_task(channel.invoke(RemotingCommand(42), 60_000))
            assert (await peer.receive()).code == 42
            waiting[1].cancel()
            await asyncio.gather(waiting[1], return_exceptions=True)
            assert len(server.endpoint._in_flight) == 1, (
                "a caller that was cancelled holds its permit"
            )
            again.cancel()
            await asyncio.gather(again, return_exceptions=True)

    run(scenario)


def test_an_answer_counts_only_on_the_connection_that_was_asked() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with (
            serving(listeners=(witness,)) as server,
            connected(server) as peer,
            connected(server) as forger,
        ):
            await peer.ask(request(ECHO, 0))
            await forger.ask(request(ECHO, 0))
            asking = asyncio.create_task(witness.channels[0].invoke(RemotingCommand(40), 60_000))
            asked = await peer.receive()
            forger.write(frame.encode(asked.reply(0, body=b"forged")))
            assert (await forger.ask(request(ECHO, 1))).opaque == 1
            assert not asking.done()
            peer.write(frame.encode(asked.reply(0, body=b"true")))
            assert (await asking).body == b"true"

    run(scenario)


def test_callbacks_get_the_answer_or_the_failure_exactly_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(endpoint_module, "EXPIRY_GRACE_MS", 0)

    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server, connected(server) as peer:
            await peer.ask(request(ECHO, 0))
            results: dict[str, list[RemotingCommand | Exception]] = {
                name: [] for name in ("answered", "overdue", "died")
            }
            channel, endpoint = witness.channels[0], server.endpoint
            endpoint.invoke_callback(channel, RemotingCommand(1), 5000, results["answered"].append)
            endpoint.invoke_callback(channel, RemotingCommand(2), 30, results["overdue"].append)
            endpoint.invoke_callback(channel, RemotingCommand(3), 5000, results["died"].append)
            asked = [await peer.receive() for _ in range(3)]
            peer.write(frame.encode(asked[0].reply(0)) * 2)
            await until(lambda: bool(results["overdue"]))
            peer.write(frame.encode(asked[1].reply(0)))
            await peer.ask(request(ECHO, 0))
            peer.writer.close()
            await until(lambda: bool(results["died"]))
            assert [len(got) for got in results.values()] == [1, 1, 1]
            assert isinstance(results["overdue"][0], RemoteTimeoutError)
            assert isinstance(results["died"][0], RemoteUnavailableError)
            assert len(endpoint._in_flight) == 0

    run(scenario)


def test_a_callback_that_fails_costs_neither_the_connection_nor_other_callbacks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(endpoint_module, "EXPIRY_GRACE_MS", 0)

    def broken(_: object) -> None:
        raise RuntimeError("a callback fails")

    async def scenario() -> None:
        witness = Witness()
        results: list[RemotingCommand | Exception] = []
        async with serving(listeners=(witness,)) as server, connected(server) as peer:
            await peer.ask(request(ECHO, 0))
            channel, endpoint = witness.channels[0], server.endpoint
            for timeout_ms in (10, 60_000):  # both outcomes: overdue, and the end of the connection
                for callback in (broken, results.append, broken, results.append):
                    endpoint.invoke_callback(channel, RemotingCommand(1), timeout_ms, callback)
            endpoint.invoke_callback(channel, RemotingCommand(2), 60_000, broken)
            asked = [await peer.receive() for _ in range(9)]
            peer.write(frame.encode(asked[-1].reply(0)))
            assert (await peer.ask(request(ECHO, 1))).opaque == 1
            await until(lambda: len(results) == 2)
            peer.writer.close()
            await until(lambda: len(results) == 4)

    with caplog.at_level(logging.CRITICAL):
        run(scenario)


def test_one_way_to_a_peer_that_takes_nothing_is_refused_instead_of_kept() -> None:
    async def scenario() -> None:
        witness = Witness()
        config = ServerConfig(unsent_bytes_max=64 * 1024, send_buffer_bytes=16 * 1024)
        async with serving(config, listeners=(witness,)) as server, connected(server) as peer:
            await peer.ask(request(ECHO, 0))
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            channel = witness.channels[0]

            def flood() -> None:
                for _ in range(20_000):
                    channel.invoke_oneway(RemotingCommand(40, body=bytes(1000)))

            with pytest.raises(TooManyRequestsError, match="does not read what was sent"):
                flood()
            assert peers.unsent(channel) < 200_000

    run(scenario)
