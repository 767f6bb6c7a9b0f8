# The counters of sends as C structures, for the kernels that count.
cdef class SendTally:
    cdef readonly str name
    cdef readonly object message_type
    cdef long long count, size, puts, told_count, told_size, told_puts

cdef class FastQueue:
    cdef str topic
    cdef int queue_id
    cdef bint is_level
    cdef long long puts, size, told_puts, told_size, times, took_ms

cdef class IterationCounts:
    cdef long long sends, batches, ends, oneway_sends, oneway_batches, oneway_ends, puts
    cdef public long long begun_ms
    cdef list queues

cdef class SendCounters:
    cdef readonly IterationCounts iteration
    cdef object _listener
    cdef dict _tallies, _deferred, _put_times, _answers
    cdef list _touched, _touched_queues, _dirty, _dirty_queues

    cpdef stored(self)
    cpdef settle(self, long long now_ms)

cdef int count(SendCounters counts, SendTally tally, long long messages, long long size) except? -1
cdef int count_send(
    SendCounters counts, SendTally tally, FastQueue queue, long long messages, long long size, bint is_batch, bint is_oneway
) except? -1
cdef long long pending_count(SendCounters counts) except? -1
