# Templates and buffers of replies as C structures, for the kernels that fill them.
cdef class ReplyTemplate:
    cdef list pieces
    cdef Py_ssize_t block_at, size
    cdef bint is_binary

cdef class ReplyBuffer:
    cdef bytearray _buffer
    cdef unsigned char *_p
    cdef Py_ssize_t used, _begin
    cdef ReplyTemplate _template
    cdef int _piece
    cdef list _links, _begins

cdef int begin(ReplyBuffer answers, object link, ReplyTemplate template, Py_ssize_t values_size) except? -1
cdef int put_text(ReplyBuffer answers, const unsigned char *p, Py_ssize_t at, Py_ssize_t size) except? -1
cdef int put_value(ReplyBuffer answers, long long value) except? -1
cdef int end(ReplyBuffer answers, int opaque, Py_ssize_t body_size) except? -1
cdef Py_ssize_t put_id(unsigned char *p, Py_ssize_t at, bytes host, long long offset) noexcept
