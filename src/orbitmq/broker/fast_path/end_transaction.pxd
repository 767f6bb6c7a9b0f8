# EndTransactionHandler as a C structure, for the kernel that calls it.
from orbitmq.broker.fast_path.replies cimport ReplyTemplate
from orbitmq.protocol.header_view cimport HeaderView
from orbitmq.broker.fast_path.send cimport SendHandler, FastTopic
from orbitmq.message.record_read cimport RecordCursor
from orbitmq.message.record_write cimport RecordParts
from orbitmq.store.log_batch cimport LogBatch

cdef class EndTransactionHandler:
    cdef SendHandler _sends
    cdef LogBatch _log
    cdef RecordParts _message, _op
    cdef RecordCursor _half
    cdef ReplyTemplate _json, _binary
    cdef FastTopic _op_topic
    cdef object _service, _pending, _record_at, _is_saved
    cdef dict _topics
    cdef set _ending
    cdef list _ended
    cdef bytearray _properties
    cdef bytes _op_properties

    cdef bint end(self, object link, const unsigned char *p, HeaderView header, bint is_binary) except? -1
