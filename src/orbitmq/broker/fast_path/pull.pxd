# PullHandler as a C structure, for the kernel that calls it.
from orbitmq.broker.fast_path.replies cimport ReplyBuffer, ReplyTemplate
from orbitmq.protocol.header_view cimport HeaderView

cdef class FastReader:
    cdef str group, topic
    cdef object config, subscription, wanted, asked
    cdef bint is_readable
    cdef list queues
    cdef int topic_sys_flag
    cdef list reads
    cdef long long gets, got, size

cdef class ReadTally:
    cdef str group, topic
    cdef int queue_id
    cdef long long gets, took_ms, behind_bytes, behind_ms

cdef class PullHandler:
    cdef object _service, _resume_general, _settings, _topics, _topics_version, _groups, _groups_version, _consumers, _offsets, _reads, _pending
    cdef HeaderView _held_header
    cdef bint _is_open
    cdef dict _known
    cdef ReplyBuffer _answers
    cdef ReplyTemplate _json, _binary
    cdef list _dirty, _dirty_reads
    cdef dict _turn_times, _held_times
    cdef long long _answered, _oneways, _found, _got, _took_ms_max, _begun_ms, _now_ms

    cpdef end_of_iteration(self)

    cdef bint pull(
        self, object link, const unsigned char *p, HeaderView header, Py_ssize_t start, Py_ssize_t stop, bint is_binary
    ) except? -1
