# IndexWriter as a C structure: `put` uses all of it for every key.
from orbitmq.message.record_read cimport RecordCursor

cdef class IndexWriter:
    cdef readonly object slots, touched, entries
    cdef readonly int slot_count, entry_max, entry_count, slots_used, pending
    cdef readonly long long begin_time_ms, end_time_ms, begin_offset, end_offset
    cdef unsigned char *_slots
    cdef unsigned char *_touched
    cdef unsigned char *_entries

cdef int put_keys(IndexWriter writer, RecordCursor record, const unsigned char *p, int done) except? -1
