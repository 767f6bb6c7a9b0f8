# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: texts of Arrow arrays, read where they lie.

Knows arrays that begin where their buffers do and whose offsets have 32 bits; `sink_columns` makes others such ones. A column keeps the
memory that it points to.
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
    """Which rows have a value, and where those of each begin: `offsets`, one more than there are rows."""

    __slots__ = ("_has_nulls", "_held", "_validity", "offsets")

    offsets: Any

    def __init__(self, array: pa.Array) -> None:
        assert array.offset == 0, "the array is a part of its buffers"
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
    """Texts or bytes: that of a row is data[offsets[row]:offsets[row + 1]]."""

    __slots__ = ("data",)

    data: Any

    def __init__(self, array: pa.Array) -> None:
        ArrowColumn.__init__(self, array)
        data = self._held[2]
        self.data = address(data if data is not None and data.size else EMPTY)


class ArrowRuns(ArrowColumn):
    """Several texts for each row, those of `texts` from offsets[row] to offsets[row + 1]; of maps, they are the names of `values`."""

    __slots__ = ("texts", "values")

    def __init__(self, array: pa.Array) -> None:
        ArrowColumn.__init__(self, array)
        is_map = pa.types.is_map(array.type)
        self.texts = ArrowTexts(array.keys if is_map else array.values)
        self.values = ArrowTexts(array.items) if is_map else None


@cython.cfunc
@cython.exceptval(check=False)
def is_there(column: ArrowColumn, row: cython.Py_ssize_t) -> cython.bint:
    """Whether the row has a value, be it an empty one."""
    return not column._has_nulls or column._validity[row >> 3] >> (row & 7) & 1
