# RowBuilder as a C structure, for the kernel that hands it the records of a log.
from orbitmq.message.record_read cimport RecordCursor
from orbitmq.spark.columns cimport Bytes, Constants
from orbitmq.spark.property_column cimport PropertyColumn
from orbitmq.spark.record_table cimport RecordTable

cdef class RowBuilder:
    cdef readonly tuple columns
    cdef object _schema
    cdef list _wanted
    cdef Bytes _body
    cdef Constants _broker_name
    cdef PropertyColumn _properties
    cdef RecordTable _table
    cdef RecordCursor _cursor, _inner
    cdef Py_ssize_t _filled, _room, _filled_before
    cdef bint _check_body, _reads_properties

cdef int put_record(
    RowBuilder rows, RecordCursor record, const unsigned char *p, long long first_offset, long long end_offset
) except? -1
