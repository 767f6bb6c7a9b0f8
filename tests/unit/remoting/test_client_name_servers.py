"""Which name server a client calls, and when it calls another."""

from __future__ import annotations

import contextlib

import pytest

from orbitmq.common.clock import SystemClock
from orbitmq.common.errors import RemoteUnavailableError
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.remoting.name_servers import NameServerList
from orbitmq.remoting.server import RemotingServer
from support.remoting import peers
from support.remoting.peers import ECHO, SILENT, address, free_address, run, serving


class FirstOf:
    """Replaces the random choice of the first name server."""

    def choice(self, addresses: list[str]) -> str:
        return addresses[0]


def listed(*addresses: str) -> NameServerList:
    return NameServerList(addresses, FirstOf())  # type: ignore[arg-type]


async def counting(stack: contextlib.AsyncExitStack, asked: list[str], name: str) -> RemotingServer:
    def note(_: Channel, question: RemotingCommand) -> RemotingCommand:
        asked.append(name)
        return question.reply(0)

    server: RemotingServer = await stack.enter_async_context(
        serving(handlers={ECHO: note, SILENT: peers.silent})
    )
    return server


def test_the_name_server_that_answered_is_asked_until_it_fails_then_the_next() -> None:
    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as stack:
            asked: list[str] = []
            one, two, three = [
                await counting(stack, asked, name) for name in ("one", "two", "three")
            ]
            names = listed(free_address(), *(address(server) for server in (one, two, three)))
            async with RemotingClient(ClientConfig(), SystemClock(), name_servers=names) as client:

                async def ask() -> None:
                    await client.invoke_name_server(RemotingCommand(ECHO))

                await ask()
                await ask()
                await one.stop()
                await ask()
                await ask()
                await two.stop()
                await ask()
                assert asked == ["one", "one", "two", "two", "three"]
                await three.stop()
                with pytest.raises(
                    RemoteUnavailableError,
                    match=r"^no name server answers: .*cannot connect to .*; cannot connect to",
                ):
                    await ask()
                client.name_servers.update([])
                with pytest.raises(
                    RemoteUnavailableError, match="no name server is known; give one as host:port"
                ):
                    await ask()

    run(scenario)


def test_an_answer_that_refuses_is_an_answer_and_no_reason_to_ask_another() -> None:
    async def scenario() -> None:
        async with serving(handlers={}) as server, serving() as other:
            names = listed(address(server), address(other))
            async with RemotingClient(ClientConfig(), SystemClock(), name_servers=names) as client:
                assert (await client.invoke_name_server(RemotingCommand(ECHO))).code == 3

    run(scenario)
