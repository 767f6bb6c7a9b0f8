# MessageRecord and its parts as C structures, for the kernels that read and write them.
cdef class MessageRecord:
    cdef public int queue_id, flag, sys_flag, reconsume_times
    cdef public long long born_time_ms, prepared_offset
    cdef public bytes topic, born_host, properties
    cdef public object body

cdef class RecordParts:
    cdef bytes topic, born_host
    cdef const unsigned char *body
    cdef const unsigned char *properties
    cdef Py_ssize_t body_at, body_size, properties_at, properties_size
    cdef int queue_id, flag, sys_flag, reconsume_times
    cdef long long born_time_ms, prepared_offset

cdef bytes stored_properties(MessageRecord message, bint with_crc)
cdef int take_apart(MessageRecord message, bytes properties, RecordParts parts) except? -1
cdef Py_ssize_t size_with(RecordParts parts, bytes store_host) except? -1
cdef Py_ssize_t write(
    RecordParts parts, unsigned char *p, Py_ssize_t at, Py_ssize_t size, long long queue_offset, long long log_offset,
    long long store_time_ms, bytes store_host, bint with_crc
) except? -1
cpdef Py_ssize_t record_size(MessageRecord message, bytes store_host, bint with_crc=*) except -1
cpdef Py_ssize_t encode(
    MessageRecord message, bytearray target, Py_ssize_t at, long long queue_offset, long long log_offset, long long store_time_ms,
    bytes store_host, bint with_crc=*
) except -1
