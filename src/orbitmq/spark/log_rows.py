# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: the run over a commit log that makes rows of the records that are wanted, by their topic and the time they were stored.

Records that never got a place in a queue, the prepared and rolled back ones of old releases, are passed over as consumers never saw them.
One whose frame and checksum are right, but whose messages cannot be taken out, makes no row and is remembered as unreadable.
"""

from collections.abc import Callable

import cython

from orbitmq.common.errors import CorruptRecord, MessageIllegal
from orbitmq.message.flags import TransactionType
from orbitmq.message.properties import decode_text
from orbitmq.store.quarantine import BadBytes
from orbitmq.store.types import LogOffset

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import same, text_bytes
    from cython.cimports.orbitmq.message.record_read import RecordCursor
    from cython.cimports.orbitmq.spark.rows import RowBuilder, put_record
    from cython.cimports.orbitmq.store.record_run import RecordRun
else:
    from orbitmq.common.mem import same, text_bytes
    from orbitmq.message.record_read import RecordCursor
    from orbitmq.spark.rows import RowBuilder, put_record
    from orbitmq.store.record_run import RecordRun

PREPARED = cython.declare(cython.int, TransactionType.PREPARED)  # a bit that rolled back ones have, too
OFFSET_MIN = cython.declare(cython.longlong, -(1 << 62))
OFFSET_MAX = cython.declare(cython.longlong, 1 << 62)


class LogRows(RecordRun):  # type: ignore[misc]  # to mypy it is whatever Cython says
    """Rows of the records that were stored at a time in [begin_ms, end_ms) and whose topic `is_wanted`."""

    __slots__ = ("_begin_ms", "_end_ms", "_is_topic_wanted", "_is_wanted", "_known", "_rows", "_topic", "unreadable")

    def __init__(self, rows: RowBuilder, is_wanted: Callable[[str], bool], begin_ms: int, end_ms: int) -> None:
        RecordRun.__init__(self)
        self.unreadable: list[BadBytes] = []
        self._rows = rows
        self._is_wanted = is_wanted
        self._known: dict[bytes, bool] = {}
        self._topic = b""
        self._is_topic_wanted = False
        self._begin_ms = begin_ms
        self._end_ms = end_ms

    def take(self, record: RecordCursor, p: cython.p_const_uchar) -> cython.int:
        if record.store_time_ms < self._begin_ms or record.store_time_ms >= self._end_ms or record.sys_flag & PREPARED:
            return 0
        if record.topic_size != len(self._topic) or not same(p, record.topic_at, self._topic, record.topic_size) or not self._topic:
            self._topic = text_bytes(p, record.topic_at, record.topic_size)
            self._is_topic_wanted = _is_wanted(self)
        if self._is_topic_wanted:
            try:
                put_record(self._rows, record, p, OFFSET_MIN, OFFSET_MAX)
            except (CorruptRecord, MessageIllegal) as problem:
                self.unreadable.append(BadBytes(LogOffset(record.log_offset), LogOffset(record.log_offset + record.size), str(problem)))
        return 0


@cython.cfunc
def _is_wanted(run: LogRows) -> cython.bint:
    known = run._known.get(run._topic)
    if known is None:
        known = run._known[run._topic] = run._is_wanted(decode_text(run._topic))
    return known
