# The C side of mem.py: the same functions over raw pointers, inlined into the kernels that cimport them.
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy

cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char *memory, Py_ssize_t size, int flags)
    enum: PyBUF_READ
    const char *PyUnicode_AsUTF8AndSize(object value, Py_ssize_t *size) except NULL

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recv "recv"(int descriptor, void *buffer, size_t length, int flags)
    ssize_t c_send "send"(int descriptor, const void *buffer, size_t length, int flags)
    enum: MSG_DONTWAIT, MSG_NOSIGNAL
cdef extern from "<errno.h>" nogil:
    int errno
    enum: EAGAIN, EINTR

cdef inline unsigned char *address(object buffer) except NULL:
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    cdef unsigned char *pointer = <unsigned char *>view.buf
    PyBuffer_Release(&view)
    return pointer

cdef inline str text(const unsigned char *pointer, Py_ssize_t at, Py_ssize_t length):
    return PyUnicode_DecodeUTF8(<const char *>pointer + at, length, NULL)

cdef inline const unsigned char *utf8(str value) except NULL:
    return <const unsigned char *>PyUnicode_AsUTF8AndSize(value, NULL)

cdef inline Py_ssize_t utf8_size(str value) except -1:
    cdef Py_ssize_t size = 0
    PyUnicode_AsUTF8AndSize(value, &size)
    return size

cdef inline bytes text_bytes(const unsigned char *pointer, Py_ssize_t at, Py_ssize_t length):
    return PyBytes_FromStringAndSize(<const char *>pointer + at, length)

cdef inline void copy(unsigned char *target, Py_ssize_t target_at, const unsigned char *source, Py_ssize_t source_at, Py_ssize_t length) noexcept nogil:
    memcpy(target + target_at, source + source_at, length)

cdef inline unsigned int get32(const unsigned char *pointer, Py_ssize_t at) noexcept nogil:
    return <unsigned int>pointer[at] << 24 | <unsigned int>pointer[at + 1] << 16 | <unsigned int>pointer[at + 2] << 8 | pointer[at + 3]

cdef inline void put32(unsigned char *pointer, Py_ssize_t at, unsigned int value) noexcept nogil:
    pointer[at] = value >> 24
    pointer[at + 1] = (value >> 16) & 255
    pointer[at + 2] = (value >> 8) & 255
    pointer[at + 3] = value & 255

cdef inline void put16(unsigned char *pointer, Py_ssize_t at, unsigned int value) noexcept nogil:
    pointer[at] = (value >> 8) & 255
    pointer[at + 1] = value & 255

cdef inline void put64(unsigned char *pointer, Py_ssize_t at, unsigned long long value) noexcept nogil:
    put32(pointer, at, <unsigned int>(value >> 32))
    put32(pointer, at + 4, <unsigned int>value)

cdef inline int signed16(const unsigned char *pointer, Py_ssize_t at) noexcept nogil:
    return <short>(<unsigned int>pointer[at] << 8 | pointer[at + 1])

cdef inline int signed32(const unsigned char *pointer, Py_ssize_t at) noexcept nogil:
    return <int>get32(pointer, at)

cdef inline long long signed64(const unsigned char *pointer, Py_ssize_t at) noexcept nogil:
    return <long long>(<unsigned long long>get32(pointer, at) << 32 | get32(pointer, at + 4))

cdef inline object view(const unsigned char *pointer, Py_ssize_t at, Py_ssize_t length):
    return PyMemoryView_FromMemory(<char *>pointer + at, length, PyBUF_READ)

cdef inline bint same(const unsigned char *pointer, Py_ssize_t at, const unsigned char *literal, Py_ssize_t length) noexcept nogil:
    return memcmp(pointer + at, literal, length) == 0

cdef inline Py_ssize_t find(const unsigned char *pointer, Py_ssize_t at, Py_ssize_t end, int byte) noexcept nogil:
    cdef const unsigned char *found = <const unsigned char *>memchr(pointer + at, byte, end - at)
    return end if found == NULL else found - pointer

cdef inline Py_ssize_t socket_receive(int descriptor, unsigned char *pointer, Py_ssize_t at, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t taken = c_recv(descriptor, pointer + at, length, MSG_DONTWAIT)
    return taken if taken >= 0 else (-1 if errno == EAGAIN or errno == EINTR else -2)

cdef inline Py_ssize_t socket_send(int descriptor, const unsigned char *pointer, Py_ssize_t at, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t taken = c_send(descriptor, pointer + at, length, MSG_DONTWAIT | MSG_NOSIGNAL)
    return taken if taken >= 0 else (-1 if errno == EAGAIN or errno == EINTR else -2)

cdef inline bint is_ascii(const unsigned char *pointer, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef unsigned char bits = 0
    cdef Py_ssize_t i
    for i in range(at, end):
        bits |= pointer[i]
    return bits < 128
