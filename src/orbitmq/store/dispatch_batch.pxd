# DispatchBatch and its runs as C structures.
from orbitmq.message.record_read cimport RecordCursor
from orbitmq.store.index_writer cimport IndexWriter
from orbitmq.store.record_scanner cimport RecordScanner

cdef class QueueRun:
    cdef object queue, key
    cdef bytes topic
    cdef bytearray entries
    cdef unsigned char *p
    cdef Py_ssize_t topic_size, used
    cdef int queue_id
    cdef bint is_plain
    cdef long long next_offset, physical_end, batch_number

cdef class DispatchBatch(RecordScanner):
    cdef object _obtain, _other, _index
    cdef IndexWriter _writer
    cdef list _arrivals, _recent, _touched
    cdef long long _number
    cdef dict _bad, _runs

    cdef int take(self, RecordCursor record, const unsigned char *p) except? -1
