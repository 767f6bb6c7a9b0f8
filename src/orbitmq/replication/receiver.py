"""The slave's side of the connection to its master: what to write, what to report and when, when to
give the master up.

Sans-IO: received bytes and `now_ms` (monotonic) come in, pieces of the log and reports go out; the
caller owns socket and store. A report says how much of the log this slave has as durably as it is
configured: with SYNC_FLUSH, what is flushed. The original reports what is in its page cache.

Invariant: reports never decrease; only the newest one is worth sending.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from orbitmq.common.errors import ProtocolError
from orbitmq.replication.classic_frames import FramePiece, FrameReader, encode_report
from orbitmq.replication.sender import Rate
from orbitmq.store.types import LogOffset


class ReceiverSettings(Protocol):
    """The intervals of a slave's connection; they may change while it is open."""

    @property
    def ha_send_heartbeat_interval(self) -> int: ...
    @property
    def ha_housekeeping_interval(self) -> int: ...


class LogReceiver:
    """One connection, from the first report on."""

    def __init__(self, settings: ReceiverSettings, now_ms: int) -> None:
        self._settings = settings
        self._frames = FrameReader()
        self._reported: LogOffset | None = None
        self.heard_ms = now_ms
        self.wrote_ms = now_ms
        self.received = Rate(now_ms)

    def feed(self, data: bytes, now_ms: int) -> Iterator[FramePiece]:
        """Take received bytes, and yield the pieces of the log in them.

        ProtocolError if they are not of a master.
        """
        self.heard_ms = now_ms
        self.received.add(len(data), now_ms)
        return self._frames.feed(data)

    def check_heartbeat(self, offset: LogOffset, received_end: LogOffset) -> None:
        """Check that the master continues where this log ends; ProtocolError if not."""
        if offset != received_end:
            raise ProtocolError(
                f"the master continues at {offset}, but this log ends at {received_end}"
            )

    def report(self, end: LogOffset, now_ms: int) -> bytes | None:
        """Return the report to send now; None if the last one says the same, and is young."""
        interval_ms = self._settings.ha_send_heartbeat_interval
        if end == self._reported and now_ms - self.wrote_ms < interval_ms:
            return None
        self._reported = end
        self.wrote_ms = now_ms
        return encode_report(end)

    def is_silent(self, now_ms: int) -> bool:
        """Return whether the master has sent nothing for too long."""
        return now_ms - self.heard_ms > self._settings.ha_housekeeping_interval
