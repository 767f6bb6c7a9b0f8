# C declaration of RowBuilder, for the kernel that scans a commit log.
from orbitmq.message.record_read cimport RecordCursor
from orbitmq.spark.kernels.columns cimport BytesColumn, ConstantColumn
from orbitmq.spark.kernels.property_column cimport PropertyColumn
from orbitmq.spark.kernels.record_table cimport RecordTable

cdef class RowBuilder:
    cdef readonly tuple columns
    cdef object _schema
    cdef list _wanted
    cdef BytesColumn _body
    cdef ConstantColumn _broker_name
    cdef PropertyColumn _properties
    cdef RecordTable _table
    cdef RecordCursor _cursor, _inner
    cdef Py_ssize_t _filled, _room, _filled_before
    cdef bint _check_body, _reads_properties

cdef int put_record(
    RowBuilder rows, RecordCursor record, const unsigned char *p, long long first_offset, long long end_offset
) except? -1
