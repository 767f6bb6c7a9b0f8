# For the kernels that call it.
cdef unsigned int crc(const unsigned char *p, Py_ssize_t at, Py_ssize_t length) except? -1
