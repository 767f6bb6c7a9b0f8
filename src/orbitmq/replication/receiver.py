"""The slave's side of the connection to its master: what to write, what to report and when, when to
give the master up.

Sans-IO: received bytes and `now_ms` (monotonic) come in, pieces of the log and reports go out; the
caller owns socket and store. A report says how much of the log this slave has as durably as it is
configured: with SYNC_FLUSH, what is flushed. The original reports what is in its page cache.

Invariant: reports never decrease; only the newest one is worth sending.
"""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.common.errors import ProtocolError
from orbitmq.replication.classic_frames import FrameReader, Piece, encode_report
from orbitmq.replication.sender import Rate
from orbitmq.store.types import LogOffset


class Receiver:
    """One connection, from the first report on."""

    def __init__(self, *, heartbeat_interval_ms: int, silence_ms_max: int, now_ms: int) -> None:
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._silence_ms_max = silence_ms_max
        self._frames = FrameReader()
        self._reported: LogOffset | None = None
        self.heard_ms = now_ms
        self.wrote_ms = now_ms
        self.received = Rate(now_ms)

    def feed(self, data: bytes, now_ms: int) -> Iterator[Piece]:
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
        if end == self._reported and now_ms - self.wrote_ms < self._heartbeat_interval_ms:
            return None
        self._reported = end
        self.wrote_ms = now_ms
        return encode_report(end)

    def is_silent(self, now_ms: int) -> bool:
        """Return whether the master has sent nothing for too long."""
        return now_ms - self.heard_ms > self._silence_ms_max
