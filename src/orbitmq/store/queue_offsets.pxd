# QueueOffsets as a C structure, for the kernel that fills batches.
cdef class _Queue:
    cdef long long next_offset, kept_offset

cdef class QueueOffsets:
    cdef dict _queues
    cdef list _changed
    cdef object _find

    cpdef long long take(self, bytes topic, int queue_id, long long count=*) except -1
