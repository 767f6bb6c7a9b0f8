# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: reads the properties of records, for their own columns (keys, tags, unique key) and for
the map of all properties.

Properties are read as `properties.parse` reads them: incomplete ones are dropped, and of duplicate
names the last counts. Properties that are not valid UTF-8, have duplicate names or are very many
are left to that function.
"""

import cython
import pyarrow as pa

from orbitmq.message import properties
from orbitmq.spark.kernels.record_table import FIELD_INDEX, FIELDS

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import copy, find, same, text_bytes
    from cython.cimports.orbitmq.spark.kernels.columns import (
        BytesColumn,
        ColumnBuilder,
        GrowableBuffer,
        grow_offsets,
        is_text,
        make_room,
        put_value,
    )
    from cython.cimports.orbitmq.spark.kernels.record_table import RecordTable
else:
    from orbitmq.common.mem import copy, find, same, text_bytes
    from orbitmq.spark.kernels.columns import (
        BytesColumn,
        ColumnBuilder,
        GrowableBuffer,
        grow_offsets,
        is_text,
        make_room,
        put_value,
    )
    from orbitmq.spark.kernels.record_table import RecordTable

WIDTH = cython.declare(cython.Py_ssize_t, len(FIELDS))
PROPERTIES = cython.declare(cython.Py_ssize_t, FIELD_INDEX["properties_at"])
HAS_TEXTS = cython.declare(cython.Py_ssize_t, FIELD_INDEX["has_texts"])
KEYS = cython.declare(cython.Py_ssize_t, FIELD_INDEX["keys_at"])
TAGS = cython.declare(cython.Py_ssize_t, FIELD_INDEX["tags_at"])
UNIQUE_KEY = cython.declare(cython.Py_ssize_t, FIELD_INDEX["unique_key_at"])
NAME_END = cython.declare(cython.int, 1)
VALUE_END = cython.declare(cython.int, 2)
KEYS_NAME = cython.declare(bytes, properties.KEYS.encode())
TAGS_NAME = cython.declare(bytes, properties.TAGS.encode())
UNIQUE_KEY_NAME = cython.declare(bytes, properties.UNIQUE_KEY.encode())
SHORT_NAME_SIZE = cython.declare(cython.Py_ssize_t, len(properties.KEYS))  # also that of TAGS
LONG_NAME_SIZE = cython.declare(cython.Py_ssize_t, len(properties.UNIQUE_KEY))
ENTRY_SIZE_MIN = cython.declare(cython.Py_ssize_t, 4)
ROOM_MIN = cython.declare(cython.Py_ssize_t, 1 << 12)
COMPARED_MAX = cython.declare(cython.Py_ssize_t, 64)
ONE = cython.declare(cython.ulonglong, 1)
HASH_MASK = cython.declare(cython.int, 63)


class PropertyColumn(ColumnBuilder):  # type: ignore[misc]  # untyped to mypy
    """Maps of names to values; the entries of all rows are contiguous, and `offsets` holds their
    ends.
    """

    def __init__(self, kind: pa.DataType) -> None:
        ColumnBuilder.__init__(self, kind)
        self.offsets = GrowableBuffer()
        self.names = BytesColumn(kind.key_type, "properties")
        self.values = BytesColumn(kind.item_type, "properties")
        self.count = self.room = 0

    def grow(self, rows: cython.Py_ssize_t) -> None:
        grow_offsets(self.offsets, rows)

    def clear(self) -> None:
        self.offsets = GrowableBuffer()
        self.names.clear()
        self.values.clear()
        self.count = self.room = 0

    def array(self, rows: int) -> pa.Array:
        """Return the first rows as an Arrow array."""
        texts = [self.names.array(self.count), self.values.array(self.count)]
        entries = pa.StructArray.from_arrays(
            texts, fields=[self.kind.key_field, self.kind.item_field]
        )
        return pa.Array.from_buffers(
            self.kind, rows, [None, self.offsets.part(4 * (rows + 1))], 0, 0, [entries]
        )


@cython.cfunc
def find_properties(
    table: RecordTable, column: PropertyColumn | None, row: cython.Py_ssize_t
) -> cython.int:
    """Note where each record has its keys, tags and unique key; fill the map column, if there is
    one, from that row on.
    """
    p: cython.p_const_uchar = table.p
    fields: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    for i in range(table.count):
        at = table.fields[fields + PROPERTIES]
        end = at + table.fields[fields + PROPERTIES + 1]
        table.fields[fields + HAS_TEXTS] = is_text(p, at, end)
        table.fields[fields + KEYS + 1] = table.fields[fields + TAGS + 1] = table.fields[
            fields + UNIQUE_KEY + 1
        ] = 0
        if column is None:
            _find(table, fields, at, end)
        elif table.fields[fields + HAS_TEXTS]:
            _make_room(column, end - at)
            if not _read(table, fields, column, row + i, at, end):
                _read_slowly(column, row + i, text_bytes(p, at, end - at))
        else:
            _find(table, fields, at, end)
            _read_slowly(column, row + i, text_bytes(p, at, end - at))
        fields += WIDTH
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _find(
    table: RecordTable, fields: cython.Py_ssize_t, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.int:
    """Note where keys, tags and unique key are."""
    p: cython.p_const_uchar = table.p
    stop: cython.Py_ssize_t
    middle: cython.Py_ssize_t
    while at < end:
        stop = find(p, at, end, VALUE_END)
        middle = find(p, at, stop, NAME_END)
        if at < middle and middle + 1 < stop:
            _note_position(table, fields, at, middle, stop)
        at = stop + 1
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _read(
    table: RecordTable,
    fields: cython.Py_ssize_t,
    column: PropertyColumn,
    row: cython.Py_ssize_t,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.bint:
    """Note where keys, tags and unique key are and add all entries to the column, which has room
    for them. Returns False if they must be read by `_read_slowly`.
    """
    p: cython.p_const_uchar = table.p
    names: BytesColumn = column.names
    values: BytesColumn = column.values
    name_end: cython.Py_ssize_t = names.used
    value_end: cython.Py_ssize_t = values.used
    first: cython.Py_ssize_t = column.count
    count: cython.Py_ssize_t = first
    seen: cython.ulonglong = 0
    bit: cython.ulonglong
    stop: cython.Py_ssize_t
    middle: cython.Py_ssize_t
    is_plain: cython.bint = True
    while at < end:
        stop = find(p, at, end, VALUE_END)
        middle = find(p, at, stop, NAME_END)
        if at < middle and middle + 1 < stop:
            _note_position(table, fields, at, middle, stop)
            bit = ONE << ((p[at] + 3 * p[middle - 1] + (middle - at)) & HASH_MASK)
            if seen & bit and (
                count - first >= COMPARED_MAX or _contains(names, first, count, p, at, middle - at)
            ):
                is_plain = False
            seen |= bit
            copy(names.data.p, name_end, p, at, middle - at)
            name_end += middle - at
            names.offsets.ints[count + 1] = name_end
            copy(values.data.p, value_end, p, middle + 1, stop - middle - 1)
            value_end += stop - middle - 1
            values.offsets.ints[count + 1] = value_end
            count += 1
        at = stop + 1
    if is_plain:
        names.used = name_end
        values.used = value_end
        column.count = count
        column.offsets.ints[row + 1] = count
    return is_plain


def _read_slowly(column: PropertyColumn, row: cython.Py_ssize_t, raw: bytes) -> None:
    """Add the entries that `properties.parse` finds."""
    entries = properties.parse(raw)
    _make_room(column, len(raw))
    for name, value in entries.items():
        put_value(column.names, column.count, name.encode())
        put_value(column.values, column.count, value.encode())
        column.count += 1
    column.offsets.ints[row + 1] = column.count


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _note_position(
    table: RecordTable,
    fields: cython.Py_ssize_t,
    at: cython.Py_ssize_t,
    middle: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> cython.int:
    """Note where the value of a property is if it has a column of its own."""
    if middle - at == SHORT_NAME_SIZE:
        if same(table.p, at, KEYS_NAME, SHORT_NAME_SIZE):
            fields += KEYS
        elif same(table.p, at, TAGS_NAME, SHORT_NAME_SIZE):
            fields += TAGS
        else:
            return 0
    elif middle - at == LONG_NAME_SIZE and same(table.p, at, UNIQUE_KEY_NAME, LONG_NAME_SIZE):
        fields += UNIQUE_KEY
    else:
        return 0
    table.fields[fields] = middle + 1
    table.fields[fields + 1] = stop - middle - 1
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _contains(
    names: BytesColumn,
    number: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.bint:
    """Return whether one of the names from `number` to `end` is p[at:at+size]."""
    begin: cython.Py_ssize_t
    i: cython.Py_ssize_t
    while number < end:
        begin = names.offsets.ints[number]
        if names.offsets.ints[number + 1] - begin == size:
            i = 0
            while i < size and names.data.p[begin + i] == p[at + i]:
                i += 1
            if i == size:
                return True
        number += 1
    return False


@cython.cfunc
def _make_room(column: PropertyColumn, size: cython.Py_ssize_t) -> cython.int:
    """Make room for the entries of properties of `size` bytes."""
    count: cython.Py_ssize_t = column.count + size // ENTRY_SIZE_MIN + 1
    if count > column.room:
        column.room = max(count, 2 * column.room, ROOM_MIN)
        column.names.grow(column.room)
        column.values.grow(column.room)
    if column.names.used + size > column.names.data.size:
        make_room(column.names, column.names.used + size)
    if column.values.used + size > column.values.data.size:
        make_room(column.values, column.values.used + size)
    return 0
