# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: Java's string hash, and the two numbers derived from it: the tags code of a queue entry
and the hash of an index entry.

The hash runs over UTF-16 code units, h = 31·h + unit, truncated to 32 bits. ASCII text has one unit
per byte, so its bytes are hashed without decoding them.
"""

import cython

from orbitmq.message.properties import decode_text

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, is_ascii, text_bytes, utf8, utf8_size
else:
    from orbitmq.common.mem import address, is_ascii, text_bytes, utf8, utf8_size

_MASK = cython.declare(
    cython.uint, 0xFFFFFFFF
)  # literals of more than 31 bits would be Python numbers, and slow
_SIGN = cython.declare(cython.uint, 0x80000000)
_MODULUS = cython.declare(cython.longlong, 0x100000000)


def java_hash(text: str) -> int:
    """Return `String.hashCode` of a text: a signed 32-bit number."""
    if text.isascii():
        return _signed(ascii_hash(0, utf8(text), 0, utf8_size(text)))
    units: bytes = text.encode("utf-16-be", "surrogatepass")
    p: cython.p_const_uchar = address(units)
    h: cython.uint = 0
    i: cython.Py_ssize_t
    for i in range(0, len(units), 2):
        h = (31 * h + (p[i] << 8 | p[i + 1])) & _MASK
    return _signed(h)


def tags_code(tags: str | None) -> int:
    """Return the code that a consume queue holds for a message with these tags; 0 without any."""
    return 0 if tags is None else java_hash(tags)


def index_hash(topic: str, key: str) -> int:
    """Return the hash of a topic's key in index files; never negative."""
    h: cython.longlong = java_hash(f"{topic}#{key}")
    return 0 if h == -0x80000000 else -h if h < 0 else h


@cython.cfunc
def utf8_hash(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.longlong:
    """Return `java_hash` of the text whose UTF-8 is p[at:end]."""
    if is_ascii(p, at, end):
        return _signed(ascii_hash(0, p, at, end))
    return java_hash(decode_text(text_bytes(p, at, end - at)))


@cython.cfunc
@cython.exceptval(check=False)
def ascii_hash(
    h: cython.uint, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.uint:
    """Return the unsigned hash of a text with hash `h` followed by the ASCII text p[at:end]."""
    while end - at >= 4:  # by the powers of 31: one product depends on the previous one, not four
        h = (923521 * h + 29791 * p[at] + 961 * p[at + 1] + 31 * p[at + 2] + p[at + 3]) & _MASK
        at += 4
    while at < end:
        h = (31 * h + p[at]) & _MASK
        at += 1
    return h


@cython.cfunc
@cython.exceptval(check=False)
def _signed(h: cython.uint) -> cython.longlong:
    signed: cython.longlong = h
    return signed - _MODULUS if h & _SIGN else signed
