# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: the columns of a RecordBatch while they are filled, each in the buffers that Arrow will have it in.

Each column goes over a whole table of records: a tight loop that stays with one kind of bytes. Nothing is copied when a column becomes an
array; it begins anew with buffers of its own. The properties, which are a map, are in `property_column`.

Invariants: every column is filled from the same tables, so all have the same rows; texts are valid UTF-8 whatever bytes came, read as
`decode_text` reads them.
"""

from typing import Any

import cython
import pyarrow as pa

from orbitmq.common.errors import StoreError
from orbitmq.message import hosts
from orbitmq.message.properties import decode_text
from orbitmq.spark.record_table import FIELDS, PLACES

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, copy, same, text, text_bytes
    from cython.cimports.orbitmq.message.tags import is_ascii
    from cython.cimports.orbitmq.spark.record_table import RecordTable
else:
    from orbitmq.common.mem import address, copy, same, text, text_bytes
    from orbitmq.message.tags import is_ascii
    from orbitmq.spark.record_table import RecordTable

WIDTH = cython.declare(cython.Py_ssize_t, len(FIELDS))
AT = cython.declare(cython.Py_ssize_t, PLACES["at"])
HAS_TEXTS = cython.declare(cython.Py_ssize_t, PLACES["has_texts"])
LOG_OFFSET_AT = cython.declare(cython.Py_ssize_t, 28)  # in a record
LOG_OFFSET_SIZE = cython.declare(cython.Py_ssize_t, 8)
DATA_SIZE_MIN = cython.declare(cython.Py_ssize_t, 1 << 12)
DATA_SIZE_MAX = cython.declare(cython.Py_ssize_t, 0x7FFFFFFF)  # offsets of an array have 31 bits
MS_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF // 1000)
US_OF_MS = cython.declare(cython.longlong, 1000)
HOSTS_MAX = cython.declare(cython.Py_ssize_t, 10_000)  # whose text is kept
DIGITS = cython.declare(bytes, b"".join(b"%02X" % number for number in range(256)))


class Cells:
    """Memory that grows, for Arrow; the same as bytes, as numbers of 4 and of 8 bytes."""

    __slots__ = ("buffer", "ints", "longs", "p", "size")

    def __init__(self) -> None:
        self.size = 0
        self.buffer: Any = None
        self.p: Any
        self.ints: Any
        self.longs: Any
        _allocate(self, 0)

    def part(self, size: int) -> pa.Buffer:
        """The first bytes of it."""
        return self.buffer.slice(0, size)


class Column:
    """Which of its rows are null."""

    __slots__ = ("kind", "nulls", "validity")

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.validity = Cells()
        self.nulls = 0

    def grow(self, rows: cython.Py_ssize_t) -> None:
        """Make room for so many rows."""
        cells: Cells = self.validity
        known: cython.Py_ssize_t = cells.size
        i: cython.Py_ssize_t
        _resize(cells, (rows + 7) // 8, known)
        for i in range(known, cells.size):
            cells.p[i] = 255

    def clear(self) -> None:
        """Begin anew, without room for any row."""
        self.validity = Cells()
        self.nulls = 0

    def valid(self, rows: int) -> pa.Buffer | None:
        """Which rows are not null; None when none is."""
        return self.validity.part((rows + 7) // 8) if self.nulls else None

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        """Take from a table what belongs here, from that row on."""
        return 0


class Numbers(Column):
    """A field as a number of 8 bytes, or of 4."""

    __slots__ = ("field", "is_wide", "values")

    def __init__(self, kind: pa.DataType, field: str) -> None:
        Column.__init__(self, kind)
        self.values = Cells()
        self.field = PLACES[field]
        self.is_wide = kind.bit_width == 64

    def grow(self, rows: cython.Py_ssize_t) -> None:
        Column.grow(self, rows)
        _resize(self.values, rows * 8 if self.is_wide else rows * 4, self.values.size)

    def clear(self) -> None:
        Column.clear(self)
        self.values = Cells()

    def array(self, rows: int) -> pa.Array:
        return pa.Array.from_buffers(self.kind, rows, [self.valid(rows), self.values.part(rows * self.kind.bit_width // 8)], self.nulls)

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        if self.is_wide:
            for i in range(table.count):
                self.values.longs[row + i] = table.fields[i * WIDTH + self.field]
        else:
            for i in range(table.count):
                self.values.ints[row + i] = table.fields[i * WIDTH + self.field]
        return 0


class Times(Numbers):
    """A field of milliseconds; null when it is so far away that Arrow has no number for it, as only a damaged one is."""

    __slots__ = ()

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


class Bytes(Column):
    """Bytes of each record, one behind the other in `data`; `offsets` says where each ends."""

    __slots__ = ("at_field", "data", "offsets", "size_field", "used", "used_before")

    def __init__(self, kind: pa.DataType, field: str) -> None:
        Column.__init__(self, kind)
        self.offsets = Cells()
        self.data = Cells()
        self.at_field = PLACES[f"{field}_at"]
        self.size_field = PLACES[f"{field}_size"]
        self.used = self.used_before = 0

    def grow(self, rows: cython.Py_ssize_t) -> None:
        Column.grow(self, rows)
        grow_offsets(self.offsets, rows)

    def clear(self) -> None:
        Column.clear(self)
        self.offsets = Cells()
        self.data = Cells()
        self.used_before = self.used
        self.used = 0

    def array(self, rows: int) -> pa.Array:
        buffers = [self.valid(rows), self.offsets.part(4 * (rows + 1)), self.data.part(self.used)]
        return pa.Array.from_buffers(self.kind, rows, buffers, self.nulls)

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        for i in range(table.count):
            _put(self, row + i, table.p, table.fields[at + self.at_field], table.fields[at + self.size_field])
            at += WIDTH
        return 0


class Texts(Bytes):
    """The texts of UTF-8 bytes; those of a property are null when there is none."""

    __slots__ = ("is_property",)

    def __init__(self, kind: pa.DataType, field: str, is_property: bool) -> None:
        Bytes.__init__(self, kind, field)
        self.is_property = is_property

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        begin: cython.Py_ssize_t
        size: cython.Py_ssize_t
        for i in range(table.count):
            begin = table.fields[at + self.at_field]
            size = table.fields[at + self.size_field]
            if self.is_property and size == 0:  # no property has an empty value
                self.offsets.ints[row + i + 1] = self.used
                _put_null(self, row + i)
            elif (self.is_property and table.fields[at + HAS_TEXTS]) or is_text(table.p, begin, begin + size):
                _put(self, row + i, table.p, begin, size)
            else:
                put_all(self, row + i, decode_text(text_bytes(table.p, begin, size)).encode())
            at += WIDTH
        return 0


class Constants(Bytes):
    """The same text for every record: `text`."""

    __slots__ = ("text",)

    def __init__(self, kind: pa.DataType) -> None:
        Bytes.__init__(self, kind, "topic")
        self.text = b""

    def fill(self, table: RecordTable, row: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        for i in range(table.count):
            put_all(self, row + i, self.text)
        return 0


class Hosts(Bytes):
    """Hosts as `address:port`; the text of each is made once."""

    __slots__ = ("_host", "_known", "_text")

    def __init__(self, kind: pa.DataType, field: str) -> None:
        Bytes.__init__(self, kind, field)
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
                self._text = self._known.get(self._host) or _learn(self._known, self._host)
            put_all(self, row + i, self._text)
            at += WIDTH
        return 0


class Ids(Bytes):
    """Offset ids: the digits of the store host and of the log offset."""

    __slots__ = ()

    def __init__(self, kind: pa.DataType) -> None:
        Bytes.__init__(self, kind, "store_host")

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
            _put_digits(self.data.p, self.used + 2 * size, table.p, table.fields[at + AT] + LOG_OFFSET_AT, LOG_OFFSET_SIZE)
            self.used = end
            self.offsets.ints[row + i + 1] = end
            at += WIDTH
        return 0


@cython.cfunc
def put_all(column: Bytes, row: cython.Py_ssize_t, value: bytes) -> cython.int:
    """A row has that value."""
    return _put(column, row, value, 0, len(value))


@cython.cfunc
@cython.inline
def _put(column: Bytes, row: cython.Py_ssize_t, p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
    """A row has p[at:at+size]."""
    end: cython.Py_ssize_t = column.used + size
    if end > column.data.size:
        make_room(column, end)
    copy(column.data.p, column.used, p, at, size)
    column.used = end
    column.offsets.ints[row + 1] = end
    return 0


@cython.cfunc
def _put_null(column: Column, row: cython.Py_ssize_t) -> cython.int:
    column.validity.p[row >> 3] &= 255 - (1 << (row & 7))
    column.nulls += 1
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _put_digits(
    target: cython.p_uchar, target_at: cython.Py_ssize_t, p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.int:
    """Write p[at:at+size] as upper-case hexadecimal digits."""
    digits: cython.p_const_uchar = DIGITS
    i: cython.Py_ssize_t
    for i in range(size):
        target[target_at + 2 * i] = digits[2 * p[at + i]]
        target[target_at + 2 * i + 1] = digits[2 * p[at + i] + 1]
    return 0


def _learn(known: dict[bytes, bytes], host: bytes) -> bytes:
    if len(known) >= HOSTS_MAX:
        known.clear()
    known[host] = hosts.text_of(host).encode()
    return known[host]


@cython.cfunc
def is_text(p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Whether p[at:end] is valid UTF-8."""
    if is_ascii(p, at, end):
        return True
    try:
        text(p, at, end - at)
    except UnicodeDecodeError:
        return False
    return True


