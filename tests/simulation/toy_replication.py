"""A toy that replicates bytes from a leader to a follower: the least that kills, losses of power
and partitions can break.

Both keep a log of records of one size. The leader appends a record for each send, and streams what
its disk has to the follower: frames of an offset, a length and bytes; empty ones are heartbeats.
The follower begins with the length that its disk has, and reports each time that it grows. A send
is acknowledged when both disks have it. After a kill the log may hold bytes that were never synced:
both sync it before they rely on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, cast

from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.store.flush.fsync_thread import FlushReport
from orbitmq.testing.histories import MessageHistory, RecordedSend
from orbitmq.testing.simulated_host import SimulatedHost

QUEUE: Final = MessageQueue("toy", "leader", 0)
RECORD_SIZE: Final = 64
PORT: Final = 7000
_FRAME: Final = Struct(">QI")
_REPORT: Final = Struct(">Q")
_HEARTBEAT_MS: Final = 40
_SILENCE_MS: Final = 200
_REDIAL_MS: Final = 20
_FRAME_SIZE_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class _LogJob:
    """A sync of the log up to `end`."""

    descriptors: Sequence[int]
    end: int


class ToyLog:
    """A file of records; `durable` is how much of it is synced for certain."""

    def __init__(self, host: SimulatedHost, grew: Callable[[], object]) -> None:
        self._layer = layer = host.disk.layer
        self._grew = grew
        path = host.disk.root / "log"
        is_new = path.name not in layer.list(path.parent)
        self._descriptor = layer.open(path, create=is_new)
        if is_new:
            layer.sync_dir(path.parent)
        self.length = layer.size(path)
        self.durable = 0
        self._flusher = host.flushers(layer, self._synced, "log flusher")
        self.flush()

    def append(self, data: bytes) -> None:
        self._layer.pwrite(self._descriptor, data, self.length)
        self.length += len(data)
        self.flush()

    def read(self, offset: int, end: int) -> bytes:
        return self._layer.pread(self._descriptor, end - offset, offset)

    def flush(self) -> None:
        self._flusher.submit(_LogJob((self._descriptor,), self.length))

    def _synced(self, reports: list[FlushReport[_LogJob]]) -> None:
        for report in reports:
            assert report.error is None
            self.durable = max(self.durable, report.job.end)
        self._grew()


def records(data: bytes) -> list[str]:
    """Return the messages of a log, without a record that is not complete."""
    whole = len(data) - len(data) % RECORD_SIZE
    return [data[at : at + RECORD_SIZE].rstrip().decode() for at in range(0, whole, RECORD_SIZE)]


class Leader(asyncio.Protocol):
    """The leader's process: sends of its own, and one follower at a time.

    With `waits_for_disks` False it acknowledges what was written and sent: a bug to be found.
    """

    def __init__(
        self,
        host: SimulatedHost,
        history: MessageHistory,
        next_message: Callable[[], str | None],
        *,
        waits_for_disks: bool = True,
    ) -> None:
        self._host = host
        self._history = history
        self._next_message = next_message
        self._waits_for_disks = waits_for_disks
        self._unacknowledged: list[tuple[int, RecordedSend]] = []
        self._follower: _FollowerConnection | None = None
        self.log = ToyLog(host, self._progress)
        torn = self.log.length % RECORD_SIZE
        assert torn == 0, "records are written as a whole, and synced as a whole"
        host.listen(PORT, lambda: _FollowerConnection(self))
        host.call_soon(self._send)
        host.call_soon(self._beat)

    def attach(self, follower: _FollowerConnection) -> None:
        """Serve this follower from now on, and no other."""
        before, self._follower = self._follower, follower
        if before is not None and before is not follower:
            before.transport.abort()
        follower.feed()

    def _progress(self) -> None:
        """Feed the follower, and acknowledge what both have."""
        if self._follower is not None:
            self._follower.feed()
        self.acknowledge()

    def acknowledge(self) -> None:
        follower = 0 if self._follower is None else self._follower.durable
        reached = min(self.log.durable, follower) if self._waits_for_disks else self.log.length
        while self._unacknowledged and self._unacknowledged[0][0] + RECORD_SIZE <= reached:
            offset, send = self._unacknowledged.pop(0)
            send.acknowledged(QUEUE, offset // RECORD_SIZE)

    def _send(self) -> None:
        if (message := self._next_message()) is not None:
            send = self._history.attempt(message, QUEUE)
            self._unacknowledged.append((self.log.length, send))
            self.log.append(message.encode().ljust(RECORD_SIZE))
            self._progress()
        self._host.call_later_ms(5, self._send, "sends")

    def _beat(self) -> None:
        if self._follower is not None:
            self._follower.beat()
        self._host.call_later_ms(_HEARTBEAT_MS, self._beat, "beats")


class _FollowerConnection(asyncio.Protocol):
    """The leader's side of a connection."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._bytes = bytearray()
        self._fed: int | None = None  # None until the follower said what it has
        self.durable = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while len(self._bytes) >= _REPORT.size:
            (self.durable,) = _REPORT.unpack_from(self._bytes)
            del self._bytes[: _REPORT.size]
            if self._fed is None:
                self._fed = self.durable
                self._leader.attach(self)
            self._leader.acknowledge()

    def feed(self) -> None:
        """Send what the leader's disk has, while there is room for it."""
        log = self._leader.log
        while (
            self._fed is not None
            and self._fed < log.durable
            and self.transport.get_write_buffer_size() == 0
            and not self.transport.is_closing()
        ):
            data = log.read(self._fed, min(log.durable, self._fed + _FRAME_SIZE_MAX))
            self.transport.write(_FRAME.pack(self._fed, len(data)) + data)
            self._fed += len(data)

    def beat(self) -> None:
        if self._fed is not None and self.transport.get_write_buffer_size() == 0:
            self.transport.write(_FRAME.pack(self._fed, 0))
        self.feed()


