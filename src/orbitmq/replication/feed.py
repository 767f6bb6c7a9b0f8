"""Feeds the log of a master to its slaves: one `SlaveConnection` per slave, on any asyncio
transport.

The commit of a batch calls `log_grew` in the same iteration of the loop, so a slave gets messages
before their replies could be sent. What a slave has not taken yet stays in the log: at most
`WINDOW` bytes are in memory for it. Reports release the replies that wait for replicas. Knows the
log and transports; opens no sockets (`replica_server`).

Thread rule: the loop thread. Invariant: a connection is in `connections` from its opening to its
end, and in the quorum from its first report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from orbitmq.common.errors import ProtocolError
from orbitmq.replication.classic_frames import ReportReader, encode_header
from orbitmq.replication.quorum import Quorum, Replica
from orbitmq.replication.sender import LogBounds, LogSender, SenderLimits
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset

WINDOW: Final = 1 << 20  # unsent bytes of a slave
ROUND: Final = 1 << 20  # bytes for a slave before others are served
COLD_ROUND: Final = 128 << 10  # the same, if they may have to be read from the disk
COLD_DISTANCE: Final = 256 << 20  # bytes behind the end of the log
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveStatus:
    """The state of one connected slave."""

    address: str
    acknowledged: LogOffset
    first_offset: LogOffset
    behind: int
    is_in_sync: bool
    bytes_per_second: int


class ReplicaFeed:
    """All slaves of one log."""

    def __init__(
        self,
        *,
        store: MessageStore,
        quorum: Quorum,
        limits: Callable[[], SenderLimits],
        monotonic_ms: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self.store = store
        self.quorum = quorum
        self.limits = limits
        self.monotonic_ms = monotonic_ms
        self.call_soon = call_soon
        self.connections: list[SlaveConnection] = []

    def connect(self) -> SlaveConnection:
        """Return the protocol of a new connection."""
        return SlaveConnection(self)

    def log_grew(self) -> None:
        """Send what was appended to the log."""
        for connection in self.connections:
            connection.send()

    def tick(self) -> None:
        """Send the heartbeats that are due, and close silent connections; called every second or
        more often.
        """
        for connection in list(self.connections):
            connection.tick()

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self.connections):
            connection.close("the broker stops")

    @property
    def bounds(self) -> LogBounds:
        """The log as it is now."""
        files = self.store.log.files
        return LogBounds(
            LogOffset(files.first_offset), LogOffset(files.end_offset), files.file_size
        )

    def statuses(self) -> list[SlaveStatus]:
        """Return the state of each slave that has reported."""
        return [
            status for each in self.connections if (status := each.status(self.quorum)) is not None
        ]


class SlaveConnection(asyncio.Protocol):
    """The connection of one slave."""

    def __init__(self, feed: ReplicaFeed) -> None:
        self._feed = feed
        self._sender = LogSender(feed.limits(), feed.monotonic_ms())
        self._reports = ReportReader()
        self._transport: asyncio.Transport | None = None
        self._replica: Replica | None = None
        self._is_planned = False  # it sends more in the next iteration
        self.address = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WINDOW, low=WINDOW // 2)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.address = f"{peer[0]}:{peer[1]}"
        self._feed.connections.append(self)
        log.info("slave_connected address=%s", self.address)

    def data_received(self, data: bytes) -> None:
        feed = self._feed
        try:
            offset = self._reports.feed(data)
            if offset is None:
                return
            self._sender.reported(offset, feed.bounds, feed.monotonic_ms())
        except ProtocolError as error:
            self.close(str(error))
            return
        acknowledged = self._sender.acknowledged
        assert acknowledged is not None, "it has reported"
        if self._replica is None:
            self._replica = Replica(self.address, self.address.rpartition(":")[0], acknowledged)
            feed.quorum.join(self._replica)
            log.info(
                "slave_follows address=%s end=%d from=%d",
                self.address,
                offset,
                self._sender.first_offset,
            )
        self._replica.acknowledged = acknowledged
        feed.store.flushing.settle()
        self.send()

    def resume_writing(self) -> None:
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        feed, self._transport = self._feed, None
        if self in feed.connections:
            feed.connections.remove(self)
        if self._replica is not None:
            feed.quorum.leave(self._replica)
            log.warning("slave_lost address=%s reason=%s", self.address, exc or "it disconnected")
            feed.store.flushing.settle()

    def send(self) -> None:
        """Send the next bytes of the log, as far as the slave takes them."""
        transport, feed = self._transport, self._feed
        if transport is None or transport.is_closing():
            return
        now_ms, bounds, sent = feed.monotonic_ms(), feed.bounds, 0
        is_cold = bounds.end - self._sender.next_offset > COLD_DISTANCE
        round_size = COLD_ROUND if is_cold else ROUND
        try:
            while transport.get_write_buffer_size() < WINDOW:
                if sent >= round_size:
                    self._send_soon()
                    return
                piece = self._sender.next_slice(bounds, now_ms)
                if piece is None:
                    return
                data = feed.store.log.read(piece.offset, piece.size)
                assert data is not None, "it is before the end, and in one file"
                transport.write(b"".join((encode_header(piece.offset, piece.size), data)))
                sent += piece.size
        except ProtocolError as error:
            self.close(str(error))

    def tick(self) -> None:
        """Send a heartbeat if it is due; give the slave up if it is silent."""
        self._sender.limits = self._feed.limits()  # they may have changed
        if self._sender.is_silent(self._feed.monotonic_ms()):
            self.close("it sent nothing for haHousekeepingInterval")
        else:
            self.send()

    def close(self, reason: str) -> None:
        """Close the connection."""
        if self._transport is not None and not self._transport.is_closing():
            log.warning("slave_closed address=%s reason=%s", self.address, reason)
            self._transport.abort()

    def status(self, quorum: Quorum) -> SlaveStatus | None:
        """Return the state of the slave; None before its first report."""
        if self._replica is None:
            return None
        return SlaveStatus(
            address=self.address,
            acknowledged=self._replica.acknowledged,
            first_offset=self._sender.first_offset,
            behind=self._feed.bounds.end - self._replica.acknowledged,
            is_in_sync=quorum.is_in_sync(self._replica),
            bytes_per_second=self._sender.sent.per_second(self._feed.monotonic_ms()),
        )

    def _send_soon(self) -> None:
        """Continue in the next iteration of the loop, after the others."""
        if not self._is_planned:
            self._is_planned = True
            self._feed.call_soon(self._send_planned)

    def _send_planned(self) -> None:
        self._is_planned = False
        self.send()
