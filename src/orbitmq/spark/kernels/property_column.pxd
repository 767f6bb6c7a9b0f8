# C declaration of PropertyColumn.
from orbitmq.spark.kernels.columns cimport BytesColumn, GrowableBuffer, ColumnBuilder
from orbitmq.spark.kernels.record_table cimport RecordTable

cdef class PropertyColumn(ColumnBuilder):
    cdef GrowableBuffer offsets
    cdef BytesColumn names, values
    cdef Py_ssize_t count, room

cdef int find_properties(RecordTable table, PropertyColumn column, Py_ssize_t row) except? -1
