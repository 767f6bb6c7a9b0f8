# PropertyColumn as a C structure.
from orbitmq.spark.columns cimport Bytes, Cells, Column
from orbitmq.spark.record_table cimport RecordTable

cdef class PropertyColumn(Column):
    cdef Cells offsets
    cdef Bytes names, values
    cdef Py_ssize_t count, room

cdef int find_properties(RecordTable table, PropertyColumn column, Py_ssize_t row) except? -1
