"""The client: its connections, its timeouts, what it does when a server goes away, and that every
call ends once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orbitmq.common.clock import SystemClock
from orbitmq.common.errors import (
    ConfigurationError,
    RemoteTimeoutError,
    RemoteUnavailableError,
    TooManyRequestsError,
)
from orbitmq.protocol.command import RemotingCommand, SerializeType
from orbitmq.remoting import client as client_module
from orbitmq.remoting import endpoint as endpoint_module
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.remoting.server import ServerConfig
from orbitmq.remoting.tls import ClientTls
from orbitmq.testing.manual_clock import ManualClock
from support.common.waiting import until
from support.remoting.peers import ECHO, SILENT, Witness, address, free_address, run, serving


def client_of(**settings: Any) -> RemotingClient:
    return RemotingClient(ClientConfig(**settings), SystemClock())


@contextlib.asynccontextmanager
async def mute_server() -> AsyncIterator[str]:
    """A server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_all_calls_to_an_address_share_one_connection_made_once() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server, client_of() as client:
            calls = (
                client.invoke(address(server), RemotingCommand(ECHO, body=bytes([n])))
                for n in range(50)
            )
            answers = await asyncio.gather(*calls)
            assert [answer.body for answer in answers] == [bytes([n]) for n in range(50)]
            assert len(witness.channels) == 1

    run(scenario)


def test_a_failed_connect_is_told_to_all_who_waited_and_tried_again_by_the_next() -> None:
    async def scenario() -> None:
        where = free_address()
        async with client_of() as client:
            failed = await asyncio.gather(
                *(client.invoke(where, RemotingCommand(ECHO)) for _ in range(3)),
                return_exceptions=True,
            )
            assert all(isinstance(problem, RemoteUnavailableError) for problem in failed)
            assert (
                str(failed[0])
                == f"cannot connect to {where}: Connection refused; is a server running there?"
            )
            async with serving(ServerConfig(port=int(where.rpartition(":")[2]))):
                assert (await client.invoke(where, RemotingCommand(ECHO))).code == 0

    run(scenario)


def test_a_connection_that_the_server_closed_is_made_again() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server, client_of() as client:
            for round_number in range(1, 4):
                assert (await client.invoke(address(server), RemotingCommand(ECHO))).code == 0
                assert len(witness.channels) == round_number
                witness.channels[-1].close("test")
                await until(lambda: not client.connections)

    run(scenario)


def test_calls_that_wait_fail_at_once_when_the_server_dies() -> None:
    async def scenario() -> None:
        async with client_of() as client:
            async with serving() as server:
                where = address(server)
                calls = [
                    asyncio.create_task(client.invoke(where, RemotingCommand(SILENT), 60_000))
                    for _ in range(3)
                ]
                await until(lambda: server.connections == 1)
                await asyncio.sleep(0.01)
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert all(
                isinstance(result, RemoteUnavailableError) and where in str(result)
                for result in results
            )

    run(scenario)


@pytest.mark.parametrize(
    ("timeout_ms", "close_on_timeout", "closes"),
    [(150, True, True), (40, True, True), (150, False, False)],
)
def test_a_call_without_an_answer_closes_the_connection_by_the_rule(
    timeout_ms: int, close_on_timeout: bool, closes: bool
) -> None:
    async def scenario() -> None:
        async with serving() as server, client_of(close_on_timeout=close_on_timeout) as client:
            await client.invoke(address(server), RemotingCommand(ECHO))
            (channel,) = client.connections
            with pytest.raises(
                RemoteTimeoutError,
                match=rf"{address(server)} did not respond to request {SILENT} within \d+ ms",
            ):
                await client.invoke(address(server), RemotingCommand(SILENT), timeout_ms)
            assert (channel.close_reason is not None) is closes
            assert (await client.invoke(address(server), RemotingCommand(ECHO))).code == 0
            assert channel.is_open is not closes

    run(scenario)


