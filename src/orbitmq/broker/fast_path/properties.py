# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: copies the properties of a message from a request into its record, through one buffer
that all messages share.

Its executable specification is what `processors.send` does with `message.properties`: when `read`
returns True, both agree on the unique key, on whether the sender waits for the disk, on the kind of
deferral, if any, and on the stored bytes. Knows nothing of messages or requests.
"""

import cython

from orbitmq.message import property_rules
from orbitmq.message.property_rules import DeferralKind

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, copy, find, same
else:
    from orbitmq.common.mem import address, copy, find, same

NAME_END = cython.declare(cython.int, 1)
VALUE_END = cython.declare(cython.int, 2)
BACKSLASH = cython.declare(cython.int, 92)
SIZE_MAX = cython.declare(
    cython.Py_ssize_t, 1 << 18
)  # more than any record can hold, even if every byte is escaped
LEVEL = cython.declare(cython.int, DeferralKind.LEVEL)
TIMED = cython.declare(cython.int, DeferralKind.TIMED)
HALF = cython.declare(cython.int, DeferralKind.HALF)
PLAIN = cython.declare(cython.int, property_rules.CODE_PLAIN)
INTERNAL = cython.declare(cython.int, property_rules.CODE_INTERNAL)
GENERAL = cython.declare(cython.int, property_rules.CODE_GENERAL)
RULES = cython.declare(bytes, property_rules.packed()[0])
RULE_STARTS = cython.declare(bytes, property_rules.packed()[1])
LEVEL_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 9)
TIME_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 18)
ESCAPES = cython.declare(bytes, b'"\\/bfnrt')
ESCAPED = cython.declare(bytes, b'"\\/\b\f\n\r\t')


class PropertyBuffer:
    """Properties: `size` bytes at `p`. `more` holds what the broker appends to every message.

    `kind` is the kind of deferral, 0 if there is none, and `number` its delay level or time; the
    property with the delay level, which is rewritten, starts at `cut_at`.
    """

    def __init__(self) -> None:
        self._buffer = bytearray(1 << 12)
        self.p = address(self._buffer)
        self.more = b""
        self.size = self.key_at = self.key_size = self.kind = self.number = self.cut_at = (
            self.cut_size
        ) = 0
        self.waits = True
        self.is_sharded = False


@cython.cfunc
def read(
    properties: PropertyBuffer,
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    is_escaped: cython.bint,
) -> cython.bint:
    """Copy p[at:at+size], unescaping it if it is a JSON text, and inspect it. Returns False if the
    message must take the general path.
    """
    if size > SIZE_MAX:
        return False
    _make_room(properties, size)
    if is_escaped:
        properties.size = unescape(properties.p, 0, p, at, at + size)
    else:
        copy(properties.p, 0, p, at, size)
        properties.size = size
    return properties.size >= 0 and _is_plain(properties)


@cython.cfunc
def complete(properties: PropertyBuffer) -> cython.Py_ssize_t:
    """Append the properties that the broker adds; return the resulting size."""
    if properties.size and properties.p[properties.size - 1] != VALUE_END:
        properties.p[properties.size] = VALUE_END
        properties.size += 1
    return _add(properties, properties.more)


@cython.cfunc
def complete_deferred(properties: PropertyBuffer, more: bytes) -> cython.Py_ssize_t:
    """Like `complete`, for a deferred message: drop the property that is rewritten and append
    `more`.
    """
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t = complete(properties)
    if properties.cut_size:
        for i in range(properties.cut_at, size - properties.cut_size):
            properties.p[i] = properties.p[i + properties.cut_size]
        properties.size -= properties.cut_size
        if properties.key_at > properties.cut_at:
            properties.key_at -= properties.cut_size
    needed: cython.Py_ssize_t = properties.size + len(more)
    if needed > len(properties._buffer):
        properties._buffer += bytes(needed)
        properties.p = address(properties._buffer)
    return _add(properties, more)


@cython.cfunc
def _add(properties: PropertyBuffer, more: bytes) -> cython.Py_ssize_t:
    copy(properties.p, properties.size, more, 0, len(more))
    properties.size += len(more)
    return properties.size


@cython.cfunc
def _make_room(properties: PropertyBuffer, size: cython.Py_ssize_t) -> cython.int:
    """Reserve space for `size` bytes and for what is appended to them."""
    needed: cython.Py_ssize_t = size + 1 + len(properties.more)
    if needed > len(properties._buffer):
        properties._buffer = bytearray(2 * needed)
        properties.p = address(properties._buffer)
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _is_plain(properties: PropertyBuffer) -> cython.bint:
    """Note unique key, deferral, and whether the reply waits for the disk. Returns False if the
    message must take the general path.
    """
    p: cython.p_const_uchar = properties.p
    size: cython.Py_ssize_t = properties.size
    at: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t
    value: cython.Py_ssize_t
    name_size: cython.Py_ssize_t
    rule: cython.int
    has_internal: cython.bint = False
    properties.key_at = properties.key_size = properties.kind = properties.cut_size = 0
    properties.number = 0
    properties.waits = True
    properties.is_sharded = False
    while at < size:
        stop = find(p, at, size, VALUE_END)
        value = find(p, at, stop, NAME_END) + 1
        if value <= stop:
            name_size = value - 1 - at
            rule = rule_at(p, at, name_size)
            if rule == GENERAL:
                return False
            if rule == INTERNAL:
                has_internal = True
            elif rule != PLAIN:
                if not _take_deferral(properties, rule, at, value, stop):
                    return False
            elif value == stop:
                pass  # an empty value counts as absent
            elif name_size == 13 and same(p, at, b"__SHARDINGKEY", 13):
                properties.is_sharded = True
            elif name_size == 8 and same(p, at, b"UNIQ_KEY", 8):
                properties.key_at = value
                properties.key_size = stop - value
            elif name_size == 4 and same(p, at, b"WAIT", 4):
                properties.waits = stop - value != 5 or not same(p, value, b"false", 5)
        at = stop + 1
    if has_internal and properties.kind:
        return False
    return _is_bare(p, properties.key_at, properties.key_at + properties.key_size)


@cython.cfunc
@cython.exceptval(check=False)
def _take_deferral(
    properties: PropertyBuffer,
    kind: cython.int,
    at: cython.Py_ssize_t,
    value: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> cython.bint:
    """Note the deferral. Returns False if there are two, or the value is not a plain number."""
    p: cython.p_const_uchar = properties.p
    digit: cython.Py_ssize_t
    if properties.kind:
        return False
    properties.kind = kind
    if kind == HALF:
        return stop - value == 4 and same(p, value, b"true", 4)
    if value == stop or stop - value > (LEVEL_DIGITS_MAX if kind == LEVEL else TIME_DIGITS_MAX):
        return False
    for digit in range(value, stop):
        if p[digit] < 48 or p[digit] > 57:
            return False
        properties.number = properties.number * 10 + (p[digit] - 48)
    if kind == LEVEL:
        properties.cut_at = at
        properties.cut_size = stop + 1 - at
    return properties.number > 0


@cython.cfunc
@cython.exceptval(check=False)
def _is_bare(p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Return whether a reply can carry the text p[at:end] without escaping."""
    while at < end and 32 <= p[at] <= 126 and p[at] != 34 and p[at] != 92:
        at += 1
    return at == end


