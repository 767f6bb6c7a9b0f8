# HotProperties as a C structure, for the kernel that stores them.
cdef class HotProperties:
    cdef bytearray _buffer
    cdef unsigned char *p
    cdef bytes more
    cdef Py_ssize_t size, key_at, key_size
    cdef bint waits

cdef bint read(HotProperties properties, const unsigned char *p, Py_ssize_t at, Py_ssize_t size, bint is_escaped) except? -1
cdef Py_ssize_t complete(HotProperties properties) except? -1
