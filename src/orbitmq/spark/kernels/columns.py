# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: builders of the columns of a RecordBatch, each filled in the buffers that Arrow will use.

Each column processes a whole table of records in a tight loop over one kind of field. No data is
copied when a column becomes an array; the builder then starts over with new buffers. The map column
of properties is in `property_column`.

Invariants: all columns are filled from the same tables, so they have the same rows; strings are
valid UTF-8 whatever bytes were stored, decoded as `decode_text` does.
"""

from typing import Any

import cython
import pyarrow as pa

from orbitmq.common.errors import StoreError
from orbitmq.message import hosts
from orbitmq.message.properties import decode_text
from orbitmq.spark.kernels.record_table import FIELD_INDEX, FIELDS

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, copy, is_ascii, same, text, text_bytes
    from cython.cimports.orbitmq.spark.kernels.record_table import RecordTable
else:
    from orbitmq.common.mem import address, copy, is_ascii, same, text, text_bytes
    from orbitmq.spark.kernels.record_table import RecordTable

WIDTH = cython.declare(cython.Py_ssize_t, len(FIELDS))
AT = cython.declare(cython.Py_ssize_t, FIELD_INDEX["at"])
HAS_TEXTS = cython.declare(cython.Py_ssize_t, FIELD_INDEX["has_texts"])
LOG_OFFSET_AT = cython.declare(cython.Py_ssize_t, 28)  # position in a record
LOG_OFFSET_SIZE = cython.declare(cython.Py_ssize_t, 8)
DATA_SIZE_MIN = cython.declare(cython.Py_ssize_t, 1 << 12)
DATA_SIZE_MAX = cython.declare(cython.Py_ssize_t, 0x7FFFFFFF)  # array offsets are signed 32-bit
MS_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF // 1000)
US_OF_MS = cython.declare(cython.longlong, 1000)
HOSTS_MAX = cython.declare(cython.Py_ssize_t, 10_000)  # cached host texts
DIGITS = cython.declare(bytes, b"".join(b"%02X" % number for number in range(256)))


class GrowableBuffer:
    """Arrow memory that can grow, accessible as bytes, 32-bit and 64-bit integers."""

    def __init__(self) -> None:
        self.size = 0
        self.buffer: Any = None
        self.p: Any
        self.ints: Any
        self.longs: Any
        _allocate(self, 0)

    def part(self, size: int) -> pa.Buffer:
        """Return the first `size` bytes as an Arrow buffer."""
        return self.buffer.slice(0, size)


class ColumnBuilder:
    """Base of all columns: the type and which rows are null."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.validity = GrowableBuffer()
        self.nulls = 0

    def grow(self, rows: cython.Py_ssize_t) -> None:
        """Make room for `rows` rows."""
        cells: GrowableBuffer = self.validity
        known: cython.Py_ssize_t = cells.size
        i: cython.Py_ssize_t
        _resize(cells, (rows + 7) // 8, known)
        for i in range(known, cells.size):
            cells.p[i] = 255

    def clear(self) -> None:
        """Start over with empty buffers."""
        self.validity = GrowableBuffer()
        self.nulls = 0

    def valid(self, rows: int) -> pa.Buffer | None:
        """Return the validity bitmap; None if no row is null."""
        return self.validity.part((rows + 7) // 8) if self.nulls else None

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        """Add a field of all records of a table, from that row on."""
        return 0


class NumberColumn(ColumnBuilder):
    """A field as a 64-bit or 32-bit integer."""

    def __init__(self, kind: pa.DataType, field: str) -> None:
        ColumnBuilder.__init__(self, kind)
        self.values = GrowableBuffer()
        self.field = FIELD_INDEX[field]
        self.is_wide = kind.bit_width == 64

    def grow(self, rows: cython.Py_ssize_t) -> None:
        ColumnBuilder.grow(self, rows)
        _resize(self.values, rows * 8 if self.is_wide else rows * 4, self.values.size)

    def clear(self) -> None:
        ColumnBuilder.clear(self)
        self.values = GrowableBuffer()

    def array(self, rows: int) -> pa.Array:
        """Return the first rows as an Arrow array."""
        return pa.Array.from_buffers(
            self.kind,
            rows,
            [self.valid(rows), self.values.part(rows * self.kind.bit_width // 8)],
            self.nulls,
        )

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        if self.is_wide:
            for i in range(table.count):
                self.values.longs[row + i] = table.fields[i * WIDTH + self.field]
        else:
            for i in range(table.count):
                self.values.ints[row + i] = table.fields[i * WIDTH + self.field]
        return 0


class TimeColumn(NumberColumn):
    """A field in milliseconds; null if it is out of Arrow's range, as only a corrupt value is."""

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        time_ms: cython.longlong
        for i in range(table.count):
            time_ms = table.fields[i * WIDTH + self.field]
            if -MS_MAX <= time_ms <= MS_MAX:
                self.values.longs[row + i] = time_ms * US_OF_MS
            else:
                self.values.longs[row + i] = 0
                _put_null(self, row + i)
        return 0


class BytesColumn(ColumnBuilder):
    """A field of bytes; values are contiguous in `data`, and `offsets` holds their ends."""

    def __init__(self, kind: pa.DataType, field: str) -> None:
        ColumnBuilder.__init__(self, kind)
        self.offsets = GrowableBuffer()
        self.data = GrowableBuffer()
        self.at_field = FIELD_INDEX[f"{field}_at"]
        self.size_field = FIELD_INDEX[f"{field}_size"]
        self.used = self.used_before = 0

    def grow(self, rows: cython.Py_ssize_t) -> None:
        ColumnBuilder.grow(self, rows)
        grow_offsets(self.offsets, rows)

    def clear(self) -> None:
        ColumnBuilder.clear(self)
        self.offsets = GrowableBuffer()
        self.data = GrowableBuffer()
        self.used_before = self.used
        self.used = 0

    def array(self, rows: int) -> pa.Array:
        """Return the first rows as an Arrow array."""
        buffers = [self.valid(rows), self.offsets.part(4 * (rows + 1)), self.data.part(self.used)]
        return pa.Array.from_buffers(self.kind, rows, buffers, self.nulls)

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        for i in range(table.count):
            _put(
                self,
                row + i,
                table.p,
                table.fields[at + self.at_field],
                table.fields[at + self.size_field],
            )
            at += WIDTH
        return 0


class TextColumn(BytesColumn):
    """A field of UTF-8 bytes as a string; a missing property is null."""

    def __init__(self, kind: pa.DataType, field: str, is_property: bool) -> None:
        BytesColumn.__init__(self, kind, field)
        self.is_property = is_property

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        begin: cython.Py_ssize_t
        size: cython.Py_ssize_t
        for i in range(table.count):
            begin = table.fields[at + self.at_field]
            size = table.fields[at + self.size_field]
            if self.is_property and size == 0:  # properties are never empty
                self.offsets.ints[row + i + 1] = self.used
                _put_null(self, row + i)
            elif (self.is_property and table.fields[at + HAS_TEXTS]) or is_text(
                table.p, begin, begin + size
            ):
                _put(self, row + i, table.p, begin, size)
            else:
                put_value(self, row + i, decode_text(text_bytes(table.p, begin, size)).encode())
            at += WIDTH
        return 0


class ConstantColumn(BytesColumn):
    """The same string for every record: `text`."""

    def __init__(self, kind: pa.DataType) -> None:
        BytesColumn.__init__(self, kind, "topic")
        self.text = b""

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        for i in range(table.count):
            put_value(self, row + i, self.text)
        return 0


class HostColumn(BytesColumn):
    """A host as `address:port`; the text of each host is made once."""

    def __init__(self, kind: pa.DataType, field: str) -> None:
        BytesColumn.__init__(self, kind, field)
        self._known: dict[bytes, bytes] = {}
        self._host = self._text = b""

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        begin: cython.Py_ssize_t
        size: cython.Py_ssize_t
        for i in range(table.count):
            begin = table.fields[at + self.at_field]
            size = table.fields[at + self.size_field]
            if size != len(self._host) or not same(table.p, begin, self._host, size):
                self._host = text_bytes(table.p, begin, size)
                self._text = self._known.get(self._host) or _remember_host(self._known, self._host)
            put_value(self, row + i, self._text)
            at += WIDTH
        return 0


class IdColumn(BytesColumn):
    """The offset message id: the store host and the log offset in hexadecimal."""

    def __init__(self, kind: pa.DataType) -> None:
        BytesColumn.__init__(self, kind, "store_host")

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t
        end: cython.Py_ssize_t
        for i in range(table.count):
            size = table.fields[at + self.size_field]
            end = self.used + 2 * (size + LOG_OFFSET_SIZE)
            if end > self.data.size:
                make_room(self, end)
            _put_digits(self.data.p, self.used, table.p, table.fields[at + self.at_field], size)
            _put_digits(
                self.data.p,
                self.used + 2 * size,
                table.p,
                table.fields[at + AT] + LOG_OFFSET_AT,
                LOG_OFFSET_SIZE,
            )
            self.used = end
            self.offsets.ints[row + i + 1] = end
            at += WIDTH
        return 0


@cython.cfunc
def put_value(column: BytesColumn, row: cython.Py_ssize_t, value: bytes) -> cython.int:
    """Set a row to that value."""
    return _put(column, row, value, 0, len(value))


@cython.cfunc
@cython.inline
def _put(
    column: BytesColumn,
    row: cython.Py_ssize_t,
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.int:
    """Set a row to p[at:at+size]."""
    end: cython.Py_ssize_t = column.used + size
    if end > column.data.size:
        make_room(column, end)
    copy(column.data.p, column.used, p, at, size)
    column.used = end
    column.offsets.ints[row + 1] = end
    return 0


@cython.cfunc
def _put_null(column: ColumnBuilder, row: cython.Py_ssize_t) -> cython.int:
    column.validity.p[row >> 3] &= 255 - (1 << (row & 7))
    column.nulls += 1
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _put_digits(
    target: cython.p_uchar,
    target_at: cython.Py_ssize_t,
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.int:
    """Write p[at:at+size] as upper-case hexadecimal digits."""
    digits: cython.p_const_uchar = DIGITS
    i: cython.Py_ssize_t
    for i in range(size):
        target[target_at + 2 * i] = digits[2 * p[at + i]]
        target[target_at + 2 * i + 1] = digits[2 * p[at + i] + 1]
    return 0


def _remember_host(known: dict[bytes, bytes], host: bytes) -> bytes:
    if len(known) >= HOSTS_MAX:
        known.clear()
    known[host] = hosts.text_of(host).encode()
    return known[host]


@cython.cfunc
def is_text(p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Return whether p[at:end] is valid UTF-8."""
    if is_ascii(p, at, end):
        return True
    try:
        text(p, at, end - at)
    except UnicodeDecodeError:
        return False
    return True


@cython.cfunc
def make_room(column: BytesColumn, size: cython.Py_ssize_t) -> cython.int:
    """Make room for `size` bytes; the first time, for a little more than the previous batch
    used.
    """
    if size > DATA_SIZE_MAX:
        raise StoreError(
            f"{size} bytes in one column of one batch, but Arrow allows {DATA_SIZE_MAX}; read"
            " smaller batches"
        )
    expected: cython.Py_ssize_t = column.used_before + column.used_before // 8
    _resize(column.data, max(size, 2 * column.data.size, expected, DATA_SIZE_MIN), column.used)
    return 0


@cython.cfunc
def grow_offsets(cells: GrowableBuffer, rows: cython.Py_ssize_t) -> cython.int:
    """Make room for the offsets of `rows` rows; the first offset is 0."""
    _resize(cells, 4 * (rows + 1), cells.size)
    cells.ints[0] = 0
    return 0


@cython.cfunc
def _resize(cells: GrowableBuffer, size: cython.Py_ssize_t, used: cython.Py_ssize_t) -> cython.int:
    """Reallocate the buffer and keep its first `used` bytes."""
    before: object = cells.buffer  # keeps the memory of `p` alive
    p: cython.p_const_uchar = cells.p
    _allocate(cells, size)
    copy(cells.p, 0, p, 0, used)
    del before
    return 0


@cython.cfunc
def _allocate(cells: GrowableBuffer, size: cython.Py_ssize_t) -> cython.int:
    cells.buffer = pa.allocate_buffer(size)
    cells.size = size
    if cython.compiled:
        cells.p = address(cells.buffer)
        cells.ints = cython.cast(cython.p_int, cells.p)
        cells.longs = cython.cast(cython.p_longlong, cells.p)
    else:
        cells.p = memoryview(cells.buffer).cast("B")
        cells.ints = cells.p[: size - size % 4].cast("i")
        cells.longs = cells.p[: size - size % 8].cast("q")
    return 0
