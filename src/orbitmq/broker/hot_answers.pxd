# What answers are made of, as C structures, for the kernel that gives them their values.
cdef class AnswerTemplate:
    cdef list pieces
    cdef Py_ssize_t block_at, size
    cdef bint is_binary

cdef class Answers:
    cdef bytearray _buffer
    cdef unsigned char *_p
    cdef Py_ssize_t used, _begin
    cdef AnswerTemplate _template
    cdef int _piece
    cdef list _links, _begins

cdef int begin(Answers answers, object link, AnswerTemplate template, Py_ssize_t values_size) except? -1
cdef int put_text(Answers answers, const unsigned char *p, Py_ssize_t at, Py_ssize_t size) except? -1
cdef int put_value(Answers answers, long long value) except? -1
cdef int end(Answers answers, int opaque, Py_ssize_t body_size) except? -1
cdef Py_ssize_t put_id(unsigned char *p, Py_ssize_t at, bytes host, long long offset) noexcept
