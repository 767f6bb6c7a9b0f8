# RecordCursor as a C structure, for the kernels that read it, and how they move it.
cdef class RecordCursor:
    cdef readonly object buffer
    cdef readonly bint whole
    cdef readonly Py_ssize_t at, size, body_at, topic_at, properties_at, properties_size
    cdef readonly int body_size, topic_size, body_crc, queue_id, flag, sys_flag, reconsume_times
    cdef readonly long long queue_offset, log_offset, born_time_ms, store_time_ms, prepared_offset

    cpdef Py_ssize_t read(self, object buffer, Py_ssize_t at, Py_ssize_t end, bint check_body=*, bint check_record=*) except? -100
    cpdef long long tags_code(self) except? -1

cdef Py_ssize_t move(
    RecordCursor cursor, const unsigned char *p, Py_ssize_t at, Py_ssize_t end, bint check_body, bint check_record
) except? -1

cdef const unsigned char *pointer(RecordCursor cursor) except? NULL

cdef Py_ssize_t value_at(
    const unsigned char *p, Py_ssize_t at, Py_ssize_t end, const unsigned char *name, Py_ssize_t name_size
) except? -1
