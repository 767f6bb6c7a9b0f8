# The sums that connections add to, as C numbers, for the kernel that serves plaintext sockets.
cdef class Budgets:
    cdef public Py_ssize_t unsent, unfinished
    cdef readonly Py_ssize_t unsent_max, unfinished_max
    cdef readonly dict handshakes
    cdef list _servers