@cython.cfunc
def make_room(column: Bytes, size: cython.Py_ssize_t) -> cython.int:
    """See that so many bytes fit; the first time, a little more than there were before."""
    if size > DATA_SIZE_MAX:
        raise StoreError(f"{size} bytes in one column of one batch: Arrow has room for {DATA_SIZE_MAX}; take batches of fewer rows")
    expected: cython.Py_ssize_t = column.used_before + column.used_before // 8
    _resize(column.data, max(size, 2 * column.data.size, expected, DATA_SIZE_MIN), column.used)
    return 0


@cython.cfunc
def grow_offsets(cells: Cells, rows: cython.Py_ssize_t) -> cython.int:
    """Make room for the offsets of so many rows; the first begins at 0."""
    _resize(cells, 4 * (rows + 1), cells.size)
    cells.ints[0] = 0
    return 0


@cython.cfunc
def _resize(cells: Cells, size: cython.Py_ssize_t, used: cython.Py_ssize_t) -> cython.int:
    """Give them memory of that size, which begins with the first `used` bytes of what they have."""
    before: object = cells.buffer  # keeps what `p` points at
    p: cython.p_const_uchar = cells.p
    _allocate(cells, size)
    copy(cells.p, 0, p, 0, used)
    del before
    return 0


@cython.cfunc
def _allocate(cells: Cells, size: cython.Py_ssize_t) -> cython.int:
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
