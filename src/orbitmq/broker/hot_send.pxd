# HotSends as a C structure, for the kernel that gives it what it reads.
from orbitmq.broker.hot_answers cimport Answers, AnswerTemplate
from orbitmq.broker.hot_counts cimport HotCounts, HotTally
from orbitmq.broker.hot_header cimport HotHeader
from orbitmq.broker.hot_properties cimport HotProperties
from orbitmq.message.record_write cimport RecordParts
from orbitmq.store.log_batch cimport LogBatch

cdef class HotTopic:
    cdef str name
    cdef bytes raw
    cdef Py_ssize_t raw_size
    cdef int more_flags, queue_count
    cdef HotTally plain, sharded
    cdef list queues

cdef class HotSends:
    cdef readonly bint is_pending
    cdef readonly HotCounts counts
    cdef public object on_commit
    cdef object _general, _store, _topics, _topics_version, _settings, _settings_seen
    cdef LogBatch _log
    cdef RecordParts _parts
    cdef Answers _now, _safe
    cdef AnswerTemplate _json, _binary, _keyless_json, _keyless_binary, _json_recall, _binary_recall
    cdef HotProperties _properties
    cdef bint _is_open, _is_sync
    cdef bytes _host_digits
    cdef bytearray _ids
    cdef unsigned char *_ids_p
    cdef dict _known
    cdef HotTopic _last
    cdef long long _now_ms, _stored_size

    cdef bint send(
        self, object link, const unsigned char *p, HotHeader header, bytes born_host, Py_ssize_t body_at, Py_ssize_t stop, bint is_binary
    ) except? -1
    cpdef commit(self)

cdef bint commit_if_full(HotSends sends) except? -1
