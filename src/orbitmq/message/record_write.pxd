# Message as a C structure, for the kernels that read and write it.
cdef class Message:
    cdef public int queue_id, flag, sys_flag, reconsume_times
    cdef public long long born_time_ms, prepared_offset
    cdef public bytes topic, born_host, properties
    cdef public object body

cpdef Py_ssize_t record_size(Message message, bytes store_host, bint with_crc=*) except -1
cpdef Py_ssize_t encode(
    Message message, bytearray target, Py_ssize_t at, long long queue_offset, long long log_offset, long long store_time_ms,
    bytes store_host, bint with_crc=*
) except -1
