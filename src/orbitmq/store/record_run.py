# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: goes over good records that stand one behind the other, as fast as their checksums let it.

Knows one buffer, no files. A record is good here if it reads as one, and says that it is where it is.
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


class RecordRun:
    """How far the last `go` came: the position behind the last good record, what the read there gave, and of the good ones so far
    their number, the store time of the last, and the earliest of the last 16 to 32."""

    __slots__ = ("_low_before_ms", "_low_ms", "at", "count", "result", "store_time_ms")

    def __init__(self) -> None:
        self.at = self.count = self.result = self.store_time_ms = self._low_ms = self._low_before_ms = 0

    @property
    def recent_time_ms(self) -> int:
        """The earliest store time of the last records: some of them may be damaged, but hardly all."""
        return min(self._low_ms, self._low_before_ms)

    def go(
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
        """Read records of buffer[:end], whose first byte has the log offset `start`, from `at` on; whether `until` was reached.

        If not, `result` is what `RecordCursor.read` gave at `at`; a size, if a good record stands there that says it is elsewhere.
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
        """What is done with each good record of the buffer at `p`: nothing, here."""
        return 0
