# C declaration of RecordTable, for the columns that are filled from it.
from orbitmq.message.record_read cimport RecordCursor

cdef class RecordTable:
    cdef readonly Py_ssize_t count
    cdef object _buffer, _memory
    cdef const unsigned char *p
    cdef long long *fields

cdef bint add_record(RecordTable table, RecordCursor record, const unsigned char *p) except? -1