def test_when_connecting_took_most_of_the_time_a_missing_answer_does_not_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with serving() as server, RemotingClient(ClientConfig(), clock) as client:
            connect = client._connect

            async def slow_connect(where: str) -> Channel:
                channel = await connect(where)
                clock.advance_ms(2950)
                return channel

            monkeypatch.setattr(client, "_connect", slow_connect)
            with pytest.raises(RemoteTimeoutError, match="within 50 ms"):
                await client.invoke(address(server), RemotingCommand(SILENT), 3000)
            (channel,) = client.connections
            assert channel.close_reason is None

    run(scenario)


def test_a_late_timeout_does_not_close_the_connection_that_took_its_place() -> None:
    async def scenario() -> None:
        witness = Witness()
        async with serving(listeners=(witness,)) as server, client_of() as client:
            await client.invoke(address(server), RemotingCommand(ECHO))
            (old,) = client.connections
            slow = asyncio.create_task(client.invoke(address(server), RemotingCommand(SILENT), 200))
            await asyncio.sleep(0)  # it is sent
            client.forget(old)  # as when the old one goes away while its response is pending
            assert (await client.invoke(address(server), RemotingCommand(ECHO))).code == 0
            (new,) = client.connections - {old}
            await asyncio.gather(slow, return_exceptions=True)
            assert (old.close_reason is not None, new.close_reason) == (True, None)
            assert (await client.invoke(address(server), RemotingCommand(ECHO))).code == 0
            assert len(witness.channels) == 2

    run(scenario)


def test_the_whole_time_covers_connecting() -> None:
    async def scenario() -> None:
        tls = ClientTls(enabled=True)  # the mute server never answers the handshake
        async with mute_server() as where, client_of(tls=tls, connect_timeout_ms=60_000) as client:
            with pytest.raises(RemoteTimeoutError, match="was not established"):
                await client.invoke(where, RemotingCommand(ECHO), 60)
        async with mute_server() as where, client_of(tls=tls, connect_timeout_ms=200) as client:
            with pytest.raises(
                RemoteUnavailableError, match="did not accept a connection within 200 ms"
            ):
                await client.invoke(where, RemotingCommand(ECHO), 60_000)

    run(scenario)


# ---------------------------------------------------------------- go away


