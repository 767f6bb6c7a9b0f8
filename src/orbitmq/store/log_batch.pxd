# LogBatch and its results as C structures.
from orbitmq.message.record_write cimport MessageRecord, RecordParts
from orbitmq.store.queue_offsets cimport QueueOffsets

cdef class Appended:
    cdef readonly long long offset, end, queue_offset, store_time_ms
    cdef readonly Py_ssize_t size

cdef class LogBatch:
    cdef readonly bytearray buffer
    cdef readonly Py_ssize_t used
    cdef readonly long long end, store_time_ms
    cdef object _limits, _refusal
    cdef QueueOffsets _offsets
    cdef RecordParts _message_parts
    cdef bytes _store_host
    cdef bint _with_crc
    cdef Py_ssize_t _file_size, _batch_size_max, _body_size_max, _topic_size_max, _record_size_max, _part_begin
    cdef long long _part_offset
    cdef list _parts

    cpdef Appended append(self, MessageRecord message, long long now_ms)

cdef Py_ssize_t size_within(LogBatch log, RecordParts parts, Py_ssize_t properties_size) except? -1
cdef Py_ssize_t make_room(LogBatch log, Py_ssize_t size, Py_ssize_t count, long long now_ms) except? -1
cdef long long put(LogBatch log, RecordParts parts, Py_ssize_t size, int places) except? -1
