# The nodes of an expression as C structures.
cdef class RecordTest:
    cdef public int kind
    cdef public bytes name
    cdef public list operands, texts
    cdef public bint is_negated
    cdef public long long bound
    cdef public object node, other, text_set

cdef class RecordMatcher:
    cdef RecordTest _test
    cdef long long _cost
    cdef object _evaluate, _tell
