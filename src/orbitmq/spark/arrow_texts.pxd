# Columns of Arrow as C structures, for the kernel that reads them.
cdef class ArrowColumn:
    cdef const int *offsets
    cdef const unsigned char *_validity
    cdef bint _has_nulls
    cdef list _held

cdef class ArrowTexts(ArrowColumn):
    cdef const unsigned char *data

cdef class ArrowRuns(ArrowColumn):
    cdef ArrowTexts texts, values

cdef bint is_there(ArrowColumn column, Py_ssize_t row) noexcept
