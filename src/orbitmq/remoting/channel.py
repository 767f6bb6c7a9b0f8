"""A connected peer as handlers see it: its address, and how to send it responses and requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from orbitmq.protocol import frame
from orbitmq.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from orbitmq.protocol.proxy_preamble import ProxyPreamble
    from orbitmq.remoting.endpoint import Endpoint


class ByteLink(Protocol):
    """Transports a channel's bytes: a socket of the epoll set, or an asyncio transport."""

    channel: Any

    @property
    def reading(self) -> bool: ...

    @property
    def may_receive(self) -> bool: ...

    def yield_if_late(self) -> None: ...

    @property
    def last_active_ms(self) -> int: ...

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


def channel_of(connection: object) -> Channel:
    """Return the channel behind a connection that a service knows by a narrower type."""
    assert isinstance(connection, Channel)
    return connection


class Channel:
    """One connection. Equal only to itself, so it serves as a key."""

    __slots__ = (
        "__weakref__",
        "attributes",
        "close_reason",
        "endpoint",
        "is_open",
        "is_tls",
        "link",
        "local_address",
        "proxy",
        "remote_address",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        link: ByteLink,
        *,
        remote_address: str,
        local_address: str,
        is_tls: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self.link = link
        self.remote_address = remote_address
        self.local_address = local_address
        self.is_tls = is_tls
        self.is_open = True
        self.close_reason: str | None = None
        self.proxy: ProxyPreamble | None = None
        self.attributes: dict[str, Any] = {}

    @property
    def is_reading(self) -> bool:
        """Return whether the peer reads what is sent to it."""
        return self.link.reading

    def send(self, command: RemotingCommand) -> None:
        """Send one command as it is; does nothing if the connection is closed."""
        if self.is_open:
            self.link.write(frame.encode(command))

    async def invoke(self, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request to this peer and return the response."""
        return await self.endpoint.invoke(self, request, timeout_ms)

    def invoke_oneway(self, request: RemotingCommand) -> None:
        """Send a request to this peer without expecting a response."""
        self.endpoint.invoke_oneway(self, request)

    def close(self, reason: str) -> None:
        """Close the connection; `reason` goes to the log."""
        if self.is_open and self.close_reason is None:
            self.close_reason = reason
            self.link.close()

    def __repr__(self) -> str:
        return f"Channel({self.remote_address}{'' if self.is_open else ', closed'})"


def address_text(address: Any) -> str:
    """Return `host:port` of a socket address, `[host]:port` for IPv6."""
    if not isinstance(address, tuple) or len(address) < 2:
        return str(address or "unknown")
    host = address[0].removeprefix("::ffff:") if "." in address[0] else address[0]
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
