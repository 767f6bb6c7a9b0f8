"""The wire format between a master and its slaves in classic mode: bytes to values and back.

```
slave to master    8  long  end of the slave's log: first the place to continue at, then reports

master to slave    8  long  log offset of the first body byte
                   4  int   body size n; 0 is a heartbeat
                   n        bytes of the log, cut anywhere, never across the end of a file
```
All numbers are big-endian. There is no error message in this format: a side that does not agree
closes the connection. Knows no sockets and no log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from orbitmq.common.errors import ProtocolError
from orbitmq.store.types import LogOffset

_REPORT: Final = struct.Struct(">q")
_HEADER: Final = struct.Struct(">qi")
REPORT_SIZE: Final = _REPORT.size
HEADER_SIZE: Final = _HEADER.size
BODY_SIZE_MAX: Final = (4 << 20) - HEADER_SIZE  # the read buffer of Apache's slaves


def encode_report(offset: LogOffset) -> bytes:
    """Return the report of a slave whose log ends at `offset`."""
    return _REPORT.pack(offset)


def encode_header(offset: LogOffset, body_size: int) -> bytes:
    """Return what precedes `body_size` bytes of the log; a heartbeat has none."""
    return _HEADER.pack(offset, body_size)


class ReportReader:
    """Reads the reports of one slave."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> LogOffset | None:
        """Take received bytes; return the newest complete report, if there is one.

        ProtocolError if it is no offset.
        """
        received = self._rest + data
        end = len(received) - len(received) % REPORT_SIZE
        self._rest = received[end:]
        if not end:
            return None
        (offset,) = _REPORT.unpack_from(received, end - REPORT_SIZE)
        if offset < 0:
            raise ProtocolError(f"a slave reported {offset} as the end of its log")
        return LogOffset(offset)


class FramePiece(NamedTuple):
    """Bytes of the master's log from `offset` on; a heartbeat has none."""

    offset: LogOffset
    data: memoryview


class FrameReader:
    """Reads the frames of a master. A body is passed on in pieces, as it is received."""

    def __init__(self) -> None:
        self._header = b""
        self._offset = LogOffset(0)  # of the next body byte
        self._missing = 0  # bytes of the body

    def feed(self, data: bytes) -> Iterator[FramePiece]:
        """Take received bytes, and yield what they contain.

        ProtocolError if a header is impossible.
        """
        received = memoryview(data)
        at = 0
        while at < len(received):
            if self._missing:
                piece = received[at : at + self._missing]
                offset = self._offset
                at += len(piece)
                self._missing -= len(piece)
                self._offset = LogOffset(offset + len(piece))
                yield FramePiece(offset, piece)
                continue
            part = received[at : at + HEADER_SIZE - len(self._header)]
            self._header += part
            at += len(part)
            if len(self._header) == HEADER_SIZE:
                yield from self._begin()

    def _begin(self) -> Iterator[FramePiece]:
        offset, size = _HEADER.unpack(self._header)
        self._header = b""
        if offset < 0 or not 0 <= size <= BODY_SIZE_MAX:
            raise ProtocolError(f"a master announced {size} bytes of its log from {offset} on")
        self._offset, self._missing = LogOffset(offset), size
        if not size:
            yield FramePiece(self._offset, memoryview(b""))
