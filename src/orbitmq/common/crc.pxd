# CRC-32 of bytes in place, for compiled kernels.
cdef unsigned int crc(const unsigned char *p, Py_ssize_t at, Py_ssize_t length) except? -1