class Follower:
    """The follower's process: dials until it is connected, and again after each loss."""

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host
        self.connection: _LeaderConnection | None = None
        self.log = ToyLog(host, self._grew)
        host.call_soon(self.dial)

    def dial(self) -> None:
        self.host.connect(
            ("leader", PORT), lambda: _LeaderConnection(self), failed=lambda error: self.redial()
        )

    def redial(self) -> None:
        self.connection = None
        self.host.call_later_ms(_REDIAL_MS, self.dial, "dials")

    def _grew(self) -> None:
        if self.connection is not None:
            self.connection.report()


class _LeaderConnection(asyncio.Protocol):
    """The follower's side of a connection; it gives up a leader that is silent."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._bytes = bytearray()
        self._heard_ms = 0
        self._reported = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._follower.connection = self
        self._heard_ms = self._follower.host.clock.monotonic_ms()
        self.report()
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._heard_ms = self._follower.host.clock.monotonic_ms()
        self._bytes += data
        log = self._follower.log
        while len(self._bytes) >= _FRAME.size:
            offset, length = _FRAME.unpack_from(self._bytes)
            end = _FRAME.size + length
            if len(self._bytes) < end:
                return
            new = bytes(self._bytes[_FRAME.size : end])
            del self._bytes[:end]
            assert offset <= log.length, "a gap"
            new = new[log.length - offset :]  # written before, and perhaps not synced yet
            if new:
                log.append(new)

    def connection_lost(self, error: Exception | None) -> None:
        self._follower.redial()

    def report(self) -> None:
        """Report the length that the disk has, once all that was found at the start is synced."""
        log = self._follower.log
        if log.durable > self._reported and not self._transport.is_closing():
            self._reported = log.durable
            self._transport.write(_REPORT.pack(log.durable))

    def _watch(self) -> None:
        host = self._follower.host
        if self._transport.is_closing():
            return
        if host.clock.monotonic_ms() - self._heard_ms > _SILENCE_MS:
            self._transport.abort()
        else:
            host.call_later_ms(_SILENCE_MS, self._watch, "watches")


def log_of(host: SimulatedHost) -> list[str]:
    """Read a host's log from outside."""
    path = host.disk.root / "log"
    return records(path.read_bytes()) if path.exists() else []
