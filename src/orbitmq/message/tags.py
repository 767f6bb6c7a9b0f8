# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Java's hash of a text, and the two numbers that are made of it: the tags code of a queue entry, the hash of an index entry. A kernel.

The hash runs over UTF-16 code units, h = 31·h + unit, and keeps 32 bits.
"""

import cython

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, utf8, utf8_size
else:
    from orbitmq.common.mem import address, utf8, utf8_size


def java_hash(text: str) -> int:
    """What `String.hashCode` says: a signed 32-bit number."""
    h: cython.uint = 0
    i: cython.Py_ssize_t
    p: cython.p_const_uchar
    size: cython.Py_ssize_t
    if text.isascii():
        p = utf8(text)
        for i in range(utf8_size(text)):
            h = (31 * h + p[i]) & 0xFFFFFFFF
    else:
        units: bytes = text.encode("utf-16-be", "surrogatepass")
        p = address(units)
        size = len(units)
        for i in range(0, size, 2):
            h = (31 * h + (p[i] << 8 | p[i + 1])) & 0xFFFFFFFF
    signed: cython.longlong = h
    return signed - 0x100000000 if h & 0x80000000 else signed


def tags_code(tags: str | None) -> int:
    """The code that a consume queue holds for a message of these tags; without any it is 0."""
    return 0 if tags is None else java_hash(tags)


def index_hash(topic: str, key: str) -> int:
    """The hash by which the index files know a key of a topic; never negative."""
    h: cython.longlong = java_hash(f"{topic}#{key}")
    return 0 if h == -0x80000000 else -h if h < 0 else h
