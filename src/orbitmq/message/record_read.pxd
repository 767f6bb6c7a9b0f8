# RecordCursor as a C structure, for the kernels that read it.
cdef class RecordCursor:
    cdef readonly object buffer
    cdef readonly bint whole
    cdef readonly Py_ssize_t at, size, body_at, topic_at, properties_at, properties_size
    cdef readonly int body_size, topic_size, body_crc, queue_id, flag, sys_flag, reconsume_times
    cdef readonly long long queue_offset, log_offset, born_time_ms, store_time_ms, prepared_offset
