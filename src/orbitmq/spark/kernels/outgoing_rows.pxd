# C declarations of the batch encoder.
from orbitmq.spark.kernels.arrow_texts cimport ArrowTexts
from orbitmq.spark.kernels.row_properties cimport RowProperties

cdef class OpenBatch:
    cdef str topic
    cdef Py_ssize_t queue, size, count
    cdef bytearray buffer
    cdef unsigned char *p

cdef class TopicBatches:
    cdef bytes raw
    cdef str name
    cdef OpenBatch any_queue
    cdef list queues

cdef class BatchEncoder:
    cdef Py_ssize_t _batch_count_max, _batch_size_max, _body_size_max, _alone_from, _count, _first_row
    cdef str _place
    cdef object _queue_count, _alone
    cdef const unsigned char *_alone_p
    cdef RowProperties _texts
    cdef list _ready
    cdef dict _topics
    cdef TopicBatches _last
    cdef ArrowTexts _topic, _body, _sharding_key
