# PropertyBuffer as a C structure, for the kernels that store properties.
cdef class PropertyBuffer:
    cdef bytearray _buffer
    cdef unsigned char *p
    cdef bytes more
    cdef Py_ssize_t size, key_at, key_size, cut_at, cut_size
    cdef bint waits, is_sharded
    cdef int kind
    cdef long long number

cdef bint read(PropertyBuffer properties, const unsigned char *p, Py_ssize_t at, Py_ssize_t size, bint is_escaped) except? -1
cdef Py_ssize_t unescape(
    unsigned char *target, Py_ssize_t target_at, const unsigned char *p, Py_ssize_t at, Py_ssize_t end
) noexcept
cdef int rule_at(const unsigned char *p, Py_ssize_t at, Py_ssize_t size) noexcept
cdef Py_ssize_t complete(PropertyBuffer properties) except? -1
cdef Py_ssize_t complete_deferred(PropertyBuffer properties, bytes more) except? -1
