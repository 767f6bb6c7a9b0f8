# The hashes of text that lies in a buffer, for the kernels that find it there.
cdef long long utf8_hash(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) except? -1
cdef unsigned int ascii_hash(unsigned int h, const unsigned char *p, Py_ssize_t at, Py_ssize_t end) noexcept
