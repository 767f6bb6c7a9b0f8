# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: scans contiguous valid records, as fast as their checksums allow.

Knows one buffer, no files. A record is valid here if it parses and states its own offset.
"""

import cython

from orbitmq.common.mem import Buffer

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address
    from cython.cimports.orbitmq.message.record_read import RecordCursor, move
else:
    from orbitmq.common.mem import address
    from orbitmq.message.record_read import RecordCursor, move

RECENT = cython.declare(cython.longlong, 16)


class RecordScanner:
    """Scans records and keeps the position after the last valid one, the result of the read there,
    and of the valid ones their count, the last store time, and the earliest of the last 16 to 32.
    """

    def __init__(self) -> None:
        self.at = self.count = self.result = self.store_time_ms = self._low_ms = (
            self._low_before_ms
        ) = 0

    @property
    def recent_time_ms(self) -> int:
        """The earliest store time of the last records: some may be corrupt, but hardly all."""
        return min(self._low_ms, self._low_before_ms)

    def scan(
        self,
        cursor: RecordCursor,
        buffer: Buffer,
        at: cython.Py_ssize_t,
        until: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        start: cython.longlong,
        check_body: cython.bint,
        check_record: cython.bint,
    ) -> bool:
        """Read records of buffer[:end], whose first byte has the log offset `start`, from `at` on;
        return whether `until` was reached.

        If not, `result` is what `RecordCursor.read` returned at `at`: a size if the record there is
        valid but states another offset.
        """
        if at < 0 or end > len(buffer):
            raise ValueError(f"[{at}:{end}] is not within a buffer of {len(buffer)} bytes")
        p: cython.p_const_uchar = address(buffer)
        cursor.buffer = buffer
        result: cython.Py_ssize_t = 1
        while at < until:
            result = move(cursor, p, at, end, check_body, check_record)
            if result <= 0 or cursor.log_offset != start + at:
                break
            self.take(cursor, p)
            at += result
            self.store_time_ms = cursor.store_time_ms
            if self.count % RECENT == 0:
                self._low_before_ms = self._low_ms if self.count else self.store_time_ms
                self._low_ms = self.store_time_ms
            elif self.store_time_ms < self._low_ms:
                self._low_ms = self.store_time_ms
            self.count += 1
        self.at = at
        self.result = result
        return at >= until

    def take(self, record: RecordCursor, p: cython.p_const_uchar) -> cython.int:
        """Process each valid record of the buffer at `p`: does nothing here."""
        return 0
