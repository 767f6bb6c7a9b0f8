# RemotingCommand as a C structure, for the kernels that read and write it.
cdef class RemotingCommand:
    cdef public int code, opaque, flag, version
    cdef public object language, remark, ext_fields, body, serialize_type
