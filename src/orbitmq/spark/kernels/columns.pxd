# C declarations of column builders.
from orbitmq.spark.kernels.record_table cimport RecordTable

cdef class GrowableBuffer:
    cdef object buffer
    cdef unsigned char *p
    cdef int *ints
    cdef long long *longs
    cdef Py_ssize_t size

cdef class ColumnBuilder:
    cdef object kind
    cdef GrowableBuffer validity
    cdef Py_ssize_t nulls

    cdef int fill(self, RecordTable table, Py_ssize_t row) except? -1

cdef class NumberColumn(ColumnBuilder):
    cdef GrowableBuffer values
    cdef Py_ssize_t field
    cdef bint is_wide

cdef class TimeColumn(NumberColumn):
    pass

cdef class BytesColumn(ColumnBuilder):
    cdef GrowableBuffer offsets, data
    cdef Py_ssize_t used, used_before, at_field, size_field

cdef class TextColumn(BytesColumn):
    cdef bint is_property

cdef class ConstantColumn(BytesColumn):
    cdef bytes text

cdef class HostColumn(BytesColumn):
    cdef bytes _host, _text
    cdef dict _known

cdef class IdColumn(BytesColumn):
    pass

cdef int put_value(BytesColumn column, Py_ssize_t row, bytes value) except? -1
cdef int make_room(BytesColumn column, Py_ssize_t size) except? -1
cdef int grow_offsets(GrowableBuffer cells, Py_ssize_t rows) except? -1
cdef bint is_text(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) except? -1
