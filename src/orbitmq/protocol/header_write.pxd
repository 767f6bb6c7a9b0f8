# How numbers are written, for the kernel that writes answers of its own.
cdef Py_ssize_t put_number(unsigned char *p, Py_ssize_t at, long long value) noexcept
