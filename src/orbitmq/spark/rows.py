# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: stored records become the rows of a RecordBatch that has the wanted columns, and no others are looked at.

The records are an answer to a pull, or a piece of a commit log (`log_rows`). No object is made for an ordinary one. Those whose body is
compressed or holds several messages are taken apart by `StoredMessage`, and what is in them is written as ordinary ones.

Invariant: rows are in the order of their records; a record has all of its rows, or none.
"""

from collections.abc import Sequence

import cython
import pyarrow as pa

from orbitmq.common.errors import CorruptRecord, MessageIllegal
from orbitmq.common.mem import Buffer
from orbitmq.message import flags
from orbitmq.message.record import flaw_text
from orbitmq.message.record_write import encode, record_size
from orbitmq.spark import schema

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address
    from cython.cimports.orbitmq.message.record_read import RecordCursor, move
    from cython.cimports.orbitmq.spark.columns import Bytes, Column, Constants, Hosts, Ids, Numbers, Texts, Times
    from cython.cimports.orbitmq.spark.property_column import PropertyColumn, find_properties
    from cython.cimports.orbitmq.spark.record_table import RecordTable, enter
else:
    from orbitmq.common.mem import address
    from orbitmq.message.record_read import RecordCursor, move
    from orbitmq.spark.columns import Bytes, Column, Constants, Hosts, Ids, Numbers, Texts, Times
    from orbitmq.spark.property_column import PropertyColumn, find_properties
    from orbitmq.spark.record_table import RecordTable, enter

BODY_SIZE_MAX = 64 << 20  # of a body that is inflated
ROOM_MIN = cython.declare(cython.Py_ssize_t, 1024)
COMPRESSED = cython.declare(cython.int, flags.COMPRESSED)
WRAPPED = cython.declare(cython.int, flags.NEED_UNWRAP | flags.INNER_BATCH)

_MAKERS = {
    "topic": lambda kind: Texts(kind, "topic", False),
    "brokerName": Constants,
    "queueId": lambda kind: Numbers(kind, "queue_id"),
    "queueOffset": lambda kind: Numbers(kind, "queue_offset"),
    "commitLogOffset": lambda kind: Numbers(kind, "log_offset"),
    "msgId": Ids,
    "uniqueKey": lambda kind: Texts(kind, "unique_key", True),
    "keys": lambda kind: Texts(kind, "keys", True),
    "tags": lambda kind: Texts(kind, "tags", True),
    "body": lambda kind: Bytes(kind, "body"),
    "properties": PropertyColumn,
    "bornTimestamp": lambda kind: Times(kind, "born_time_ms"),
    "storeTimestamp": lambda kind: Times(kind, "store_time_ms"),
    "bornHost": lambda kind: Hosts(kind, "born_host"),
    "storeHost": lambda kind: Hosts(kind, "store_host"),
    "reconsumeTimes": lambda kind: Numbers(kind, "reconsume_times"),
    "sysFlag": lambda kind: Numbers(kind, "sys_flag"),
    "flag": lambda kind: Numbers(kind, "flag"),
}
_OF_PROPERTIES = frozenset(("uniqueKey", "keys", "tags", "properties"))


class UnreadableRecord(CorruptRecord):
    """A record of which no row can be made; `offset` is its place in the queue, None if that cannot be read, and `end` is behind it."""

    def __init__(self, why: str, offset: int | None, end: int) -> None:
        super().__init__(why)
        self.offset = offset
        self.end = end


class RowBuilder:
    """Records are added, then the batch of their rows is taken, and so on. `check_body` compares the checksums of bodies."""

    __slots__ = (
        "_body", "_broker_name", "_check_body", "_cursor", "_filled", "_filled_before", "_inner", "_properties", "_reads_properties",
        "_room", "_schema", "_table", "_wanted", "columns",
    )  # fmt: skip

    def __init__(self, columns: Sequence[str], check_body: bool = True) -> None:
        self.columns = tuple(columns)
        self._schema = schema.arrow_schema(self.columns)
        self._check_body = check_body
        self._cursor = RecordCursor()
        self._inner = RecordCursor()
        self._table = RecordTable()
        self._filled = self._filled_before = self._room = 0
        wanted = {name: _MAKERS[name](schema.COLUMNS[name].arrow) for name in self.columns}
        self._wanted = list(wanted.values())
        self._broker_name = wanted.get("brokerName")
        self._properties = wanted.get("properties")
        self._body = wanted.get("body")
        self._reads_properties = not _OF_PROPERTIES.isdisjoint(wanted)

    @property
    def size(self) -> int:
        """How many rows there are since the last batch."""
        return self._filled + self._table.count

    @property
    def body_bytes(self) -> int:
        """How many bytes the bodies of these rows have together, of most of them at least; 0 if bodies are not wanted."""
        return 0 if self._body is None else self._body.used

    def set_broker(self, name: str) -> None:
        """Whose records are added from now on."""
        _empty(self)
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
        """Add the messages of one queue that have an offset in [first_offset, end_offset) and stand in buffer[begin:end]; how many.

        UnreadableRecord at the first record that is not good, or whose messages cannot be taken out; the rows of those before it
        are there, and what stands behind it may be added.
        """
        if begin < 0 or begin > end or end > len(buffer):
            raise ValueError(f"[{begin}:{end}] is not within a buffer of {len(buffer)} bytes")
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
                    raise CorruptRecord(f"no record at {at} of {end} bytes: {flaw_text(result)}")
                put_record(self, cursor, p, first_offset, end_offset)
                at += result
        except (CorruptRecord, MessageIllegal) as problem:
            result = move(cursor, p, at, end, False, False)
            if result <= 0:
                raise UnreadableRecord(str(problem), None, end) from problem
            raise UnreadableRecord(str(problem), cursor.queue_offset, at + result) from problem
        finally:
            _empty(self)  # the buffer is the caller's again
            cursor.buffer = b""
        return self._filled - before

    def take(self) -> pa.RecordBatch:
        """All rows since the last time."""
        _empty(self)
        if self._filled == 0:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        batch = pa.RecordBatch.from_arrays([column.array(self._filled) for column in self._wanted], schema=self._schema)
        self._filled_before = self._filled
        self._filled = self._room = 0
        for column in self._wanted:
            column.clear()
        return batch


@cython.cfunc
def put_record(
    rows: RowBuilder, record: RecordCursor, p: cython.p_const_uchar, first_offset: cython.longlong, end_offset: cython.longlong
) -> cython.int:
    """Add the messages of the record that the cursor is on, in its buffer at `p`, whose queue offset is one of these."""
    wrapped: cython.bint = record.sys_flag & WRAPPED == WRAPPED
    if wrapped or (record.sys_flag & COMPRESSED and rows._body is not None):
        _put_unwrapped(rows, record, first_offset, end_offset)
    elif first_offset <= record.queue_offset < end_offset:
        _put(rows, record, p)
    return 0


@cython.cfunc
def _put_unwrapped(rows: RowBuilder, record: RecordCursor, first_offset: cython.longlong, end_offset: cython.longlong) -> cython.int:
    """Add the messages that are in a record; CorruptRecord or MessageIllegal, and none is added, when they cannot be taken out."""
    inner: RecordCursor = rows._inner
    target: bytearray
    size: cython.Py_ssize_t
    for stored in record.message().inflated(BODY_SIZE_MAX).inner_messages():
        if first_offset <= stored.queue_offset < end_offset:
            message = stored.to_message()
            size = record_size(message, stored.store_host)
            target = bytearray(size)
            encode(message, target, 0, stored.queue_offset, stored.log_offset, stored.store_time_ms, stored.store_host)
            inner.read(target, 0, size, False)
            _put(rows, inner, address(target))
    return 0


@cython.cfunc
def _put(rows: RowBuilder, record: RecordCursor, p: cython.p_const_uchar) -> cython.int:
    """Add one row."""
    if not enter(rows._table, record, p):
        _empty(rows)
        enter(rows._table, record, p)
    return 0


@cython.cfunc
def _empty(rows: RowBuilder) -> cython.int:
    """Fill the columns with what is in the table."""
    column: Column
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
