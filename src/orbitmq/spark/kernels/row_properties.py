# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: encodes the properties of a row of Arrow columns as they appear in an item of a batch.

Knows the columns that become properties, and nothing of topics, bodies or batches.
InvalidMessageError says what cannot be sent; the caller adds which row it is.
"""

import cython

from orbitmq.common.errors import InvalidMessageError
from orbitmq.message import properties
from orbitmq.message.layout import PROPERTIES_SIZE_MAX
from orbitmq.message.message_id import UniqueIds

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, copy, find, same, text_bytes
    from cython.cimports.orbitmq.spark.kernels.arrow_texts import ArrowLists, ArrowTexts, is_valid
else:
    from orbitmq.common.mem import address, copy, find, same, text_bytes
    from orbitmq.spark.kernels.arrow_texts import ArrowLists, ArrowTexts, is_valid

SIZE_MAX = cython.declare(cython.Py_ssize_t, PROPERTIES_SIZE_MAX)
NAMES_KEPT_MAX = cython.declare(cython.Py_ssize_t, 16)
ID_BLOCK = cython.declare(cython.Py_ssize_t, 1024)  # ids that share a timestamp
ID_DIGITS = cython.declare(cython.Py_ssize_t, 4)  # that differ within a block
NAME_END = cython.declare(cython.uchar, 1)
VALUE_END = cython.declare(cython.uchar, 2)
KEY_SEPARATOR = cython.declare(cython.uchar, 32)
KEYS = cython.declare(bytes, f"{properties.KEYS}\x01".encode())
TAGS = cython.declare(bytes, f"{properties.TAGS}\x01".encode())
SHARDING_KEY = cython.declare(bytes, f"{properties.SHARDING_KEY}\x01".encode())
RESERVED = frozenset(name.encode() for name in properties.RESERVED)


class RowProperties:
    """Encoder of properties: after `write` of a row they are p[:size]. Missing columns are None."""

    def __init__(self, ids: UniqueIds, instance: str, *, drops_reserved: bool) -> None:
        self._buffer = bytearray(PROPERTIES_SIZE_MAX)
        self.p = address(self._buffer)
        self.size = 0
        self._drops_reserved = drops_reserved
        texts = {properties.WAIT: "true", properties.INSTANCE_ID: instance or None}
        self._tail = properties.encode(texts) + f"{properties.UNIQUE_KEY}\x01".encode()
        self._ids = ids
        self._id_head = b""
        self._id_next = self._ids_left = 0
        self._known_names: list[bytes] = []
        self._own: ArrowLists | None = None
        self._key_lists: ArrowLists | None = None
        self._keys: ArrowTexts | None = None
        self._tags: ArrowTexts | None = None
        self._sharding_key: ArrowTexts | None = None

    def load(
        self,
        own: ArrowLists | None,
        keys: ArrowTexts | None,
        key_lists: ArrowLists | None,
        tags: ArrowTexts | None,
        sharding_key: ArrowTexts | None,
    ) -> None:
        """Set the columns of the next rows; `key_lists` has several keys per row, `own` the
        application's properties.
        """
        self._own = own
        self._keys = keys
        self._key_lists = key_lists
        self._tags = tags
        self._sharding_key = sharding_key


@cython.cfunc
def write(texts: RowProperties, row: cython.Py_ssize_t) -> cython.int:
    """Encode the properties of a row; the last one is a new unique key."""
    texts.size = 0
    if texts._own is not None:
        _put_own(texts, texts._own, row)
    if texts._keys is not None:
        _put_text(texts, KEYS, texts._keys, row)
    if texts._key_lists is not None:
        _put_list(texts, KEYS, texts._key_lists, row)
    if texts._tags is not None:
        _put_text(texts, TAGS, texts._tags, row)
    if texts._sharding_key is not None:
        _put_text(texts, SHARDING_KEY, texts._sharding_key, row)
    return _put_id(texts)


@cython.cfunc
def _put_id(texts: RowProperties) -> cython.int:
    """Append the properties that all rows share, and a new unique key."""
    if texts._ids_left == 0:
        _next_id_block(texts)
    head_size: cython.Py_ssize_t = len(texts._id_head)
    at: cython.Py_ssize_t = _reserve(texts, len(texts._tail) + head_size + ID_DIGITS + 1)
    p: cython.p_uchar = texts.p
    copy(p, at, texts._tail, 0, len(texts._tail))
    at += len(texts._tail)
    copy(p, at, texts._id_head, 0, head_size)
    at += head_size
    i: cython.Py_ssize_t
    digit: cython.int
    for i in range(ID_DIGITS):
        digit = (texts._id_next >> (12 - 4 * i)) & 15
        p[at + i] = digit + (48 if digit < 10 else 55)
    p[at + ID_DIGITS] = VALUE_END
    texts._id_next = (texts._id_next + 1) & 0xFFFF
    texts._ids_left -= 1
    return 0


def _next_id_block(texts: RowProperties) -> None:
    head, texts._id_next = texts._ids.block(ID_BLOCK)
    texts._id_head = head.encode()
    texts._ids_left = ID_BLOCK


@cython.cfunc
def _put_text(
    texts: RowProperties, name: bytes, column: ArrowTexts, row: cython.Py_ssize_t
) -> cython.int:
    """Append a property unless the row has no text; `name` includes its terminator."""
    at: cython.Py_ssize_t = column.offsets[row]
    size: cython.Py_ssize_t = column.offsets[row + 1] - at
    if size and is_valid(column, row):
        _put_name(texts, name)
        _put_value(texts, column, at, size, VALUE_END)
    return 0


@cython.cfunc
def _put_list(
    texts: RowProperties, name: bytes, lists: ArrowLists, row: cython.Py_ssize_t
) -> cython.int:
    """Append a property of several texts, separated by spaces."""
    column: ArrowTexts = lists.texts
    begin: cython.Py_ssize_t = texts.size
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t
    if is_valid(lists, row):
        for i in range(lists.offsets[row], lists.offsets[row + 1]):
            size = column.offsets[i + 1] - column.offsets[i]
            if size and is_valid(column, i):
                if texts.size == begin:
                    _put_name(texts, name)
                _put_value(texts, column, column.offsets[i], size, KEY_SEPARATOR)
    if texts.size > begin:
        texts.p[texts.size - 1] = VALUE_END
    return 0


@cython.cfunc
def _put_own(texts: RowProperties, lists: ArrowLists, row: cython.Py_ssize_t) -> cython.int:
    """Append the application's properties; one with a null value is skipped."""
    names: ArrowTexts = lists.texts
    values: ArrowTexts = lists.values
    first: cython.Py_ssize_t = lists.offsets[row]
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    if is_valid(lists, row):
        for i in range(first, lists.offsets[row + 1]):
            at = names.offsets[i]
            size = names.offsets[i + 1] - at
            if is_valid(values, i) and _is_wanted(texts, names, at, size, i - first):
                _put_value(texts, names, at, size, NAME_END)
                _put_value(
                    texts,
                    values,
                    values.offsets[i],
                    values.offsets[i + 1] - values.offsets[i],
                    VALUE_END,
                )
    return 0