@cython.cfunc
@cython.exceptval(check=False)
def rule_at(p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
    """Return the code of the rule for the property whose name is p[at:at+size]."""
    entries: cython.p_const_uchar = RULES
    starts: cython.p_const_uchar = RULE_STARTS
    first: cython.Py_ssize_t = 2 * p[at] if size else 0
    entry: cython.Py_ssize_t = starts[first] | starts[first + 1] << 8
    stop: cython.Py_ssize_t = starts[first + 2] | starts[first + 3] << 8
    length: cython.Py_ssize_t
    i: cython.Py_ssize_t
    while entry < stop:
        length = entries[entry + 2]
        if size == length or (entries[entry + 1] and size > length):
            i = 1  # the first byte is equal already
            while i < length and p[at + i] == entries[entry + 3 + i]:
                i += 1
            if i == length:
                return entries[entry]
        entry += 3 + length
    return PLAIN


@cython.cfunc
@cython.exceptval(check=False)
def unescape(
    target: cython.p_uchar,
    target_at: cython.Py_ssize_t,
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the JSON text p[at:end] as UTF-8 to target[target_at:], which is large enough. Return
    the offset after it, or -1 for escapes that only the general decoder handles.
    """
    byte: cython.int
    unit: cython.int
    low: cython.int
    i: cython.Py_ssize_t
    while at < end:
        byte = p[at]
        at += 1
        if byte != BACKSLASH:
            target[target_at] = byte
            target_at += 1
            continue
        if at >= end:
            return -1
        byte = p[at]
        at += 1
        if byte == 117:
            unit = _hex4(p, at, end)
            at += 4
            if unit < 0:
                return -1
            if unit < 0x80:
                target[target_at] = unit
                target_at += 1
            elif unit < 0x800:
                target[target_at] = 0xC0 | unit >> 6
                target[target_at + 1] = 0x80 | (unit & 63)
                target_at += 2
            elif unit < 0xD800 or unit > 0xDFFF:
                target[target_at] = 0xE0 | unit >> 12
                target[target_at + 1] = 0x80 | (unit >> 6 & 63)
                target[target_at + 2] = 0x80 | (unit & 63)
                target_at += 3
            else:  # a surrogate pair
                low = (
                    _hex4(p, at + 2, end)
                    if unit < 0xDC00 and at + 2 <= end and same(p, at, b"\\u", 2)
                    else -1
                )
                if low < 0xDC00 or low > 0xDFFF:
                    return -1
                at += 6
                unit = 0x10000 + ((unit & 0x3FF) << 10 | (low & 0x3FF))
                target[target_at] = 0xF0 | unit >> 18
                target[target_at + 1] = 0x80 | (unit >> 12 & 63)
                target[target_at + 2] = 0x80 | (unit >> 6 & 63)
                target[target_at + 3] = 0x80 | (unit & 63)
                target_at += 4
            continue
        i = find(ESCAPES, 0, 8, byte)
        if i == 8:
            return -1
        target[target_at] = ESCAPED[i]
        target_at += 1
    return target_at


@cython.cfunc
@cython.exceptval(check=False)
def _hex4(p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
    """Return the value of the four hexadecimal digits at p[at:end], or -1 if they are missing."""
    value: cython.int = 0
    stop: cython.Py_ssize_t = at + 4
    byte: cython.int
    if stop > end:
        return -1
    while at < stop:
        byte = p[at]
        if 48 <= byte <= 57:
            byte -= 48
        elif 97 <= (byte | 32) <= 102:
            byte = (byte | 32) - 87
        else:
            return -1
        value = value << 4 | byte
        at += 1
    return value
