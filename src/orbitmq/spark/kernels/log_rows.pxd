# C declaration of LogRows.
from orbitmq.message.record_read cimport RecordCursor
from orbitmq.spark.kernels.rows cimport RowBuilder
from orbitmq.store.record_scanner cimport RecordScanner

cdef class LogRows(RecordScanner):
    cdef readonly list unreadable
    cdef RowBuilder _rows
    cdef object _is_wanted
    cdef dict _known
    cdef bytes _topic
    cdef bint _is_topic_wanted
    cdef long long _begin_ms, _end_ms

    cdef int take(self, RecordCursor record, const unsigned char *p) except? -1
