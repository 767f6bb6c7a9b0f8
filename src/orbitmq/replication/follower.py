"""Follows a master: writes its log into this store, and reports how much of it is here.

`MasterConnection` is one connection, on any asyncio transport; `LogFollower` owns the present one
and what outlives it. Each connection begins where the last complete record of this log ends. With
SYNC_FLUSH the first report waits until everything is flushed, for it is an acknowledgement too.

A slave never cuts its log: if the master's log does not continue this one, the connection is
closed, and `problem` says why until one succeeds. Bytes that are written and not flushed are
limited by `UNFLUSHED_MAX`: above it nothing is read from the socket. Thread rule: the loop thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from orbitmq.common.clock import Clock
from orbitmq.common.errors import ProtocolError, StoreError
from orbitmq.replication.receiver import LogReceiver, ReceiverSettings
from orbitmq.store.config import FlushMode
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset

UNFLUSHED_MAX: Final = 64 << 20
log = logging.getLogger(__name__)


class LogFollower:
    """The slave's side of replication."""

    def __init__(self, *, store: MessageStore, settings: ReceiverSettings, clock: Clock) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock
        self.connection: MasterConnection | None = None
        self.problem: str | None = None  # why the last connection ended
        self.master_end = LogOffset(0)  # the end of the master's log, as far as it is known

    def connect(self, closed: Callable[[], object]) -> MasterConnection:
        """Return the protocol of a new connection; `closed` is called when it has ended."""
        return MasterConnection(self, closed)

    @property
    def durable_end(self) -> LogOffset:
        """How much of the log this slave has as durably as it is configured."""
        log = self.store.log
        return log.flushed_offset if self._is_sync else log.end_offset

    def log_grew(self) -> None:
        """Report what has become durable."""
        if self.connection is not None:
            self.connection.progress()

    def tick(self) -> None:
        """Report if it is time, and give up a silent master; called every second or more often."""
        if self.connection is not None:
            self.connection.tick()

    def close(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            self.connection.close("the broker stops")

    @property
    def _is_sync(self) -> bool:
        return self.store.config.flush_mode is FlushMode.SYNC


class MasterConnection(asyncio.Protocol):
    """One connection to a master."""

    def __init__(self, follower: LogFollower, closed: Callable[[], object]) -> None:
        self._follower = follower
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._is_following = False  # the first report was sent
        self._is_paused = False
        self.receiver = LogReceiver(follower.settings, follower.clock.monotonic_ms())
        self.address = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.address = f"{peer[0]}:{peer[1]}"
        follower = self._follower
        follower.connection = self
        follower.store.log.drop_received()
        log.info("master_connected address=%s", self.address)
        self.progress()

    def data_received(self, data: bytes) -> None:
        follower, store = self._follower, self._follower.store
        try:
            for offset, piece in self.receiver.feed(data, follower.clock.monotonic_ms()):
                if len(piece) or not store.log.received_end:
                    store.receive(offset, piece)
                else:
                    self.receiver.check_heartbeat(offset, store.log.received_end)
                follower.master_end = LogOffset(offset + len(piece))
                follower.problem = None
        except (ProtocolError, StoreError) as error:
            self.close(str(error))
            return
        self.progress()

    def connection_lost(self, exc: Exception | None) -> None:
        follower, self._transport = self._follower, None
        if follower.connection is self:
            follower.connection = None
        if follower.problem is None:
            follower.problem = f"the connection to {self.address} ended: {exc or 'by the master'}"
            log.warning("master_lost address=%s reason=%s", self.address, exc or "it disconnected")
        self._closed()

    def progress(self) -> None:
        """Report how much is durable; read on, or pause, by how much is not."""
        transport, follower = self._transport, self._follower
        if transport is None or transport.is_closing():
            return
        end, log_end = follower.durable_end, follower.store.log.end_offset
        if not self._is_following and end < log_end:
            return  # the master would send again what is here already
        self._is_following = True
        report = self.receiver.report(end, follower.clock.monotonic_ms())
        if report is not None:
            transport.write(report)
        unflushed = log_end - follower.store.log.flushed_offset
        if unflushed > UNFLUSHED_MAX and not self._is_paused:
            self._is_paused = True
            transport.pause_reading()
        elif unflushed <= UNFLUSHED_MAX // 2 and self._is_paused:
            self._is_paused = False
            transport.resume_reading()

    def tick(self) -> None:
        """Report if it is time; give the master up if it is silent."""
        if self.receiver.is_silent(self._follower.clock.monotonic_ms()) and not self._is_paused:
            self.close("the master sent nothing for haHousekeepingInterval")
        else:
            self.progress()

    def close(self, reason: str) -> None:
        """Close the connection, and keep the reason."""
        if self._transport is not None and not self._transport.is_closing():
            self._follower.problem = reason
            log.warning("master_closed address=%s reason=%s", self.address, reason)
            self._transport.abort()
