# Number formatting, for the kernels that write replies themselves.
cdef Py_ssize_t put_number(unsigned char *p, Py_ssize_t at, long long value) noexcept
