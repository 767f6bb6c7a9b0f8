# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: the properties of a row of Arrow columns, as the text that an item of a batch holds.

Knows the columns that become properties, and nothing of topics, bodies or batches. MessageIllegal says what of a row cannot be sent; which
row that is, is for the caller to say.
"""

import cython

from orbitmq.common.errors import MessageIllegal
from orbitmq.message import properties
from orbitmq.message.layout import PROPERTIES_SIZE_MAX
from orbitmq.message.message_id import UniqueIds

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, copy, find, same, text_bytes
    from cython.cimports.orbitmq.spark.arrow_texts import ArrowRuns, ArrowTexts, is_there
else:
    from orbitmq.common.mem import address, copy, find, same, text_bytes
    from orbitmq.spark.arrow_texts import ArrowRuns, ArrowTexts, is_there

SIZE_MAX = cython.declare(cython.Py_ssize_t, PROPERTIES_SIZE_MAX)
NAMES_KEPT_MAX = cython.declare(cython.Py_ssize_t, 16)
ID_BLOCK = cython.declare(cython.Py_ssize_t, 1024)  # ids that share the time they were made at
ID_DIGITS = cython.declare(cython.Py_ssize_t, 4)  # in which they differ
NAME_END = cython.declare(cython.uchar, 1)
VALUE_END = cython.declare(cython.uchar, 2)
KEY_SEPARATOR = cython.declare(cython.uchar, 32)
KEYS = cython.declare(bytes, f"{properties.KEYS}\x01".encode())
TAGS = cython.declare(bytes, f"{properties.TAGS}\x01".encode())
SHARDING_KEY = cython.declare(bytes, f"{properties.SHARDING_KEY}\x01".encode())
RESERVED = frozenset(name.encode() for name in properties.RESERVED)


class RowProperties:
    """`write` those of a row; then they are p[:size]. Columns that are not there are None."""

    __slots__ = (
        "_buffer",
        "_drops_reserved",
        "_id_head",
        "_id_next",
        "_ids",
        "_ids_left",
        "_key_runs",
        "_keys",
        "_known_names",
        "_own",
        "_sharding_key",
        "_tags",
        "_tail",
        "p",
        "size",
    )

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
        self._own: ArrowRuns | None = None
        self._key_runs: ArrowRuns | None = None
        self._keys: ArrowTexts | None = None
        self._tags: ArrowTexts | None = None
        self._sharding_key: ArrowTexts | None = None

    def load(
        self,
        own: ArrowRuns | None,
        keys: ArrowTexts | None,
        key_runs: ArrowRuns | None,
        tags: ArrowTexts | None,
        sharding_key: ArrowTexts | None,
    ) -> None:
        """Let rows be those of these columns; `key_runs` are several keys for a row, `own` the user's own properties."""
        self._own = own
        self._keys = keys
        self._key_runs = key_runs
        self._tags = tags
        self._sharding_key = sharding_key


@cython.cfunc
def write(texts: RowProperties, row: cython.Py_ssize_t) -> cython.int:
    """Write those of a row, the last of which is an id of its own."""
    texts.size = 0
    if texts._own is not None:
        _put_own(texts, texts._own, row)
    if texts._keys is not None:
        _put_text(texts, KEYS, texts._keys, row)
    if texts._key_runs is not None:
        _put_run(texts, KEYS, texts._key_runs, row)
    if texts._tags is not None:
        _put_text(texts, TAGS, texts._tags, row)
    if texts._sharding_key is not None:
        _put_text(texts, SHARDING_KEY, texts._sharding_key, row)
    return _put_id(texts)


@cython.cfunc
def _put_id(texts: RowProperties) -> cython.int:
    """What all rows have, and the id."""
    if texts._ids_left == 0:
        _take_ids(texts)
    head_size: cython.Py_ssize_t = len(texts._id_head)
    at: cython.Py_ssize_t = _room_for(texts, len(texts._tail) + head_size + ID_DIGITS + 1)
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


def _take_ids(texts: RowProperties) -> None:
    head, texts._id_next = texts._ids.block(ID_BLOCK)
    texts._id_head = head.encode()
    texts._ids_left = ID_BLOCK


