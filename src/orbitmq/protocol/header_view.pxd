# HeaderView as a C structure, for the kernel that serves what it reads.
cdef class HeaderView:
    cdef int code, flag, opaque
    cdef bint is_escaped, is_batch
    cdef Py_ssize_t topic_at, topic_size, properties_at, properties_size
    cdef Py_ssize_t group_at, group_size, subscription_at, subscription_size, type_at, type_size
    cdef int queue_id, sys_flag, message_flag, reconsume_times, count_max
    cdef long long born_time_ms, queue_offset, commit_offset, sub_version, suspend_ms, commit_log_offset
    cdef int outcome
    cdef Py_ssize_t transaction_id_at, transaction_id_size
    cdef bint _is_bad, notes_fields
    cdef int field_count
    cdef Py_ssize_t name_at[40]
    cdef Py_ssize_t name_size[40]
    cdef Py_ssize_t value_at[40]
    cdef Py_ssize_t value_size[40]
    cdef Py_ssize_t _at[31]
    cdef Py_ssize_t _size[31]

cdef bint scan(HeaderView header, const unsigned char *p, Py_ssize_t start, Py_ssize_t end, bint is_binary) except? -1
cdef bint read_send(HeaderView header, const unsigned char *p) noexcept
cdef bint read_pull(HeaderView header, const unsigned char *p) noexcept
cdef bint read_end(HeaderView header, const unsigned char *p) noexcept
