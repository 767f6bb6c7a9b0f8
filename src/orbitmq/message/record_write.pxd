# Message as a C structure, for the kernels that read and write it.
cdef class Message:
    cdef public int queue_id, flag, sys_flag, reconsume_times
    cdef public long long born_time_ms, prepared_offset
    cdef public bytes topic, born_host, properties
    cdef public object body
