# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: scans a commit log and builds rows of the records selected by topic and store time.

Records without a place in a queue, such as prepared and rolled-back ones of old releases, are
skipped, because consumers never saw them. A record with a valid frame and checksum whose messages
cannot be extracted makes no row and is listed in `unreadable`.
"""

from collections.abc import Callable

import cython

from orbitmq.common.errors import CorruptRecordError, InvalidMessageError
from orbitmq.message.flags import TransactionType
from orbitmq.message.properties import decode_text
from orbitmq.store.quarantine import BadBytes
from orbitmq.store.types import LogOffset

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import same, text_bytes
    from cython.cimports.orbitmq.message.record_read import RecordCursor
    from cython.cimports.orbitmq.spark.kernels.rows import RowBuilder, put_record
    from cython.cimports.orbitmq.store.record_scanner import RecordScanner
else:
    from orbitmq.common.mem import same, text_bytes
    from orbitmq.message.record_read import RecordCursor
    from orbitmq.spark.kernels.rows import RowBuilder, put_record
    from orbitmq.store.record_scanner import RecordScanner

PREPARED = cython.declare(cython.int, TransactionType.PREPARED)  # also set in rolled-back ones
OFFSET_MIN = cython.declare(cython.longlong, -(1 << 62))
OFFSET_MAX = cython.declare(cython.longlong, 1 << 62)


class LogRows(RecordScanner):  # type: ignore[misc]  # untyped to mypy
    """Adds rows for the records with a store time in [begin_ms, end_ms) whose topic `is_wanted`."""

    def __init__(
        self, rows: RowBuilder, is_wanted: Callable[[str], bool], begin_ms: int, end_ms: int
    ) -> None:
        RecordScanner.__init__(self)
        self.unreadable: list[BadBytes] = []
        self._rows = rows
        self._is_wanted = is_wanted
        self._known: dict[bytes, bool] = {}
        self._topic = b""
        self._is_topic_wanted = False
        self._begin_ms = begin_ms
        self._end_ms = end_ms

    def take(self, record: RecordCursor, p: cython.p_const_uchar) -> cython.int:
        """Add the record at the cursor if it is selected."""
        if (
            record.store_time_ms < self._begin_ms
            or record.store_time_ms >= self._end_ms
            or record.sys_flag & PREPARED
        ):
            return 0
        if (
            record.topic_size != len(self._topic)
            or not same(p, record.topic_at, self._topic, record.topic_size)
            or not self._topic
        ):
            self._topic = text_bytes(p, record.topic_at, record.topic_size)
            self._is_topic_wanted = _is_wanted(self)
        if self._is_topic_wanted:
            try:
                put_record(self._rows, record, p, OFFSET_MIN, OFFSET_MAX)
            except (CorruptRecordError, InvalidMessageError) as problem:
                self.unreadable.append(
                    BadBytes(
                        LogOffset(record.log_offset),
                        LogOffset(record.log_offset + record.size),
                        str(problem),
                    )
                )
        return 0


@cython.cfunc
def _is_wanted(run: LogRows) -> cython.bint:
    known = run._known.get(run._topic)
    if known is None:
        known = run._known[run._topic] = run._is_wanted(decode_text(run._topic))
    return known
