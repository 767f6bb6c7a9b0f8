# SendHandler as a C structure, for the kernel that calls it.
from orbitmq.broker.fast_path.replies cimport ReplyBuffer, ReplyTemplate
from orbitmq.broker.fast_path.counters cimport SendCounters, SendTally
from orbitmq.protocol.header_view cimport HeaderView
from orbitmq.broker.fast_path.properties cimport PropertyBuffer
from orbitmq.message.record_write cimport RecordParts
from orbitmq.store.log_batch cimport LogBatch

cdef class FastTopic:
    cdef str name
    cdef bytes raw
    cdef Py_ssize_t raw_size
    cdef int more_flags, queue_count
    cdef SendTally plain, sharded
    cdef list queues

cdef class SendHandler:
    cdef readonly bint is_pending
    cdef readonly SendCounters counts
    cdef public object on_commit
    cdef object _service, _store, _topics, _topics_version, _settings, _settings_seen
    cdef LogBatch _log
    cdef RecordParts _parts
    cdef ReplyBuffer _now, _safe
    cdef ReplyTemplate _json, _binary, _keyless_json, _keyless_binary, _json_recall, _binary_recall
    cdef PropertyBuffer _properties
    cdef bint _is_open, _waits
    cdef bytes _host_digits
    cdef bytearray _ids
    cdef unsigned char *_ids_p
    cdef dict _known
    cdef FastTopic _last
    cdef long long _now_ms, _stored_size

    cdef bint send(
        self, object link, const unsigned char *p, HeaderView header, bytes born_host, Py_ssize_t body_at, Py_ssize_t stop, bint is_binary
    ) except? -1
    cpdef commit(self)

cdef bint commit_if_full(SendHandler sends) except? -1
