# Columns as C structures, for the kernels that have them filled.
from orbitmq.spark.record_table cimport RecordTable

cdef class Cells:
    cdef object buffer
    cdef unsigned char *p
    cdef int *ints
    cdef long long *longs
    cdef Py_ssize_t size

cdef class Column:
    cdef object kind
    cdef Cells validity
    cdef Py_ssize_t nulls

    cdef int fill(self, RecordTable table, Py_ssize_t row) except? -1

cdef class Numbers(Column):
    cdef Cells values
    cdef Py_ssize_t field
    cdef bint is_wide

cdef class Times(Numbers):
    pass

cdef class Bytes(Column):
    cdef Cells offsets, data
    cdef Py_ssize_t used, used_before, at_field, size_field

cdef class Texts(Bytes):
    cdef bint is_property

cdef class Constants(Bytes):
    cdef bytes text

cdef class Hosts(Bytes):
    cdef bytes _host, _text
    cdef dict _known

cdef class Ids(Bytes):
    pass

cdef int put_all(Bytes column, Py_ssize_t row, bytes value) except? -1
cdef int make_room(Bytes column, Py_ssize_t size) except? -1
cdef int grow_offsets(Cells cells, Py_ssize_t rows) except? -1
cdef bint is_text(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) except? -1
