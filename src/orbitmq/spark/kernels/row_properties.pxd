# C declaration of RowProperties, for the kernel that puts them into a batch.
from orbitmq.spark.kernels.arrow_texts cimport ArrowLists, ArrowTexts

cdef class RowProperties:
    cdef unsigned char *p
    cdef Py_ssize_t size, _ids_left
    cdef int _id_next
    cdef bint _drops_reserved
    cdef bytearray _buffer
    cdef bytes _tail, _id_head
    cdef object _ids
    cdef list _known_names
    cdef ArrowLists _own, _key_lists
    cdef ArrowTexts _keys, _tags, _sharding_key

cdef int write(RowProperties texts, Py_ssize_t row) except? -1