@cython.cfunc
def _is_wanted(
    texts: RowProperties,
    names: ArrowTexts,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    place: cython.Py_ssize_t,
) -> cython.bint:
    """Return whether to send a property with that name. Rows tend to have the same names in the
    same order, so accepted names are cached.
    """
    known: bytes
    if place < len(texts._known_names):
        known = texts._known_names[place]
        if len(known) == size and same(names.data, at, known, size):
            return True
    name: bytes = text_bytes(names.data, at, size)
    if name in RESERVED:
        if texts._drops_reserved:
            return False
        raise InvalidMessageError(
            f"property {name.decode()} is reserved by RocketMQ; use the column for it, or set"
            " reservedProperties=drop"
        )
    if not name or b"\x01" in name:
        raise InvalidMessageError(
            f"property {properties.decode_text(name)!r}: a name must not be empty or contain U+0001"
        )
    if place < len(texts._known_names):
        texts._known_names[place] = name
    elif place == len(texts._known_names) and place < NAMES_KEPT_MAX:
        texts._known_names.append(name)
    return True


@cython.cfunc
def _put_name(texts: RowProperties, name: bytes) -> cython.int:
    at: cython.Py_ssize_t = _reserve(texts, len(name))
    copy(texts.p, at, name, 0, len(name))
    return 0


@cython.cfunc
def _put_value(
    texts: RowProperties,
    column: ArrowTexts,
    begin: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    end: cython.uchar,
) -> cython.int:
    """Append a text and its terminator."""
    at: cython.Py_ssize_t = _reserve(texts, size + 1)
    if find(column.data, begin, begin + size, VALUE_END) < begin + size:
        text = properties.decode_text(text_bytes(column.data, begin, size))
        raise InvalidMessageError(f"{text!r} contains U+0002, which ends a property; remove it")
    copy(texts.p, at, column.data, begin, size)
    texts.p[at + size] = end
    return 0


@cython.cfunc
def _reserve(texts: RowProperties, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Reserve `size` bytes and return their position."""
    at: cython.Py_ssize_t = texts.size
    if at + size > SIZE_MAX:
        raise InvalidMessageError(
            f"its properties, keys and tags together exceed the limit of {SIZE_MAX} bytes"
        )
    texts.size = at + size
    return at
