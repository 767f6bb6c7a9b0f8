# AuthorizingFastPath as a C structure.
from orbitmq.protocol.header_view cimport HeaderView

cdef class AuthorizingFastPath:
    cdef object _fast_path, _guards, _topic_of_half
    cdef long long _frame_max, _header_max
    cdef HeaderView _header
    cdef bytearray _content, _names
    cdef dict _allowed, _naming, _hosts
    cdef bint _is_fresh
    cdef list _rules
    cdef int _order[40]

    cpdef Py_ssize_t try_handle(self, object link, bytearray buffer, Py_ssize_t start, Py_ssize_t end) except? -1
