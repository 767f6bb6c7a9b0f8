"""The server side of TLS as an asyncio transport for `TransportLink`, without a buffer of its own.

asyncio's own TLS allocates 256 KiB per peer from its first byte on, and does not report how many of
its bytes are unsent. Here ciphertext goes straight to the plain transport, whose buffer is the only
one; limits and sizes are those of that buffer.

Invariant: `link.connection_made` is called once the handshake is over, and `link.connection_lost`
if and only if `connection_made` was.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final, cast

READ_SIZE: Final = 64 * 1024


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """Both the protocol of a plain transport and the transport of a peer's link. `handshake`
    completes with the handshake.
    """

    def __init__(self, context: ssl.SSLContext, link: asyncio.Protocol) -> None:
        super().__init__()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._link = link
        self._plain: asyncio.Transport | None = None
        self._is_ready = False
        self.handshake: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- the protocol of the plain transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._plain = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        try:
            if self._is_ready or self._shake_hands():
                self._read()
            self._send()
        except ssl.SSLError as problem:
            self._send()  # the alert that states the reason
            self._fail(problem)

    def _shake_hands(self) -> bool:
        """Continue the handshake; return whether it is over."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._is_ready = True
        self._send()
        self._link.connection_made(self)
        if not self.handshake.done():
            self.handshake.set_result(None)
        return True

    def _read(self) -> None:
        """Pass on received data, until the peer's end or the end of what was received."""
        while not self.is_closing():
            try:
                data = self._tls.read(READ_SIZE)
            except ssl.SSLWantReadError:
                return
            except ssl.SSLZeroReturnError:
                data = b""
            if not data:  # the peer closed its side
                self.close()
                return
            self._link.data_received(data)

    def _send(self) -> None:
        if self._outgoing.pending and not self.is_closing():
            assert self._plain is not None
            self._plain.write(self._outgoing.read())

    def _fail(self, problem: Exception) -> None:
        if not self.handshake.done():
            self.handshake.set_exception(problem)
            self.handshake.exception()  # retrieved, in case no task awaits it any more
        self.close()

    def pause_writing(self) -> None:
        if self._is_ready:
            self._link.pause_writing()

    def resume_writing(self) -> None:
        if self._is_ready:
            self._link.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionResetError("the peer closed the connection"))
        if self._is_ready:
            self._link.connection_lost(error)
        self._plain, self._link = (
            None,
            asyncio.Protocol(),
        )  # breaks the cycles, which would wait for the garbage collector

    # -- the transport of the link

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Encrypt and send `data`; the plain transport buffers what the socket does not accept."""
        if data and not self.is_closing():
            try:
                self._tls.write(data)
            except ssl.SSLError as problem:  # the session broke
                self._fail(problem)
                return
            self._send()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert self._plain is not None
        self._plain.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes."""
        return 0 if self._plain is None else self._plain.get_write_buffer_size()

    def pause_reading(self) -> None:
        if self._plain is not None and not self._plain.is_closing():
            self._plain.pause_reading()

    def resume_reading(self) -> None:
        if self._plain is not None and not self._plain.is_closing():
            self._plain.resume_reading()

    def is_closing(self) -> bool:
        return self._plain is None or self._plain.is_closing()

    def close(self) -> None:
        """Close after everything written is sent."""
        if self._plain is not None:
            self._plain.close()

    def abort(self) -> None:
        """Close at once."""
        if self._plain is not None:
            self._plain.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return default if self._plain is None else self._plain.get_extra_info(name, default)
