# cython: boundscheck=False, wraparound=False, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: CRC-32 (as in zip files) of bytes in place.

Uses the hardware-accelerated library if it is installed, else zlib, which is several times slower.
"""

import cython

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import view
else:
    from orbitmq.common.mem import view

try:
    from isal.isal_zlib import crc32 as crc32
except ImportError:  # no wheel for this platform
    from zlib import crc32 as crc32


@cython.cfunc
def crc(p: cython.p_const_uchar, at: cython.Py_ssize_t, length: cython.Py_ssize_t) -> cython.uint:
    """Return the CRC-32 of p[at:at+length]."""
    return crc32(view(p, at, length))
