# HotPulls as a C structure, for the kernel that gives it what it reads.
from orbitmq.broker.hot_answers cimport Answers, AnswerTemplate
from orbitmq.broker.hot_header cimport HotHeader

cdef class HotReader:
    cdef str group, topic
    cdef object config, subscription, wanted, asked
    cdef bint is_readable
    cdef list queues
    cdef int topic_sys_flag
    cdef list reads
    cdef long long gets, got, size

cdef class HotRead:
    cdef str group, topic
    cdef int queue_id
    cdef long long gets, took_ms, behind_bytes, behind_ms

cdef class HotPulls:
    cdef object _general, _settings, _topics, _topics_version, _groups, _groups_version, _consumers, _offsets, _reads, _hold
    cdef HotHeader _held_header
    cdef bint _is_open
    cdef dict _known
    cdef Answers _answers
    cdef AnswerTemplate _json, _binary
    cdef list _dirty, _dirty_reads
    cdef dict _turn_times, _held_times
    cdef long long _answered, _oneways, _found, _got, _took_ms_max, _begun_ms, _now_ms

    cpdef end_turn(self)

    cdef bint pull(
        self, object link, const unsigned char *p, HotHeader header, Py_ssize_t start, Py_ssize_t stop, bint is_binary
    ) except? -1
