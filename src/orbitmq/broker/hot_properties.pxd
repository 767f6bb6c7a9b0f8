# HotProperties as a C structure, for the kernel that stores them.
cdef class HotProperties:
    cdef bytearray _buffer
    cdef unsigned char *p
    cdef bytes more
    cdef Py_ssize_t size, key_at, key_size, cut_at, cut_size
    cdef bint waits, is_sharded
    cdef int kind
    cdef long long number

cdef bint read(HotProperties properties, const unsigned char *p, Py_ssize_t at, Py_ssize_t size, bint is_escaped) except? -1
cdef Py_ssize_t unescape(
    unsigned char *target, Py_ssize_t target_at, const unsigned char *p, Py_ssize_t at, Py_ssize_t end
) noexcept
cdef int kind_of(const unsigned char *p, Py_ssize_t at, Py_ssize_t size) noexcept
cdef Py_ssize_t complete(HotProperties properties) except? -1
cdef Py_ssize_t complete_waiting(HotProperties properties, bytes more) except? -1
