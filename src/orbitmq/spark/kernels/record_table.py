# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: a table of the positions and numeric fields of up to some hundred records, from which
columns are filled.

All records of a table are in one buffer, which the table keeps alive. Field `f` of record `i` is
`fields[i * WIDTH + f]`.
"""

from typing import Any

import cython

from orbitmq.common.mem import Buffer
from orbitmq.message import flags

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address
    from cython.cimports.orbitmq.message.record_read import RecordCursor
else:
    from orbitmq.common.mem import address
    from orbitmq.message.record_read import RecordCursor

# fmt: off
FIELDS = (  # positions are in the buffer; `find_properties` sets the last seven
    "at", "topic_at", "topic_size", "body_at", "body_size", "properties_at", "properties_size",
    "born_host_at", "born_host_size",
    "store_host_at", "store_host_size", "queue_id", "queue_offset", "log_offset", "born_time_ms",
    "store_time_ms", "reconsume_times",
    "sys_flag", "flag", "has_texts", "keys_at", "keys_size", "tags_at", "tags_size",
    "unique_key_at", "unique_key_size",
)
# fmt: on
FIELD_INDEX = {name: number for number, name in enumerate(FIELDS)}
WIDTH = cython.declare(cython.Py_ssize_t, len(FIELDS))
# Few enough that the records stay in the CPU cache while all columns read them.
ROWS_MAX = cython.declare(cython.Py_ssize_t, 256)
AT = cython.declare(cython.Py_ssize_t, FIELD_INDEX["at"])
TOPIC = cython.declare(cython.Py_ssize_t, FIELD_INDEX["topic_at"])
BODY = cython.declare(cython.Py_ssize_t, FIELD_INDEX["body_at"])
PROPERTIES = cython.declare(cython.Py_ssize_t, FIELD_INDEX["properties_at"])
BORN_HOST = cython.declare(cython.Py_ssize_t, FIELD_INDEX["born_host_at"])
STORE_HOST = cython.declare(cython.Py_ssize_t, FIELD_INDEX["store_host_at"])
NUMBERS = cython.declare(cython.Py_ssize_t, FIELD_INDEX["queue_id"])
BORN_HOST_V6 = cython.declare(cython.int, flags.BORN_HOST_V6)
STORE_HOST_V6 = cython.declare(cython.int, flags.STORE_HOST_V6)
COMPRESSED = cython.declare(cython.int, flags.COMPRESSED)


class RecordTable:
    """Positions and fields of `count` records in the buffer at `p`."""

    def __init__(self) -> None:
        self.count = 0
        self._buffer: Buffer = b""
        self.p: Any = address(self._buffer)
        self.fields: Any
        self._memory: Any
        if cython.compiled:
            self._memory = bytearray(8 * WIDTH * ROWS_MAX)
            self.fields = cython.cast(cython.p_longlong, address(self._memory))
        else:
            self._memory = self.fields = [0] * (WIDTH * ROWS_MAX)

    def clear(self) -> None:
        """Drop the records and their buffer."""
        self.count = 0
        self._buffer = b""


@cython.cfunc
def add_record(table: RecordTable, record: RecordCursor, p: cython.p_const_uchar) -> cython.bint:
    """Add the record at the cursor, whose buffer starts at `p`. Returns False, with nothing
    changed, if the table is full or holds records of another buffer.
    """
    if table.count == ROWS_MAX or (table.count and table._buffer is not record.buffer):
        return False
    table._buffer = record.buffer
    table.p = p
    at: cython.Py_ssize_t = table.count * WIDTH
    store_host_size: cython.Py_ssize_t = 20 if record.sys_flag & STORE_HOST_V6 else 8
    table.fields[at + AT] = record.at
    table.fields[at + TOPIC] = record.topic_at
    table.fields[at + TOPIC + 1] = record.topic_size
    table.fields[at + BODY] = record.body_at
    table.fields[at + BODY + 1] = record.body_size
    table.fields[at + PROPERTIES] = record.properties_at
    table.fields[at + PROPERTIES + 1] = record.properties_size
    table.fields[at + BORN_HOST] = record.at + 48
    table.fields[at + BORN_HOST + 1] = 20 if record.sys_flag & BORN_HOST_V6 else 8
    table.fields[at + STORE_HOST] = record.body_at - 16 - store_host_size
    table.fields[at + STORE_HOST + 1] = store_host_size
    table.fields[at + NUMBERS] = record.queue_id
    table.fields[at + NUMBERS + 1] = record.queue_offset
    table.fields[at + NUMBERS + 2] = record.log_offset
    table.fields[at + NUMBERS + 3] = record.born_time_ms
    table.fields[at + NUMBERS + 4] = record.store_time_ms
    table.fields[at + NUMBERS + 5] = record.reconsume_times
    table.fields[at + NUMBERS + 6] = record.sys_flag & ~COMPRESSED
    table.fields[at + NUMBERS + 7] = record.flag
    table.count += 1
    return True
