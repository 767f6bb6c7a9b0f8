"""One end of a simulated TCP connection: a transport for asyncio protocols, without an event loop.

A connection is a FIFO stream of bytes in each direction. Bytes leave in segments of any size while
fewer than `WINDOW` of them are unread at the other end, and wait in the write buffer otherwise: a
peer that does not read, or is not reached, slows its sender down. The receiver restores their order
and passes them to its protocol in pieces of any size.

An end is over by `close` (the peer reads what was sent, then the end of the stream), `abort` (the
peer gets a reset, and loses what had not arrived), the death of its process (a reset), or a loss of
power (silence). Bytes that reach an end that is over are answered by a reset. There are no
keep-alives and no limit of repetitions: an end that has nothing to send never learns of a silent
peer. Invariants: a protocol gets `connection_made`, any number of other calls, and
`connection_lost`, each once, and nothing afterwards; what it reads is a prefix of what was written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import Final

from orbitmq.testing.network_host import MakeProtocol, NetworkAddress, NetworkHost
from orbitmq.testing.simulated_link import LinkPacket, SimulatedLink

WINDOW: Final = 64 * 1024
SEGMENT_MAX: Final = 16 * 1024
_WRITE_BUFFER_LIMITS: Final = (16 * 1024, 64 * 1024)  # low and high, those of asyncio


class _State(Enum):
    """How far an end is."""

    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"  # `close` was called, and the write buffer is not empty
    OVER = "over"


class _Mark(Enum):
    """What a segment says besides its bytes."""

    OPENED = "opened"
    DATA = "data"
    END = "end"


@dataclass(slots=True, eq=False)
class _Segment:
    """Bytes on the way, in the order of the stream."""

    mark: _Mark
    data: bytes = b""
    has_arrived: bool = False


class SimulatedTransport(asyncio.Transport):
    """One end of a connection; `peer` is the other one."""

    peer: SimulatedTransport

    def __init__(
        self,
        *,
        host: NetworkHost,
        link: SimulatedLink,
        random: Random,
        address: NetworkAddress,
        peer_address: NetworkAddress,
        accept: Callable[[SimulatedTransport], object] | None,
    ) -> None:
        super().__init__({"sockname": address, "peername": peer_address})
        self.host = host
        self._link = link
        self._random = random
        self._accept = accept  # of the listening end: called when the handshake is complete
        self._protocol: asyncio.Protocol | None = None
        self._state = _State.OPENING
        self._early_end: list[Exception | None] = []  # the error of an end before `connect`
        self._is_repeating = True  # the machine repeats lost packets of this end
        self._unsent = bytearray()
        self._limits = _WRITE_BUFFER_LIMITS
        self._is_writing_paused = False
        self._unread_by_peer = 0
        self._sent: deque[_Segment] = deque()  # that the peer has not taken yet
        self._unread = bytearray()
        self._has_ended = False  # the peer sends no more
        self._is_reading_paused = False
        self._is_delivering = False

    # -- asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._state is _State.OPEN and data:
            self._unsent += data
            self._send_more()
            if len(self._unsent) > self._limits[1] and not self._is_writing_paused:
                self._is_writing_paused = True
                self._connected.pause_writing()

    def close(self) -> None:
        if self._state is _State.OPEN:
            self._state = _State.CLOSING
            self._send_more()

    def abort(self) -> None:
        if self._state is not _State.OVER:
            self.reset_peer()
            self.end(None)

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._state in (_State.CLOSING, _State.OVER)

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._limits

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = high if high is not None else _WRITE_BUFFER_LIMITS[1] if low is None else 4 * low
        self._limits = (high // 4 if low is None else low, high)

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._deliver_soon()

    def is_reading(self) -> bool:
        return self._state is _State.OPEN and not self._is_reading_paused

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._connected

    # -- for the network

    @property
    def is_connected(self) -> bool:
        """Whether a process has the connection."""
        return self._state in (_State.OPEN, _State.CLOSING)

    @property
    def is_over(self) -> bool:
        """Whether nothing will be read or written here any more."""
        return self._state is _State.OVER

    def complete_handshake(self) -> None:
        """Send the last step of the handshake, before any bytes."""
        self._send(_Segment(_Mark.OPENED))

    def connect(self, make_protocol: MakeProtocol) -> None:
        """Give the process its connection, even if that was reset meanwhile."""
        if self._state is _State.OPENING or self._early_end:
            protocol = make_protocol()
            assert isinstance(protocol, asyncio.Protocol), f"{protocol!r} takes no bytes"
            self._protocol = protocol
            if not self._early_end:
                self._state = _State.OPEN
            protocol.connection_made(self)
            for error in self._early_end:
                self._lose(error)
            self._deliver_soon()

    def end(self, error: Exception | None) -> None:
        """End the connection here, and notify the protocol."""
        state = self._state
        self.vanish()
        if state is _State.OPENING:
            self._early_end.append(error)
        elif state is not _State.OVER:
            self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        self.host.call_soon(partial(self._connected.connection_lost, error), "connection_lost")

    def vanish(self) -> None:
        """End the connection here without a word: the process is dead."""
        self._state, self._is_repeating = _State.OVER, False
        self._unsent.clear()
        self._unread.clear()

    def reset_peer(self) -> None:
        """Send the peer a reset; it is lost if the link is silent."""
        arrive = partial(self.peer.end, ConnectionResetError("the peer reset the connection"))
        self._link.send(LinkPacket(what="reset", arrive=arrive, is_repeated=lambda: False))

    # -- sending

    def _send_more(self) -> None:
        """Send as much as the window allows; afterwards finish what waits for that."""
        if self.is_over:
            return
        while self._unsent and self._unread_by_peer < WINDOW:
            size = self._any_size(
                min(len(self._unsent), SEGMENT_MAX, WINDOW - self._unread_by_peer)
            )
            data = bytes(self._unsent[:size])
            del self._unsent[:size]
            self._unread_by_peer += size
            self._send(_Segment(_Mark.DATA, data))
        if self._is_writing_paused and len(self._unsent) <= self._limits[0]:
            self._is_writing_paused = False
            self._connected.resume_writing()
        if self._state is _State.CLOSING and not self._unsent:
            self._finish()

    def _finish(self) -> None:
        """End the stream after all bytes; as on Linux, by a reset if the peer's were not read."""
        is_read = not self._unread
        if is_read:
            self._send(_Segment(_Mark.END))
        else:
            self.reset_peer()
        self.end(None)
        self._is_repeating = is_read

    def _send(self, segment: _Segment) -> None:
        self._sent.append(segment)
        size = len(segment.data)
        arrive = partial(self.peer._segment_arrived, segment)
        self._transmit(f"{segment.mark.value} {size}", arrive, size)

    def _was_read(self, size: int) -> None:
        """Take the peer's acknowledgement; the process then sends more, unless it is paused."""
        self._unread_by_peer -= size
        if self._unsent:
            self.host.call_soon(self._send_more, "writable")

    # -- receiving

    def _segment_arrived(self, segment: _Segment) -> None:
        """Take what is complete from the begin of the stream on."""
        segment.has_arrived = True
        arriving = self.peer._sent
        while arriving and arriving[0].has_arrived:
            taken = arriving.popleft()
            if self.is_over:
                if taken.mark is not _Mark.END:
                    self.reset_peer()
            elif taken.mark is _Mark.OPENED:
                assert self._accept is not None
                self._accept(self)
            elif taken.mark is _Mark.END:
                self._has_ended = True
            else:
                self._unread += taken.data
        self._deliver_soon()

    def _deliver_soon(self) -> None:
        is_due = self._unread or self._has_ended
        if is_due and self.is_reading() and not self._is_delivering:
            self._is_delivering = True
            self.host.call_soon(self._deliver, "data_received")

    def _deliver(self) -> None:
        self._is_delivering = False
        if not self.is_reading():
            return
        protocol = self._connected
        if self._unread:
            size = self._any_size(len(self._unread))
            data = bytes(self._unread[:size])
            del self._unread[:size]
            self._transmit(f"read {size}", partial(self.peer._was_read, size), 0)
            protocol.data_received(data)
            self._deliver_soon()
        elif self._has_ended:
            self._has_ended = False
            if not protocol.eof_received():
                self.close()

    # -- both

    def _transmit(self, what: str, arrive: Callable[[], object], size: int) -> None:
        """Send a packet that is repeated while this end exists."""
        self._link.send(
            LinkPacket(what=what, arrive=arrive, is_repeated=lambda: self._is_repeating, size=size)
        )

    @property
    def _connected(self) -> asyncio.Protocol:
        assert self._protocol is not None, "not connected yet"
        return self._protocol

    def _any_size(self, size_max: int) -> int:
        """Choose how many bytes go together: often all."""
        return size_max if self._random.random() < 0.5 else self._random.randint(1, size_max)
