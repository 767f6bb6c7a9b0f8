# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: the properties of a message on their way from a request into its record, in a buffer that all messages share.

Its executable specification is what `processors.send` does with `message.properties`: where `read` says yes, both agree on the unique key,
on whether the sender waits, on why the message waits, if it does, and on the bytes that are stored. Knows nothing of messages or requests.
"""

import cython

from orbitmq.broker.processors.send import WaitKind

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, copy, find, same
else:
    from orbitmq.common.mem import address, copy, find, same

NAME_END = cython.declare(cython.int, 1)
VALUE_END = cython.declare(cython.int, 2)
BACKSLASH = cython.declare(cython.int, 92)
SIZE_MAX = cython.declare(cython.Py_ssize_t, 1 << 18)  # more than any record can hold, even if each byte is escaped
LEVEL = cython.declare(cython.int, WaitKind.LEVEL)
TIMED = cython.declare(cython.int, WaitKind.TIMED)
HALF = cython.declare(cython.int, WaitKind.HALF)
OWN = cython.declare(cython.int, 4)  # a name that the broker writes into messages that wait
SHARDED = cython.declare(cython.int, 5)  # the key of a message of a sequence; to be stored, no more
ODD = cython.declare(cython.int, -1)
LEVEL_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 9)
TIME_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 18)
ESCAPES = cython.declare(bytes, b'"\\/bfnrt')
ESCAPED = cython.declare(bytes, b'"\\/\b\f\n\r\t')


class HotProperties:
    """Properties, `size` bytes of them at `p`. `more` is what the broker adds to those of every message.

    `kind` is why the message waits, 0 if it does not, and `number` its level or time; the property that says its level, which is written
    anew, stands at `cut_at`.
    """

    __slots__ = ("_buffer", "cut_at", "cut_size", "is_sharded", "key_at", "key_size", "kind", "more", "number", "p", "size", "waits")

    def __init__(self) -> None:
        self._buffer = bytearray(1 << 12)
        self.p = address(self._buffer)
        self.more = b""
        self.size = self.key_at = self.key_size = self.kind = self.number = self.cut_at = self.cut_size = 0
        self.waits = True
        self.is_sharded = False


@cython.cfunc
def read(
    properties: HotProperties, p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, is_escaped: cython.bint
) -> cython.bint:
    """Take over p[at:at+size], a JSON text if it is escaped, and look at it; no: these are not the properties of an ordinary message."""
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
def complete(properties: HotProperties) -> cython.Py_ssize_t:
    """Put what the broker adds behind them; how many bytes there are then."""
    if properties.size and properties.p[properties.size - 1] != VALUE_END:
        properties.p[properties.size] = VALUE_END
        properties.size += 1
    return _add(properties, properties.more)


@cython.cfunc
def complete_waiting(properties: HotProperties, more: bytes) -> cython.Py_ssize_t:
    """The same for a message that waits, with `more` at the very end and without what is written anew there."""
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
def _add(properties: HotProperties, more: bytes) -> cython.Py_ssize_t:
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
    """Whether they make an ordinary message, or one that just waits; notes its unique key, why it waits, and whether its sender does."""
    p: cython.p_const_uchar = properties.p
    size: cython.Py_ssize_t = properties.size
    at: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t
    value: cython.Py_ssize_t
    name_size: cython.Py_ssize_t
    kind: cython.int
    has_own: cython.bint = False
    properties.key_at = properties.key_size = properties.kind = properties.cut_size = 0
    properties.number = 0
    properties.waits = True
    properties.is_sharded = False
    while at < size:
        stop = find(p, at, size, VALUE_END)
        value = find(p, at, stop, NAME_END) + 1
        if value <= stop:
            name_size = value - 1 - at
            kind = kind_of(p, at, name_size)
            if kind == ODD:
                return False
            if kind == OWN:
                has_own = True
            elif kind == SHARDED:
                properties.is_sharded |= value < stop
            elif kind:
                if not _take_kind(properties, kind, at, value, stop):
                    return False
            elif value == stop:
                pass  # an empty value is none
            elif name_size == 8 and same(p, at, b"UNIQ_KEY", 8):
                properties.key_at = value
                properties.key_size = stop - value
            elif name_size == 4 and same(p, at, b"WAIT", 4):
                properties.waits = stop - value != 5 or not same(p, value, b"false", 5)
        at = stop + 1
    if has_own and properties.kind:
        return False
    return _is_bare(p, properties.key_at, properties.key_at + properties.key_size)


@cython.cfunc
@cython.exceptval(check=False)
def _take_kind(
    properties: HotProperties, kind: cython.int, at: cython.Py_ssize_t, value: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.bint:
    """Note why the message waits; no: it says so twice, or in a way that takes more than a look."""
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
    """Whether an answer can have the text p[at:end] as it is, without an escape."""
    while at < end and 32 <= p[at] <= 126 and p[at] != 34 and p[at] != 92:
        at += 1
    return at == end


@cython.cfunc
@cython.exceptval(check=False)
def kind_of(p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
    """What a property of that name asks for: to be stored, no more; that the message waits; or what takes more than a look."""
    byte: cython.int = p[at] if size >= 5 else 0
    if byte == 84:  # T
        if same(p, at, b"TIMER", 5):
            return TIMED if size == 16 and same(p, at, b"TIMER_DELIVER_MS", 16) else ODD
        if same(p, at, b"TRAN_", 5):
            return HALF if size == 8 and same(p, at, b"TRAN_MSG", 8) else ODD
        return OWN if size == 23 and same(p, at, b"TRANSACTION_CHECK_TIMES", 23) else 0
    if byte == 68:  # D
        return LEVEL if size == 5 and same(p, at, b"DELAY", 5) else 0
    if byte == 80:  # P
        return ODD if size >= 6 and same(p, at, b"POP_CK", 6) else 0
    if byte == 73:  # I
        return ODD if size >= 6 and same(p, at, b"INNER_", 6) else 0
    if byte == 82:  # R
        return OWN if same(p, at, b"REAL_", 5) else 0
    if byte == 95:  # _
        if size == 12 and same(p, at, b"__LITE_TOPIC", 12):
            return ODD
        if size == 13 and same(p, at, b"__SHARDINGKEY", 13):
            return SHARDED
        return OWN if size == 17 and same(p, at, b"__transactionId__", 17) else 0
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def unescape(
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
