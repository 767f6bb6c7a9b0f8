"""A channel's bytes on an asyncio transport: TLS peers of a server, and all peers of a client.

The first write after bytes arrived is sent at once, so a single caller does not wait; further
writes within one iteration of the loop are sent together. Above `unsent_max` unsent bytes a server
does not read the peer, and a peer whose requests caused more than `SHARE_BYTES` of responses, or
took longer than `SHARE_S`, continues in a later iteration, after the others. A client always reads,
otherwise two sides that send much would wait for each other forever; its callers wait for `room`
instead.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final, cast

from orbitmq.common.clock import Clock
from orbitmq.remoting.channel import Channel, address_text
from orbitmq.remoting.endpoint import Endpoint

SHARE_BYTES: Final = 256 * 1024
SHARE_S: Final = 0.005


class TransportLink(asyncio.Protocol):
    """One connection. A server passes the peer's existing channel; a client's is created by
    `connection_made`.
    """

    channel: Channel

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        *,
        unsent_max: int,
        is_tls: bool,
        of_server: Channel | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._unsent_max = unsent_max
        self._is_tls = is_tls
        self._of_server = of_server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending = bytearray()
        self._chunks: list[bytes] = []
        self._chunks_size = 0
        self._written = 0  # bytes since requests were last passed on
        self._ends_s = 0.0  # when these have used up their time
        self._is_late = False
        self._resumes = False  # more of them are passed on in a later iteration
        self._has_replied = False  # something was written since bytes arrived
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._failure: Exception | None = None
        self._is_closed = False
        self.reading = True
        self.last_active_ms = clock.monotonic_ms()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._unsent_max, low=self._unsent_max // 2)
        if self._of_server is not None:
            self.channel = self._of_server
            self.channel.link, self.channel.is_tls = self, self._is_tls
            if self.channel.close_reason is not None:  # closed during the hand-over
                self.close()
            return
        self.channel = Channel(
            self._endpoint,
            self,
            remote_address=address_text(transport.get_extra_info("peername")),
            local_address=address_text(transport.get_extra_info("sockname")),
            is_tls=self._is_tls,
        )
        self._endpoint.opened(self.channel)

    def data_received(self, data: bytes) -> None:
        self.last_active_ms = self._clock.monotonic_ms()
        self._has_replied = False
        self._pending += data
        self._consume()

    @property
    def may_receive(self) -> bool:
        """Return whether the next request of this peer may be handled in this iteration of the
        loop.
        """
        has_had_its_share = self._written > SHARE_BYTES or self._is_late
        return (
            self.reading
            and not self._is_closed
            and (self._of_server is None or not has_had_its_share)
        )

    def yield_if_late(self) -> None:
        """Let this peer continue in a later iteration if its requests took too long in this one."""
        self._is_late = monotonic() > self._ends_s

    def _consume(self) -> None:
        self._written = 0
        self._ends_s, self._is_late = monotonic() + SHARE_S, False
        try:
            consumed = self._endpoint.receive(self, self._pending, 0, len(self._pending))
            del self._pending[:consumed]
            # without a socket loop, each read is an iteration of its own
            self._endpoint.end_of_iteration()
        except Exception as problem:
            self.fail(problem)
        if (
            self._pending
            and self.reading
            and not self._is_closed
            and not self.may_receive
            and not self._resumes
        ):
            assert self._transport is not None
            self._resumes = True
            self._transport.pause_reading()
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        """Pass on more requests of a peer that used up its share before."""
        assert self._transport is not None
        self._resumes = False
        if (
            self.reading and not self._is_closed
        ):  # otherwise it continues when the peer has read its responses
            self._transport.resume_reading()
            if self._pending:
                self._consume()

    def pause_writing(self) -> None:
        self._has_room.clear()
        if self._of_server is not None:
            self.reading = False
            assert self._transport is not None
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._has_room.set()
        if self._of_server is not None:
            self.reading = True
            if not self._resumes:  # not now: asyncio fails if a transport is aborted in here
                self._resumes = True
                self._loop.call_soon(self._resume)

    @property
    def has_room(self) -> bool:
        """Return whether the peer has read enough of what was sent to it."""
        return self._has_room.is_set()

    async def room(self) -> None:
        """Wait until there is room."""
        while not self._has_room.is_set():  # another waiter may have filled it again
            await self._has_room.wait()

    def connection_lost(self, error: Exception | None) -> None:
        self._chunks.clear()
        self._pending.clear()
        self._has_room.set()
        self._endpoint.closed(self.channel, self._failure or error)

    def write(self, data: bytes) -> None:
        """Send `data` at once, or at the end of this iteration of the loop, after
        earlier writes.
        """
        self._written += len(data)
        if not self._has_replied:
            self._has_replied = True
            self._chunks.append(data)
            self._flush()
            return
        if not self._chunks:
            self._loop.call_soon(self._flush)
        self._chunks.append(data)
        self._chunks_size += len(data)
        if self._chunks_size > self._unsent_max:
            self._flush()

    def _flush(self) -> None:
        if not self._chunks:
            return
        assert self._transport is not None
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._chunks_size = 0
        if data and not self._transport.is_closing():
            self._endpoint.before_send()
            if self._has_room.is_set():  # bytes queued behind others are no activity
                self.last_active_ms = self._clock.monotonic_ms()
            self._transport.write(data)

    def close(self) -> None:
        """Close at once, dropping unsent bytes."""
        assert self._transport is not None
        self._is_closed = True
        self._transport.abort()

    def fail(self, problem: Exception) -> None:
        """Close because of `problem`, which is reported to the endpoint."""
        self._failure = problem
        self.close()
