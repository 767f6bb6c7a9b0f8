# The nodes of an expression as C structures.
cdef class RecordTest:
    cdef public int kind
    cdef public bytes name
    cdef public list operands, texts
    cdef public bint is_negated
    cdef public long long bound
    cdef public object other

cdef class RecordMatcher:
    cdef RecordTest _test
    cdef object _tell
