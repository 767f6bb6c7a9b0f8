# C declarations for kernels that read Arrow columns.
cdef class ArrowColumn:
    cdef const int *offsets
    cdef const unsigned char *_validity
    cdef bint _has_nulls
    cdef list _held

cdef class ArrowTexts(ArrowColumn):
    cdef const unsigned char *data

cdef class ArrowLists(ArrowColumn):
    cdef ArrowTexts texts, values

cdef bint is_valid(ArrowColumn column, Py_ssize_t row) noexcept