@cython.cfunc
def _put_text(texts: RowProperties, name: bytes, column: ArrowTexts, row: cython.Py_ssize_t) -> cython.int:
    """The property of that name, which its end is part of; none for a row without a text."""
    at: cython.Py_ssize_t = column.offsets[row]
    size: cython.Py_ssize_t = column.offsets[row + 1] - at
    if size and is_there(column, row):
        _put_name(texts, name)
        _put_value(texts, column, at, size, VALUE_END)
    return 0


@cython.cfunc
def _put_run(texts: RowProperties, name: bytes, runs: ArrowRuns, row: cython.Py_ssize_t) -> cython.int:
    """The same of several texts, with spaces between them."""
    column: ArrowTexts = runs.texts
    begin: cython.Py_ssize_t = texts.size
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t
    if is_there(runs, row):
        for i in range(runs.offsets[row], runs.offsets[row + 1]):
            size = column.offsets[i + 1] - column.offsets[i]
            if size and is_there(column, i):
                if texts.size == begin:
                    _put_name(texts, name)
                _put_value(texts, column, column.offsets[i], size, KEY_SEPARATOR)
    if texts.size > begin:
        texts.p[texts.size - 1] = VALUE_END
    return 0


@cython.cfunc
def _put_own(texts: RowProperties, runs: ArrowRuns, row: cython.Py_ssize_t) -> cython.int:
    """The user's own; one whose value is null is none."""
    names: ArrowTexts = runs.texts
    values: ArrowTexts = runs.values
    first: cython.Py_ssize_t = runs.offsets[row]
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    if is_there(runs, row):
        for i in range(first, runs.offsets[row + 1]):
            at = names.offsets[i]
            size = names.offsets[i + 1] - at
            if is_there(values, i) and _is_wanted(texts, names, at, size, i - first):
                _put_value(texts, names, at, size, NAME_END)
                _put_value(texts, values, values.offsets[i], values.offsets[i + 1] - values.offsets[i], VALUE_END)
    return 0


@cython.cfunc
def _is_wanted(
    texts: RowProperties, names: ArrowTexts, at: cython.Py_ssize_t, size: cython.Py_ssize_t, place: cython.Py_ssize_t
) -> cython.bint:
    """Whether a property may have that name. Rows tend to have the same names in the same order, so those that may are kept."""
    known: bytes
    if place < len(texts._known_names):
        known = texts._known_names[place]
        if len(known) == size and same(names.data, at, known, size):
            return True
    name: bytes = text_bytes(names.data, at, size)
    if name in RESERVED:
        if texts._drops_reserved:
            return False
        raise MessageIllegal(
            f"property {name.decode()} is one of RocketMQ's own; use the column that is made for it, or set reservedProperties=drop"
        )
    if not name or b"\x01" in name:
        raise MessageIllegal(f"property {properties.decode_text(name)!r}: a name has at least one character, and none that is U+0001")
    if place < len(texts._known_names):
        texts._known_names[place] = name
    elif place == len(texts._known_names) and place < NAMES_KEPT_MAX:
        texts._known_names.append(name)
    return True


@cython.cfunc
def _put_name(texts: RowProperties, name: bytes) -> cython.int:
    at: cython.Py_ssize_t = _room_for(texts, len(name))
    copy(texts.p, at, name, 0, len(name))
    return 0


@cython.cfunc
def _put_value(
    texts: RowProperties, column: ArrowTexts, begin: cython.Py_ssize_t, size: cython.Py_ssize_t, end: cython.uchar
) -> cython.int:
    """A text, and the byte behind it."""
    at: cython.Py_ssize_t = _room_for(texts, size + 1)
    if find(column.data, begin, begin + size, VALUE_END) < begin + size:
        text = properties.decode_text(text_bytes(column.data, begin, size))
        raise MessageIllegal(f"{text!r} holds U+0002, which ends a property; take it out")
    copy(texts.p, at, column.data, begin, size)
    texts.p[at + size] = end
    return 0


@cython.cfunc
def _room_for(texts: RowProperties, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the next so many bytes stand."""
    at: cython.Py_ssize_t = texts.size
    if at + size > SIZE_MAX:
        raise MessageIllegal(f"its properties, keys and tags together have more than the {SIZE_MAX} bytes that a message has room for")
    texts.size = at + size
    return at
