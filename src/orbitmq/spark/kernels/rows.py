# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: converts stored records to rows of a RecordBatch; only the selected columns are read.

The records come from the reply to a pull or from a piece of a commit log (`log_rows`). Ordinary
records are decoded without an object each. Records with a compressed body or with several messages
are unpacked by `StoredMessage` and written back as ordinary ones.

Invariant: rows are in the order of their records; a record adds all of its rows or none.
"""

from collections.abc import Sequence

import cython
import pyarrow as pa

from orbitmq.common.errors import CorruptRecordError, InvalidMessageError
from orbitmq.common.mem import Buffer
from orbitmq.message import flags
from orbitmq.message.record import flaw_text
from orbitmq.message.record_write import encode, record_size
from orbitmq.spark import schema

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address
    from cython.cimports.orbitmq.message.record_read import RecordCursor, move
    from cython.cimports.orbitmq.spark.kernels.columns import (
        BytesColumn,
        ColumnBuilder,
        ConstantColumn,
        HostColumn,
        IdColumn,
        NumberColumn,
        TextColumn,
        TimeColumn,
    )
    from cython.cimports.orbitmq.spark.kernels.property_column import (
        PropertyColumn,
        find_properties,
    )
    from cython.cimports.orbitmq.spark.kernels.record_table import RecordTable, add_record
else:
    from orbitmq.common.mem import address
    from orbitmq.message.record_read import RecordCursor, move
    from orbitmq.spark.kernels.columns import (
        BytesColumn,
        ColumnBuilder,
        ConstantColumn,
        HostColumn,
        IdColumn,
        NumberColumn,
        TextColumn,
        TimeColumn,
    )
    from orbitmq.spark.kernels.property_column import PropertyColumn, find_properties
    from orbitmq.spark.kernels.record_table import RecordTable, add_record

BODY_SIZE_MAX = 64 << 20  # of a decompressed body
ROOM_MIN = cython.declare(cython.Py_ssize_t, 1024)
COMPRESSED = cython.declare(cython.int, flags.COMPRESSED)
WRAPPED = cython.declare(cython.int, flags.NEED_UNWRAP | flags.INNER_BATCH)

_COLUMN_TYPES = {
    "topic": lambda kind: TextColumn(kind, "topic", False),
    "brokerName": ConstantColumn,
    "queueId": lambda kind: NumberColumn(kind, "queue_id"),
    "queueOffset": lambda kind: NumberColumn(kind, "queue_offset"),
    "commitLogOffset": lambda kind: NumberColumn(kind, "log_offset"),
    "msgId": IdColumn,
    "uniqueKey": lambda kind: TextColumn(kind, "unique_key", True),
    "keys": lambda kind: TextColumn(kind, "keys", True),
    "tags": lambda kind: TextColumn(kind, "tags", True),
    "body": lambda kind: BytesColumn(kind, "body"),
    "properties": PropertyColumn,
    "bornTimestamp": lambda kind: TimeColumn(kind, "born_time_ms"),
    "storeTimestamp": lambda kind: TimeColumn(kind, "store_time_ms"),
    "bornHost": lambda kind: HostColumn(kind, "born_host"),
    "storeHost": lambda kind: HostColumn(kind, "store_host"),
    "reconsumeTimes": lambda kind: NumberColumn(kind, "reconsume_times"),
    "sysFlag": lambda kind: NumberColumn(kind, "sys_flag"),
    "flag": lambda kind: NumberColumn(kind, "flag"),
}
_PROPERTY_COLUMNS = frozenset(("uniqueKey", "keys", "tags", "properties"))


class UnreadableRecordError(CorruptRecordError):
    """A record that cannot become a row. `offset` is its queue offset, None if unknown; `end` is
    the position after it.
    """

    def __init__(self, why: str, offset: int | None, end: int) -> None:
        super().__init__(why)
        self.offset = offset
        self.end = end


class RowBuilder:
    """Builds RecordBatches: `add` records, then `take` the batch. `check_body` verifies body
    checksums.
    """

    def __init__(self, columns: Sequence[str], check_body: bool = True) -> None:
        self.columns = tuple(columns)
        self._schema = schema.arrow_schema(self.columns)
        self._check_body = check_body
        self._cursor = RecordCursor()
        self._inner = RecordCursor()
        self._table = RecordTable()
        self._filled = self._filled_before = self._room = 0
        wanted = {name: _COLUMN_TYPES[name](schema.COLUMNS[name].arrow) for name in self.columns}
        self._wanted = list(wanted.values())
        self._broker_name = wanted.get("brokerName")
        self._properties = wanted.get("properties")
        self._body = wanted.get("body")
        self._reads_properties = not _PROPERTY_COLUMNS.isdisjoint(wanted)

    @property
    def size(self) -> int:
        """The number of rows since the last batch."""
        return self._filled + self._table.count

    @property
    def body_bytes(self) -> int:
        """The approximate size of the bodies since the last batch; 0 if the column is not
        selected.
        """
        return 0 if self._body is None else self._body.used

    def set_broker(self, name: str) -> None:
        """Set the broker name of the following records."""
        _flush_table(self)
        if self._broker_name is not None:
            self._broker_name.text = name.encode()

    def add(
        self,
        buffer: Buffer,
        begin: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        broker_name: str,
        first_offset: cython.longlong,
        end_offset: cython.longlong,
    ) -> int:
        """Add the messages of one queue in buffer[begin:end] with an offset in [first_offset,
        end_offset); return their number.

        Raises UnreadableRecordError at the first record that is corrupt or cannot be unpacked; rows
        before it are added, and the bytes after it may be added next.
        """
        if begin < 0 or begin > end or end > len(buffer):
            raise ValueError(f"[{begin}:{end}] exceeds a buffer of {len(buffer)} bytes")
        if begin == end:
            return 0
        self.set_broker(broker_name)
        p: cython.p_const_uchar = address(buffer)
        cursor: RecordCursor = self._cursor
        cursor.buffer = buffer
        before: cython.Py_ssize_t = self._filled
        at: cython.Py_ssize_t = begin
        result: cython.Py_ssize_t
        try:
            while at < end:
                result = move(cursor, p, at, end, self._check_body, False)
                if result <= 0:
                    raise CorruptRecordError(
                        f"invalid record at {at} of {end} bytes: {flaw_text(result)}"
                    )
                put_record(self, cursor, p, first_offset, end_offset)
                at += result
        except (CorruptRecordError, InvalidMessageError) as problem:
            result = move(cursor, p, at, end, False, False)
            if result <= 0:
                raise UnreadableRecordError(str(problem), None, end) from problem
            raise UnreadableRecordError(str(problem), cursor.queue_offset, at + result) from problem
        finally:
            _flush_table(self)  # the caller may reuse the buffer
            cursor.buffer = b""
        return self._filled - before

    def take(self) -> pa.RecordBatch:
        """Return all rows since the last batch."""
        _flush_table(self)
        if self._filled == 0:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        batch = pa.RecordBatch.from_arrays(
            [column.array(self._filled) for column in self._wanted], schema=self._schema
        )
        self._filled_before = self._filled
        self._filled = self._room = 0
        for column in self._wanted:
            column.clear()
        return batch


@cython.cfunc
def put_record(
    rows: RowBuilder,
    record: RecordCursor,
    p: cython.p_const_uchar,
    first_offset: cython.longlong,
    end_offset: cython.longlong,
) -> cython.int:
    """Add the messages of the record at the cursor with an offset in [first_offset, end_offset)."""
    wrapped: cython.bint = record.sys_flag & WRAPPED == WRAPPED
    if wrapped or (record.sys_flag & COMPRESSED and rows._body is not None):
        _put_unwrapped(rows, record, first_offset, end_offset)
    elif first_offset <= record.queue_offset < end_offset:
        _put(rows, record, p)
    return 0


@cython.cfunc
def _put_unwrapped(
    rows: RowBuilder,
    record: RecordCursor,
    first_offset: cython.longlong,
    end_offset: cython.longlong,
) -> cython.int:
    """Add the messages inside a record. Raises CorruptRecordError or InvalidMessageError, and adds
    none, if they cannot be unpacked.
    """
    inner: RecordCursor = rows._inner
    target: bytearray
    size: cython.Py_ssize_t
    for stored in record.message().inflated(BODY_SIZE_MAX).inner_messages():
        if first_offset <= stored.queue_offset < end_offset:
            message = stored.to_message()
            size = record_size(message, stored.store_host)
            target = bytearray(size)
            encode(
                message,
                target,
                0,
                stored.queue_offset,
                stored.log_offset,
                stored.store_time_ms,
                stored.store_host,
            )
            inner.read(target, 0, size, False)
            _put(rows, inner, address(target))
    return 0


@cython.cfunc
def _put(rows: RowBuilder, record: RecordCursor, p: cython.p_const_uchar) -> cython.int:
    """Add one row."""
    if not add_record(rows._table, record, p):
        _flush_table(rows)
        add_record(rows._table, record, p)
    return 0


@cython.cfunc
def _flush_table(rows: RowBuilder) -> cython.int:
    """Fill the columns from the table and clear it."""
    column: ColumnBuilder
    table: RecordTable = rows._table
    if table.count == 0:
        return 0
    if rows._filled + table.count > rows._room:
        rows._room = max(2 * rows._room, rows._filled + table.count, rows._filled_before, ROOM_MIN)
        for column in rows._wanted:
            column.grow(rows._room)
    if rows._reads_properties:
        find_properties(table, rows._properties, rows._filled)
    for column in rows._wanted:
        column.fill(table, rows._filled)
    rows._filled += table.count
    table.clear()
    return 0
