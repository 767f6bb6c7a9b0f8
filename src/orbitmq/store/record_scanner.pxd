# RecordScanner as a C structure: its numbers change with every record.
from orbitmq.message.record_read cimport RecordCursor

cdef class RecordScanner:
    cdef readonly Py_ssize_t at, result
    cdef readonly long long count, store_time_ms
    cdef long long _low_ms, _low_before_ms

    cdef int take(self, RecordCursor record, const unsigned char *p) except? -1
