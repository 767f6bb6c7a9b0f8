# HotEnds as a C structure, for the kernel that gives it what it reads.
from orbitmq.broker.hot_answers cimport AnswerTemplate
from orbitmq.broker.hot_header cimport HotHeader
from orbitmq.broker.hot_send cimport HotSends, HotTopic
from orbitmq.message.record_read cimport RecordCursor
from orbitmq.message.record_write cimport RecordParts
from orbitmq.store.log_batch cimport LogBatch

cdef class HotEnds:
    cdef HotSends _sends
    cdef LogBatch _log
    cdef RecordParts _message, _op
    cdef RecordCursor _half
    cdef AnswerTemplate _json, _binary
    cdef HotTopic _op_topic
    cdef object _service, _pending, _record_at, _is_saved
    cdef dict _topics
    cdef set _ending
    cdef list _ended
    cdef bytearray _properties
    cdef bytes _op_properties

    cdef bint end(self, object link, const unsigned char *p, HotHeader header, bint is_binary) except? -1
