# RecordCollector as a C structure, for kernels that read its result.
from orbitmq.message.record_read cimport RecordCursor

cdef class RecordCollector:
    cdef readonly bytearray records
    cdef readonly list bad
    cdef readonly int record_count, message_count
    cdef readonly bint is_gone
    cdef readonly long long next_offset, last_log_offset, last_store_time_ms
    cdef object _find, _wanted, _unit_of, _code_set
    cdef bytearray _codes
    cdef RecordCursor _cursor
    cdef int _code_count, _count_max, _hot_count_max, _cold_count_max
    cdef bint _check_body, _check_record, _passes_bare
    cdef Py_ssize_t _entry_size, _used, _bytes_max, _hot_bytes_max, _cold_bytes_max
    cdef long long _file_size, _hot_distance, _asked, _scan_size_max, _log_end, _skip_below, _record_cost, _work
