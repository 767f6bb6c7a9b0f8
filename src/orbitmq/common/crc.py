# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Kernel: the checksum of zip files, CRC-32, of bytes where they lie.

By the library that uses what processors have for it, where that is installed; else by zlib, which takes a few times as long.
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
    """The checksum of p[at:at+length]."""
    return crc32(view(p, at, length))
