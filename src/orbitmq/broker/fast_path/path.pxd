# BrokerFastPath as a C structure.
from orbitmq.broker.fast_path.end_transaction cimport EndTransactionHandler
from orbitmq.protocol.header_view cimport HeaderView
from orbitmq.broker.fast_path.pull cimport PullHandler
from orbitmq.broker.fast_path.send cimport SendHandler

cdef class BrokerFastPath:
    cdef SendHandler _sends
    cdef EndTransactionHandler _ends
    cdef PullHandler _pulls
    cdef HeaderView _header
    cdef object _offsets, _is_direct
    cdef long long _frame_max, _header_max
    cdef bint _is_fresh, _takes_sends, _takes_pulls, _takes_ends

    cpdef Py_ssize_t try_handle(self, object link, bytearray buffer, Py_ssize_t start, Py_ssize_t end) except? -1
