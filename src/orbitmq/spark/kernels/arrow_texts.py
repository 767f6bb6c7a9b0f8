# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: reads strings of Arrow arrays in place.

Accepts only arrays that start at the beginning of their buffers and have 32-bit offsets;
`sink.columns` converts others. A column keeps the memory it points to alive.
"""

from typing import Any

import cython
import pyarrow as pa

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address
else:
    from orbitmq.common.mem import address

EMPTY = cython.declare(bytes, bytes(8))


class ArrowColumn:
    """The validity and the value offsets of an array; there is one more offset than rows."""

    offsets: Any

    def __init__(self, array: pa.Array) -> None:
        assert array.offset == 0, "the array starts at the beginning of its buffers"
        buffers = array.buffers()
        self._held = buffers
        self._has_nulls = array.null_count > 0
        self._validity = address(buffers[0] if self._has_nulls else EMPTY)
        offsets = buffers[1] if buffers[1] is not None and buffers[1].size else EMPTY
        if cython.compiled:
            self.offsets = cython.cast(cython.p_int, address(offsets))
        else:
            self.offsets = memoryview(offsets).cast("B")[: len(offsets) // 4 * 4].cast("i")


class ArrowTexts(ArrowColumn):
    """An array of strings or bytes; the value of a row is data[offsets[row]:offsets[row + 1]]."""

    data: Any

    def __init__(self, array: pa.Array) -> None:
        ArrowColumn.__init__(self, array)
        data = self._held[2]
        self.data = address(data if data is not None and data.size else EMPTY)


class ArrowLists(ArrowColumn):
    """An array of string lists; those of a row are `texts` from offsets[row] to offsets[row + 1].
    For a map, `texts` are the names and `values` the values.
    """

    def __init__(self, array: pa.Array) -> None:
        ArrowColumn.__init__(self, array)
        is_map = pa.types.is_map(array.type)
        self.texts = ArrowTexts(array.keys if is_map else array.values)
        self.values = ArrowTexts(array.items) if is_map else None


@cython.cfunc
@cython.exceptval(check=False)
def is_valid(column: ArrowColumn, row: cython.Py_ssize_t) -> cython.bint:
    """Return whether the row is not null."""
    return not column._has_nulls or column._validity[row >> 3] >> (row & 7) & 1
