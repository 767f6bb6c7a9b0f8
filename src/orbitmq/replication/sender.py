"""The master's side of the connection to one slave: where to begin, what to send next, when to send
a heartbeat, when to give the slave up.

Sans-IO: reports, the bounds of the log and `now_ms` (monotonic) come in, slices of the log go out;
the caller owns socket and files. Nothing is sent before the first report. A slave with an empty log
gets the whole log, or with `from_last_file`, as the original does it, its last file; every other
one continues where its log ends, which must be within the log. The original serves a slave whose
log ends beyond its own, counts its reports, and appends its own bytes to the foreign log: here that
slave is refused, and its report counts for nothing.

Invariants: slices are contiguous, within one file and before the log's end; a report moves
`acknowledged` forward only, and never beyond the log's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from orbitmq.common.errors import ProtocolError
from orbitmq.store.types import LogOffset

_SECOND_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderLimits:
    """Intervals and sizes of a connection."""

    heartbeat_interval_ms: int = 5_000
    silence_ms_max: int = 20_000
    body_size_max: int = 32_768
    bytes_per_second_max: int | None = None
    from_last_file: bool = False


class LogBounds(NamedTuple):
    """The log of the master, at this moment."""

    begin: LogOffset
    end: LogOffset
    file_size: int


class Slice(NamedTuple):
    """Bytes of the log to send; of a heartbeat, none."""

    offset: LogOffset
    size: int


class Rate:
    """Bytes per second, in whole seconds."""

    def __init__(self, now_ms: int) -> None:
        self._second = now_ms // _SECOND_MS
        self._before = 0
        self.bytes = 0  # in this second

    def add(self, size: int, now_ms: int) -> None:
        self.turn(now_ms)
        self.bytes += size

    def per_second(self, now_ms: int) -> int:
        """Return the bytes of the last complete second."""
        self.turn(now_ms)
        return self._before

    def turn(self, now_ms: int) -> None:
        """Begin another second if it is time."""
        second = now_ms // _SECOND_MS
        if second != self._second:
            self._before = self.bytes if second == self._second + 1 else 0
            self._second, self.bytes = second, 0


class LogSender:
    """What one slave has been sent, and has acknowledged."""

    def __init__(self, limits: SenderLimits, now_ms: int) -> None:
        self.limits = limits
        self.acknowledged: LogOffset | None = None  # None: it has not reported yet
        self.first_offset = LogOffset(0)  # of what this connection sends
        self.next_offset = LogOffset(0)
        self.sent = Rate(now_ms)
        self._heard_ms = now_ms
        self._wrote_ms = now_ms

    def reported(self, offset: LogOffset, log: LogBounds, now_ms: int) -> None:
        """Take a report; ProtocolError if this slave cannot follow this log."""
        self._heard_ms = now_ms
        if offset > log.end:
            raise ProtocolError(
                f"its log ends at {offset}, beyond this log's end {log.end}: it has messages that"
                " this master lacks. If they may go, reset it: orbitmq replica reset"
            )
        if self.acknowledged is None:
            begin = offset or self._begin_of_empty(log)
            self._check_begin(begin, log)
            self.first_offset = self.next_offset = begin
            self.acknowledged = offset
        elif offset > self.next_offset:
            raise ProtocolError(
                f"it reported {offset}, but was sent the log up to {self.next_offset} only"
            )
        else:
            self.acknowledged = max(self.acknowledged, offset)

    def next_slice(self, log: LogBounds, now_ms: int) -> Slice | None:
        """Return what to send now; None if there is nothing, or the rate is used up.

        ProtocolError if what comes next was deleted.
        """
        if self.acknowledged is None:
            return None
        self._check_begin(self.next_offset, log)
        size = min(
            log.end - self.next_offset,
            log.file_size - self.next_offset % log.file_size,
            self.limits.body_size_max,
            self._rate_left(now_ms),
        )
        if size > 0:
            taken = Slice(self.next_offset, size)
            self.next_offset = LogOffset(self.next_offset + size)
            self.sent.add(size, now_ms)
            self._wrote_ms = now_ms
            return taken
        if now_ms - self._wrote_ms >= self.limits.heartbeat_interval_ms:
            self._wrote_ms = now_ms
            return Slice(self.next_offset, 0)
        return None

    def is_silent(self, now_ms: int) -> bool:
        """Return whether the slave has sent nothing for too long."""
        return now_ms - self._heard_ms > self.limits.silence_ms_max

    def _begin_of_empty(self, log: LogBounds) -> LogOffset:
        """Return where the log of a slave begins that has none."""
        if not self.limits.from_last_file:
            return log.begin
        return LogOffset(max(log.end - log.end % log.file_size, log.begin))

    def _check_begin(self, offset: LogOffset, log: LogBounds) -> None:
        if offset < log.begin:
            raise ProtocolError(
                f"its log ends at {offset}, before this log's first byte {log.begin}: the files"
                " between were deleted. Reset it: orbitmq replica reset"
            )

    def _rate_left(self, now_ms: int) -> int:
        if self.limits.bytes_per_second_max is None:
            return self.limits.body_size_max
        self.sent.turn(now_ms)
        return self.limits.bytes_per_second_max - self.sent.bytes