class Leaving:
    """A handler that sends GO_AWAY to the first connections."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.seen: list[tuple[Channel, int]] = []
        self.held: list[tuple[Channel, RemotingCommand]] = []

    def __call__(self, channel: Channel, question: RemotingCommand) -> RemotingCommand | None:
        if question.code == SILENT:
            self.held.append((channel, question))
            return None
        self.seen.append((channel, question.opaque))
        known = list(dict.fromkeys(seen for seen, _ in self.seen))
        if known.index(channel) < self.times:
            return question.reply(1500, "please go away")
        return question.reply(0)


def leaving(handler: Leaving) -> Any:
    return serving(handlers={ECHO: handler, SILENT: handler})


def test_go_away_means_one_new_connection_and_a_new_opaque() -> None:
    async def scenario() -> None:
        handler = Leaving(1)
        async with leaving(handler) as server, client_of() as client:
            assert (await client.invoke(address(server), RemotingCommand(ECHO))).code == 0
            (first, one), (second, two) = handler.seen
            assert first is not second
            assert one != two

    run(scenario)


def test_a_second_go_away_is_an_error() -> None:
    async def scenario() -> None:
        handler = Leaving(10)
        async with leaving(handler) as server, client_of() as client:
            with pytest.raises(
                RemoteUnavailableError,
                match="asks its clients to go away; try another server, or later",
            ):
                await client.invoke(address(server), RemotingCommand(ECHO))
            assert len(handler.seen) == 2
        async with leaving(Leaving(10)) as server, client_of(reconnect_on_go_away=False) as client:
            assert (await client.invoke(address(server), RemotingCommand(ECHO))).code == 1500

    run(scenario)


def test_many_calls_sent_away_together_share_one_new_connection_and_all_succeed() -> None:
    async def scenario() -> None:
        handler = Leaving(1)
        async with leaving(handler) as server, client_of() as client:
            waiting = asyncio.create_task(
                client.invoke(address(server), RemotingCommand(SILENT), 10_000)
            )
            await until(lambda: bool(handler.held))
            answers = await asyncio.gather(
                *(client.invoke(address(server), RemotingCommand(ECHO)) for _ in range(20))
            )
            assert {answer.code for answer in answers} == {0}
            assert len({channel for channel, _ in handler.seen}) == 2
            ((channel, question),) = handler.held
            channel.send(question.reply(7))
            assert (await waiting).code == 7, "who waited on the old connection lost its answer"

    run(scenario)


# ---------------------------------------------------------------- close


def test_close_fails_every_call_wherever_it_waits_and_leaves_nothing() -> None:
    async def scenario() -> None:
        async with serving() as server, mute_server() as mute:
            plain, tls = client_of(), client_of(tls=ClientTls(enabled=True))
            waiting = asyncio.create_task(
                plain.invoke(address(server), RemotingCommand(SILENT), 60_000)
            )
            secured = asyncio.create_task(
                tls.invoke(address(server), RemotingCommand(SILENT), 60_000)
            )
            connecting = asyncio.create_task(tls.invoke(mute, RemotingCommand(ECHO), 60_000))
            await until(lambda: server.connections == 2)
            await asyncio.sleep(0.05)
            await asyncio.gather(plain.close(), tls.close())
            results = await asyncio.gather(waiting, secured, connecting, return_exceptions=True)
            assert [type(result) for result in results] == [RemoteUnavailableError] * 3, results
            assert str(results[2]) == "this client is closed"
            for client in (plain, tls):
                assert not client.connections
                with pytest.raises(RemoteUnavailableError, match="this client is closed"):
                    await client.invoke(address(server), RemotingCommand(ECHO))
                await client.close()
            await until(lambda: server.connections == 0)

    run(scenario)


def test_a_caller_that_is_cancelled_is_cancelled_and_harms_no_other() -> None:
    async def scenario() -> None:
        async with serving() as server, client_of() as client:
            first = asyncio.create_task(client.invoke(address(server), RemotingCommand(ECHO)))
            second = asyncio.create_task(client.invoke(address(server), RemotingCommand(ECHO)))
            await asyncio.sleep(0)
            first.cancel()  # while both wait for the same connect
            assert (await second).code == 0
            assert isinstance(
                (await asyncio.gather(first, return_exceptions=True))[0], asyncio.CancelledError
            )

    run(scenario)


# ---------------------------------------------------------------- one-way and callbacks


def test_one_way_requests_arrive_and_wait_for_nothing() -> None:
    async def scenario() -> None:
        arrived: list[RemotingCommand] = []
        async with (
            serving(handlers={1: lambda _, question: arrived.append(question)}) as server,
            client_of() as client,
        ):
            for n in range(10):
                await client.invoke_oneway(address(server), RemotingCommand(1, body=bytes([n])))
            await until(lambda: len(arrived) == 10)
            assert all(question.is_oneway for question in arrived)
            assert [question.body for question in arrived] == [bytes([n]) for n in range(10)]
            with pytest.raises(RemoteUnavailableError):
                await client.invoke_oneway(free_address(), RemotingCommand(1))

    run(scenario)


def test_one_way_requests_to_a_server_that_does_not_read_wait_and_time_out() -> None:
    async def scenario() -> None:
        async with mute_server() as where, client_of(unsent_bytes_max=100_000) as client:

            async def flood() -> None:
                for _ in range(1000):
                    await client.invoke_oneway(where, RemotingCommand(1, body=bytes(100_000)), 100)

            with pytest.raises(RemoteTimeoutError, match="not writable, in time"):
                await flood()
            (channel,) = client.connections
            link: Any = channel.link
            assert link._transport.get_write_buffer_size() < 500_000

    run(scenario)


def test_callbacks_are_called_once_with_the_answer_or_the_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(endpoint_module, "EXPIRY_GRACE_MS", 0)

    async def scenario() -> None:
        async with client_of() as client:
            results: list[RemotingCommand | Exception] = []
            async with serving() as server:
                await client.invoke_callback(
                    address(server), RemotingCommand(ECHO, body=b"1"), 3000, results.append
                )
                await until(lambda: len(results) == 1)
                await client.invoke_callback(
                    address(server), RemotingCommand(SILENT), 30, results.append
                )
                await until(lambda: len(results) == 2)
                await client.invoke_callback(
                    address(server), RemotingCommand(SILENT), 30_000, results.append
                )
                await until(lambda: server.connections == 1)
                await asyncio.sleep(0.05)
            await until(lambda: len(results) == 3)
            answer, overdue, died = results
            assert isinstance(answer, RemotingCommand)
            assert answer.body == b"1"
            assert isinstance(overdue, RemoteTimeoutError)
            assert isinstance(died, RemoteUnavailableError)
            with pytest.raises(RemoteUnavailableError):
                await client.invoke_callback(
                    free_address(), RemotingCommand(ECHO), 1000, results.append
                )
            assert len(results) == 3

    run(scenario)


def test_the_sweep_survives_bad_addresses_and_failing_callbacks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_module, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(endpoint_module, "EXPIRY_GRACE_MS", 0)

    def broken(_: object) -> None:
        raise RuntimeError("a callback fails")

    async def scenario() -> None:
        async with serving() as server, client_of(idle_ms_max=300) as client:
            with pytest.raises(ConfigurationError):
                await client.invoke("no-port", RemotingCommand(ECHO))
            with pytest.raises(RemoteUnavailableError, match="cannot connect to"):
                await client.invoke("x" * 70 + ".example:9876", RemotingCommand(ECHO))
            results: list[RemotingCommand | Exception] = []
            for callback in (broken, results.append):
                await client.invoke_callback(address(server), RemotingCommand(SILENT), 30, callback)
            await until(lambda: len(results) == 1)
            await until(lambda: not client.connections, "that the idle connection is closed")

    with caplog.at_level(logging.CRITICAL):
        run(scenario)


def test_too_many_calls_are_refused_without_being_sent() -> None:
    async def scenario() -> None:
        async with serving() as server, client_of(invoke_max=2) as client:
            waiting = [
                asyncio.create_task(client.invoke(address(server), RemotingCommand(SILENT), 60_000))
                for _ in range(2)
            ]
            await until(lambda: server.connections == 1)
            await asyncio.sleep(0.01)
            with pytest.raises(TooManyRequestsError, match="2 requests are in flight"):
                await client.invoke(address(server), RemotingCommand(ECHO))
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert (await client.invoke(address(server), RemotingCommand(ECHO))).code == 0

    run(scenario)


def test_idle_connections_are_closed_and_listeners_are_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "SWEEP_SECONDS", 0.02)

    async def scenario() -> None:
        witness = Witness()
        config = ClientConfig(idle_ms_max=100)
        async with (
            serving() as server,
            RemotingClient(config, SystemClock(), listeners=(witness,)) as client,
        ):
            await client.invoke(address(server), RemotingCommand(ECHO))
            await until(lambda: len(witness.events) == 3)
            assert witness.of(witness.channels[0]) == ["connect", "idle", "close"]
            await client.invoke(address(server), RemotingCommand(ECHO))
        assert [witness.of(channel) for channel in witness.channels][1:] == [["connect", "close"]]

    run(scenario)


def test_a_server_that_sends_garbage_is_dropped_and_the_call_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await reader.read()
            writer.close()

        listener = await asyncio.start_server(garbage, "127.0.0.1", 0)
        async with listener, client_of() as client:
            port = listener.sockets[0].getsockname()[1]
            with pytest.raises(
                RemoteUnavailableError,
                match="closed before the response came: a frame of 1213486164 bytes",
            ):
                await client.invoke(f"127.0.0.1:{port}", RemotingCommand(ECHO))
            await asyncio.sleep(0.02)

    with caplog.at_level(logging.CRITICAL):
        run(scenario)


def test_hooks_of_a_client_sign_each_request_and_see_each_answer() -> None:
    class Signing:
        def __init__(self) -> None:
            self.seen: list[tuple[str, int]] = []

        def before(self, remote_address: str, question: RemotingCommand) -> None:
            question.ext_fields = {"Signature": "s"}

        def after(
            self, remote_address: str, question: RemotingCommand, response: RemotingCommand | None
        ) -> None:
            assert response is not None
            self.seen.append((remote_address, response.code))

    async def scenario() -> None:
        signed: list[dict[str, str] | None] = []

        def note(_: Channel, question: RemotingCommand) -> RemotingCommand:
            signed.append(question.ext_fields)
            return question.reply(4)

        hook = Signing()
        async with (
            serving(handlers={1: note}) as server,
            RemotingClient(ClientConfig(), SystemClock(), hooks=(hook,)) as client,
        ):
            where, done = address(server), asyncio.Event()
            await client.invoke(where, RemotingCommand(1))
            await client.invoke_oneway(where, RemotingCommand(1))
            await client.invoke_callback(where, RemotingCommand(1), 3000, lambda _: done.set())
            await done.wait()
            assert signed == [{"Signature": "s"}] * 3
            assert hook.seen == [(where, 4)] * 2

    run(scenario)


def test_a_server_may_ask_its_client_on_the_same_connection() -> None:
    async def scenario() -> None:
        dispatcher = RequestDispatcher(SystemClock())
        dispatcher.register(40, lambda _, question: question.reply(0, body=b"from the client"))
        witness = Witness()
        async with (
            serving(listeners=(witness,)) as server,
            RemotingClient(ClientConfig(), SystemClock(), dispatcher=dispatcher) as client,
        ):
            await client.invoke(address(server), RemotingCommand(ECHO))
            assert (
                await witness.channels[0].invoke(RemotingCommand(40), 3000)
            ).body == b"from the client"
            assert (await witness.channels[0].invoke(RemotingCommand(41), 3000)).code == 3

    run(scenario)


def test_requests_of_both_sides_have_the_encoding_that_is_configured_and_replies_that_of_their_request() -> (
    None
):
    seen: list[SerializeType] = []

    def note(_: Channel, request: RemotingCommand) -> RemotingCommand:
        seen.append(request.serialize_type)
        return request.reply(0, body=request.body)

    async def scenario() -> None:
        dispatcher = RequestDispatcher(SystemClock())
        dispatcher.register(40, note)
        witness = Witness()
        binary = SerializeType.ROCKETMQ
        async with serving(
            ServerConfig(serialize_type=binary), {ECHO: note}, listeners=(witness,)
        ) as server:
            async with RemotingClient(
                ClientConfig(serialize_type=binary), SystemClock(), dispatcher=dispatcher
            ) as client:
                answers = [
                    await client.invoke(
                        address(server), RemotingCommand(ECHO, ext_fields={"a": "b"}, body=b"x")
                    )
                ]
                await client.invoke_oneway(address(server), RemotingCommand(ECHO))
                answers.append(await witness.channels[0].invoke(RemotingCommand(40), 3000))
            async with client_of() as client:
                answers.append(await client.invoke(address(server), RemotingCommand(ECHO)))
        assert seen == [binary, binary, binary, SerializeType.JSON]
        assert [answer.serialize_type for answer in answers] == [binary, binary, SerializeType.JSON]
        assert answers[0].body == b"x"

    run(scenario)
