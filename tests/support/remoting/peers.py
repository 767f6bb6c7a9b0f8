"""A running server in the test's own loop, peers that speak raw bytes to it, and a runner that
notices what a test leaves behind.
"""

from __future__ import annotations

import asyncio
import gc
import os
import select
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from orbitmq.common.clock import SystemClock
from orbitmq.protocol import frame
from orbitmq.protocol.command import FLAG_ONEWAY, RemotingCommand, SerializeType
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler, RequestDispatcher
from orbitmq.remoting.endpoint import ConnectionListener
from orbitmq.remoting.server import RemotingServer, ServerConfig

SECONDS_MAX = 100.0  # a scenario that takes longer hangs

ECHO, SIZED, FAILING, SILENT = 1001, 1002, 1003, 1004


def free_address() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario in a loop of its own; a task, an unclosed socket or an unhandled failure that
    it leaves fails the test.
    """

    async def main() -> None:
        unhandled: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: unhandled.append(context)
        )
        async with asyncio.timeout(SECONDS_MAX):
            await scenario()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        gc.collect()  # whatever was not closed says so now
        assert not unhandled, unhandled

    asyncio.run(main())


def echo(_: Channel, request: RemotingCommand) -> RemotingCommand:
    """Answer with the body that came."""
    return request.reply(0, body=request.body)


def sized(_: Channel, request: RemotingCommand) -> RemotingCommand:
    """Answer with as many bytes as the request's field `size` says."""
    assert request.ext_fields is not None
    return request.reply(0, body=bytes(int(request.ext_fields["size"])))


def failing(_: Channel, request: RemotingCommand) -> RemotingCommand:
    """Fail, as a handler with a bug does."""
    raise KeyError(f"no such thing: {request.code}")


def fault_of_the_server(code: int) -> str:
    """What a peer is told of a handler that failed for a reason which is nobody's business but that
    of the log's reader.
    """
    return (
        f"request {code} failed because of a fault in this server; its log has more"
        " (handler_failed)"
    )


def silent(_: Channel, __: RemotingCommand) -> None:
    """Answer nothing."""


HANDLERS: Mapping[int, Handler] = {ECHO: echo, SIZED: sized, FAILING: failing, SILENT: silent}


def request(
    code: int,
    opaque: int = 0,
    *,
    oneway: bool = False,
    body: bytes | None = None,
    version: int = 409,
    **fields: str,
) -> bytes:
    """The frame of a request."""
    return frame.encode(
        RemotingCommand(
            code,
            ext_fields=fields or None,
            body=body,
            opaque=opaque,
            flag=FLAG_ONEWAY if oneway else 0,
            version=version,
        )
    )


def binary_request(code: int, opaque: int, body: bytes | None = None) -> bytes:
    """The frame of a request with a binary header."""
    return frame.encode(
        RemotingCommand(code, opaque=opaque, body=body, serialize_type=SerializeType.ROCKETMQ)
    )


@asynccontextmanager
async def serving(
    config: ServerConfig | None = None,
    handlers: Mapping[int, Handler] = HANDLERS,
    *,
    dispatcher: RequestDispatcher | None = None,
    listeners: tuple[ConnectionListener, ...] = (),
) -> AsyncIterator[RemotingServer]:
    """A server on a free port, stopped at the end."""
    if dispatcher is None:
        dispatcher = RequestDispatcher(SystemClock())
        for code, handler in handlers.items():
            dispatcher.register(code, handler)
    server = RemotingServer(config or ServerConfig(), dispatcher, SystemClock(), listeners)
    server.start()
    try:
        yield server
    finally:
        await server.stop()


def unsent(channel: Channel) -> int:
    """How many bytes written to a plaintext peer of a server have not left."""
    link: Any = channel.link
    return int(link.unsent)


def pure_mode() -> str:
    """How this process was told to load kernels, for a child process."""
    return os.environ.get("ORBITMQ_PURE", "0")


def address(server: RemotingServer) -> str:
    """`host:port` of a server."""
    return f"{server.address[0]}:{server.address[1]}"


class Peer:
    """One raw connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def address(self) -> str:
        host, port = self.writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    def has_bytes(self) -> bool:
        """Whether something that the server sent is there to be read from the socket, now."""
        poll = select.poll()
        poll.register(self.writer.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self) -> RemotingCommand:
        """The next command that the server sends."""
        head = await self.reader.readexactly(4)
        command: RemotingCommand = frame.decode_one(
            head + await self.reader.readexactly(struct.unpack(">i", head)[0])
        )
        return command

    async def ask(self, data: bytes) -> RemotingCommand:
        self.write(data)
        return await self.receive()

    async def ended(self) -> bool:
        """Whether the server ends the connection without sending anything more."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def rest(self) -> bytes:
        """Whatever the server sends until it ends the connection."""
        data = b""
        with suppress(OSError):
            while piece := await self.reader.read(65536):
                data += piece
        return data

    async def is_silent(self, seconds: float = 0.05) -> bool:
        """Whether nothing comes for a while, neither bytes nor the end."""
        try:
            async with asyncio.timeout(seconds):
                await self.reader.read(1)
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def connected(
    server: RemotingServer, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Peer]:
    """A raw peer, closed at the end."""
    reader, writer = await asyncio.open_connection(
        *server.address, ssl=tls, server_hostname="localhost" if tls else None
    )
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


@dataclass
class Witness:
    """A connection listener that writes down what it is told."""

    events: list[tuple[str, Channel]] = field(default_factory=list)
    problems: list[BaseException] = field(default_factory=list)

    def on_connect(self, channel: Channel) -> None:
        self.events.append(("connect", channel))

    def on_close(self, channel: Channel) -> None:
        self.events.append(("close", channel))

    def on_exception(self, channel: Channel, problem: BaseException) -> None:
        self.events.append(("exception", channel))
        self.problems.append(problem)

    def on_idle(self, channel: Channel) -> None:
        self.events.append(("idle", channel))

    @property
    def channels(self) -> list[Channel]:
        """Every channel that was told of, once, in order."""
        return list(dict.fromkeys(channel for _, channel in self.events))

    def of(self, channel: Channel) -> list[str]:
        """What was told of one channel."""
        return [name for name, told in self.events if told is channel]
