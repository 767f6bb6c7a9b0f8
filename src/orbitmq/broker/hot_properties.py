# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: the properties of a message on their way from a request into its record, in a buffer that all messages share.

Its executable specification is what `processors.send` does with `message.properties`: where `read` says yes, both agree on the unique key,
on whether the sender waits, and on the bytes that are stored. Knows nothing of messages or requests.
"""

import cython

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, copy, find, same
else:
    from orbitmq.common.mem import address, copy, find, same

NAME_END = cython.declare(cython.int, 1)
VALUE_END = cython.declare(cython.int, 2)
BACKSLASH = cython.declare(cython.int, 92)
SIZE_MAX = cython.declare(cython.Py_ssize_t, 1 << 18)  # more than any record can hold, even if each byte is escaped
ESCAPES = cython.declare(bytes, b'"\\/bfnrt')
ESCAPED = cython.declare(bytes, b'"\\/\b\f\n\r\t')


class HotProperties:
    """Properties, `size` bytes of them at `p`. `more` is what the broker adds to those of every message."""

    __slots__ = ("_buffer", "key_at", "key_size", "more", "p", "size", "waits")

    def __init__(self) -> None:
        self._buffer = bytearray(1 << 12)
        self.p = address(self._buffer)
        self.more = b""
        self.size = self.key_at = self.key_size = 0
        self.waits = True


@cython.cfunc
def read(
    properties: HotProperties, p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, is_escaped: cython.bint
) -> cython.bint:
    """Take over p[at:at+size], a JSON text if it is escaped, and look at it; no: these are not the properties of an ordinary message."""
    if size > SIZE_MAX:
        return False
    _make_room(properties, size)
    if is_escaped:
        properties.size = _unescape(properties.p, 0, p, at, at + size)
    else:
        copy(properties.p, 0, p, at, size)
        properties.size = size
    return properties.size >= 0 and _is_plain(properties)


@cython.cfunc
def complete(properties: HotProperties) -> cython.Py_ssize_t:
    """Put what the broker adds behind them; how many bytes there are then."""
    more: bytes = properties.more
    if properties.size and properties.p[properties.size - 1] != VALUE_END:
        properties.p[properties.size] = VALUE_END
        properties.size += 1
    copy(properties.p, properties.size, more, 0, len(more))
    properties.size += len(more)
    return properties.size


@cython.cfunc
def _make_room(properties: HotProperties, size: cython.Py_ssize_t) -> cython.int:
    """Make room for that many bytes, and for what comes behind them."""
    needed: cython.Py_ssize_t = size + 1 + len(properties.more)
    if needed > len(properties._buffer):
        properties._buffer = bytearray(2 * needed)
        properties.p = address(properties._buffer)
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _is_plain(properties: HotProperties) -> cython.bint:
    """Whether they make an ordinary message; notes its unique key, and whether its sender waits."""
    p: cython.p_const_uchar = properties.p
    size: cython.Py_ssize_t = properties.size
    at: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t
    value: cython.Py_ssize_t
    name_size: cython.Py_ssize_t
    properties.key_at = properties.key_size = 0
    properties.waits = True
    while at < size:
        stop = find(p, at, size, VALUE_END)
        value = find(p, at, stop, NAME_END) + 1
        if value <= stop:
            name_size = value - 1 - at
            if _is_odd(p, at, name_size):
                return False
            if value == stop:
                pass  # an empty value is none
            elif name_size == 8 and same(p, at, b"UNIQ_KEY", 8):
                properties.key_at = value
                properties.key_size = stop - value
            elif name_size == 4 and same(p, at, b"WAIT", 4):
                properties.waits = stop - value != 5 or not same(p, value, b"false", 5)
        at = stop + 1
    return _is_bare(p, properties.key_at, properties.key_at + properties.key_size)


@cython.cfunc
@cython.exceptval(check=False)
def _is_bare(p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Whether an answer can have the text p[at:end] as it is, without an escape."""
    while at < end and 32 <= p[at] <= 126 and p[at] != 34 and p[at] != 92:
        at += 1
    return at == end


@cython.cfunc
@cython.exceptval(check=False)
def _is_odd(p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    """Whether a property of that name asks for more than to be stored."""
    byte: cython.int = p[at] if size else 0
    if byte == 84:  # T
        return size >= 5 and (same(p, at, b"TIMER", 5) or same(p, at, b"TRAN_", 5))
    if byte == 68:  # D
        return size == 5 and same(p, at, b"DELAY", 5)
    if byte == 80:  # P
        return size >= 6 and same(p, at, b"POP_CK", 6)
    if byte == 73:  # I
        return size >= 6 and same(p, at, b"INNER_", 6)
    return byte == 95 and size == 12 and same(p, at, b"__LITE_TOPIC", 12)


@cython.cfunc
@cython.exceptval(check=False)
def _unescape(
    target: cython.p_uchar, target_at: cython.Py_ssize_t, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write the JSON text p[at:end] as UTF-8 to target[target_at:], which has room; the offset behind it, or -1: odd escapes."""
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
            else:  # the halves of a pair
                low = _hex4(p, at + 2, end) if unit < 0xDC00 and at + 2 <= end and same(p, at, b"\\u", 2) else -1
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
    """The number of the four hexadecimal digits at p[at:end], -1 when they are not there."""
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
