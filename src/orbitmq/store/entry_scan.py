# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: how far the bytes of a queue are valid entries, and not what a crash left, or holes.

An entry of either kind begins `8 log offset | 4 record size | 8 tags code`; the 46 bytes of a batch
entry continue `8 store time | 8 base queue offset | 2 batch size | …`. It is valid if its offset is
not negative, its size positive, its record after that of the entry before it, and completely below
the end of the log. An entry whose size is FILLER_SIZE stands for no record.
"""

import cython

from orbitmq.common.mem import Buffer

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, signed16, signed32, signed64
else:
    from orbitmq.common.mem import address, signed16, signed32, signed64

FILLER_SIZE = 0x7FFFFFFF
_FILLER_SIZE = cython.declare(cython.longlong, FILLER_SIZE)
_BATCH_ENTRY_SIZE = cython.declare(cython.Py_ssize_t, 46)


def scan(
    entries: Buffer,
    entry_size: cython.Py_ssize_t,
    physical_end: cython.longlong,
    log_end: cython.longlong,
) -> tuple[int, int]:
    """Return how many bytes from the first are valid entries, and the log offset after the last
    one's record.

    `physical_end` is that of the entry before the first, or 0.
    """
    p: cython.p_const_uchar = address(entries)
    size: cython.Py_ssize_t = len(entries) // entry_size * entry_size
    at: cython.Py_ssize_t = 0
    offset: cython.longlong
    length: cython.longlong
    while at < size:
        offset = signed64(p, at)
        length = signed32(p, at + 8)
        if offset < 0 or length <= 0:
            break
        if length != _FILLER_SIZE:
            if offset < physical_end or offset > log_end - length:
                break
            if entry_size == _BATCH_ENTRY_SIZE and (
                signed64(p, at + 28) < 0 or signed16(p, at + 36) <= 0
            ):
                break
            physical_end = offset + length
        at += entry_size
    return at, physical_end
