# HotPath as a C structure.
from orbitmq.broker.hot_end cimport HotEnds
from orbitmq.broker.hot_header cimport HotHeader
from orbitmq.broker.hot_pull cimport HotPulls
from orbitmq.broker.hot_send cimport HotSends

cdef class HotPath:
    cdef HotSends _sends
    cdef HotEnds _ends
    cdef HotPulls _pulls
    cdef HotHeader _header
    cdef object _offsets, _is_direct
    cdef long long _frame_max, _header_max
    cdef bint _is_fresh, _takes_sends, _takes_pulls, _takes_ends

    cpdef Py_ssize_t take(self, object link, bytearray buffer, Py_ssize_t start, Py_ssize_t end) except? -1
