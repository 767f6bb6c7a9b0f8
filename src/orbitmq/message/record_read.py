# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: reads stored records (docs/format/record.md) in place: in a file mapping, a batch buffer,
a response body.

A cursor moves from record to record without creating an object per record. It never reads outside
the buffer, whatever the bytes.
"""

from typing import Self

import cython

from orbitmq.common.mem import Buffer
from orbitmq.message import layout
from orbitmq.message.properties import CRC32, TAGS, decode_text
from orbitmq.message.stored_message import StoredMessage

if cython.compiled:
    from cython.cimports.orbitmq.common.crc import crc
    from cython.cimports.orbitmq.common.mem import (
        address,
        find,
        get32,
        same,
        signed16,
        signed32,
        signed64,
        text,
        text_bytes,
        utf8,
        utf8_size,
    )
    from cython.cimports.orbitmq.message.tags import utf8_hash
else:
    from orbitmq.common.crc import crc
    from orbitmq.common.mem import (
        address,
        find,
        get32,
        same,
        signed16,
        signed32,
        signed64,
        text,
        text_bytes,
        utf8,
        utf8_size,
    )
    from orbitmq.message.tags import utf8_hash

MAGIC_V1 = cython.declare(cython.uint, layout.MAGIC_V1)
MAGIC_V2 = cython.declare(cython.uint, layout.MAGIC_V2)
MAGIC_BLANK = cython.declare(cython.uint, layout.MAGIC_BLANK)
BLANK_SIZE = cython.declare(cython.Py_ssize_t, layout.BLANK_SIZE)
BODY_AT_MIN = cython.declare(cython.Py_ssize_t, 88)  # offset of the body if both hosts are IPv4
V6_MORE = cython.declare(cython.Py_ssize_t, 12)  # extra bytes of an IPv6 host
BORN_HOST_V6 = cython.declare(cython.int, 0x10)
STORE_HOST_V6 = cython.declare(cython.int, 0x20)
VALUE_END = cython.declare(cython.int, 2)
NAME_END = cython.declare(cython.int, 1)
CRC_MASK = cython.declare(cython.uint, 0x7FFFFFFF)  # the bits of a checksum that are stored
TAGS_NAME = cython.declare(bytes, TAGS.encode())
CRC_PREFIX = cython.declare(bytes, f"{CRC32}\x01".encode())
CRC_PROPERTY_SIZE = cython.declare(cython.Py_ssize_t, layout.CRC_PROPERTY_SIZE)

CUT = cython.declare(cython.int, layout.Flaw.CUT)
MAGIC = cython.declare(cython.int, layout.Flaw.MAGIC)
BODY = cython.declare(cython.int, layout.Flaw.BODY)
BODY_CRC = cython.declare(cython.int, layout.Flaw.BODY_CRC)
LENGTHS = cython.declare(cython.int, layout.Flaw.LENGTHS)
RECORD_CRC = cython.declare(cython.int, layout.Flaw.RECORD_CRC)


class RecordCursor:
    """Reads one record at a time: after `read`, the fields are those of the record.

    The fields are valid only after `read` returned a size. The cursor references the buffer until
    the next `read`. `…_at` are offsets in the buffer. `body_crc` is the stored checksum, not that
    of the actual body.
    """

    def __init__(self) -> None:
        self.buffer: Buffer = b""
        self.whole = False
        self.at = self.size = self.body_at = self.topic_at = self.properties_at = (
            self.properties_size
        ) = 0
        self.body_size = self.topic_size = self.body_crc = self.queue_id = self.flag = (
            self.sys_flag
        ) = self.reconsume_times = 0
        self.queue_offset = self.log_offset = self.born_time_ms = self.store_time_ms = (
            self.prepared_offset
        ) = 0

    def read(
        self,
        buffer: Buffer,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        check_body: cython.bint = True,
        check_record: cython.bint = False,
    ) -> int:
        """Move to the record at buffer[at:end]. Returns its size, 0 if the rest of the file is
        blank, or a `Flaw` (negative).

        `check_body` verifies the checksum of the body, `check_record` that of the whole record,
        which must then have one. `size` is set even for a flawed record if it is plausible, else 0.
        """
        p: cython.p_const_uchar = address(buffer)
        if at < 0 or at > end or end > len(buffer):
            raise ValueError(f"[{at}:{end}] is not within a buffer of {len(buffer)} bytes")
        self.buffer = buffer
        return move(self, p, at, end, check_body, check_record)

    @classmethod
    def on(cls, record: Buffer) -> Self:
        """Return a cursor on a record that fills the whole buffer; the body is not checked."""
        cursor = cls()
        size = cursor.read(record, 0, len(record), False)
        assert size == len(record), "it is a whole record"
        return cursor

    def topic(self) -> bytes:
        """Return the topic name."""
        return text_bytes(pointer(self), self.topic_at, self.topic_size)

    def body(self) -> bytes:
        """Return the body as stored: compressed if the system flag says so."""
        return text_bytes(pointer(self), self.body_at, self.body_size)

    def properties(self) -> bytes:
        """Return the text of all properties, in UTF-8."""
        return text_bytes(pointer(self), self.properties_at, self.properties_size)

    def property(self, name: str) -> str | None:
        """Return the value of the last property with this name, or None; the same as
        `properties.parse` finds.
        """
        p: cython.p_const_uchar = pointer(self)
        end: cython.Py_ssize_t = self.properties_at + self.properties_size
        value: cython.Py_ssize_t = value_at(p, self.properties_at, end, utf8(name), utf8_size(name))
        if value < 0:
            return None
        size: cython.Py_ssize_t = find(p, value, end, VALUE_END) - value
        try:
            return text(p, value, size)
        except UnicodeDecodeError:
            return decode_text(text_bytes(p, value, size))

    def tags_code(self) -> int:
        """Return the tags code of the record, as its consume queue entry holds it."""
        p: cython.p_const_uchar = pointer(self)
        end: cython.Py_ssize_t = self.properties_at + self.properties_size
        value: cython.Py_ssize_t = value_at(p, self.properties_at, end, TAGS_NAME, len(TAGS_NAME))
        return 0 if value < 0 else utf8_hash(p, value, find(p, value, end, VALUE_END))

    def born_host(self) -> bytes:
        """Return the host that sent the message: 8 or 20 bytes."""
        return text_bytes(pointer(self), self.at + 48, 20 if self.sys_flag & BORN_HOST_V6 else 8)

    def store_host(self) -> bytes:
        """Return the host that first stored the message: 8 or 20 bytes."""
        size: cython.Py_ssize_t = 20 if self.sys_flag & STORE_HOST_V6 else 8
        return text_bytes(pointer(self), self.body_at - 16 - size, size)

    def message(self) -> StoredMessage:
        """Return the whole record as a value."""
        return tuple.__new__(
            StoredMessage,
            (
                decode_text(self.topic()),
                self.queue_id,
                self.queue_offset,
                self.log_offset,
                self.flag,
                self.sys_flag,
                self.born_time_ms,
                self.born_host(),
                self.store_time_ms,
                self.store_host(),
                self.reconsume_times,
                self.prepared_offset,
                self.body(),
                self.body_crc,
                self.properties(),
                self.size,
            ),
        )


@cython.cfunc
def move(
    cursor: RecordCursor,
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    check_body: cython.bint,
    check_record: cython.bint,
) -> cython.Py_ssize_t:
    """Do what `read` does, for kernels that scan many records of one buffer.

    The caller has set `cursor.buffer`; `p` points to its first byte, and [at, end) lies within it.
    """
    cursor.at = at
    cursor.size = 0
    cursor.whole = False
    if end - at < BLANK_SIZE:
        return CUT
    size: cython.Py_ssize_t = signed32(p, at)
    magic: cython.uint = get32(p, at + 4)
    if size > end - at:
        return CUT
    if magic == MAGIC_BLANK:
        return 0
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return MAGIC
    if size < BODY_AT_MIN:
        return BODY
    end = at + size
    sys_flag: cython.int = signed32(p, at + 36)
    store_time_at: cython.Py_ssize_t = at + 56
    if sys_flag & BORN_HOST_V6:
        store_time_at += V6_MORE
    body_at: cython.Py_ssize_t = store_time_at + 32
    if sys_flag & STORE_HOST_V6:
        body_at += V6_MORE
    if body_at > end:
        return BODY
    body_size: cython.int = signed32(p, body_at - 4)
    if body_size < 0 or body_size > end - body_at:
        return BODY
    body_crc: cython.uint = get32(p, at + 8)
    if check_body and (crc(p, body_at, body_size) & CRC_MASK) != body_crc:
        return BODY_CRC
    cursor.size = size
    topic_at: cython.Py_ssize_t = body_at + body_size
    topic_size: cython.int
    if magic == MAGIC_V1:
        if topic_at + 1 > end:
            return LENGTHS
        topic_size = p[topic_at]
        if topic_size > 127:
            return LENGTHS
        topic_at += 1
    else:
        if topic_at + 2 > end:
            return LENGTHS
        topic_size = signed16(p, topic_at)
        topic_at += 2
    if topic_size < 0 or topic_size + 2 > end - topic_at:
        return LENGTHS
    properties_at: cython.Py_ssize_t = topic_at + topic_size + 2
    if signed16(p, properties_at - 2) != end - properties_at:
        return LENGTHS
    if check_record and not _has_right_crc(p, at, properties_at, end):
        cursor.size = 0
        return RECORD_CRC
    cursor.properties_at = properties_at
    cursor.properties_size = end - properties_at
    cursor.body_at = body_at
    cursor.body_size = body_size
    cursor.topic_at = topic_at
    cursor.topic_size = topic_size
    cursor.body_crc = signed32(p, at + 8)
    cursor.queue_id = signed32(p, at + 12)
    cursor.flag = signed32(p, at + 16)
    cursor.queue_offset = signed64(p, at + 20)
    cursor.log_offset = signed64(p, at + 28)
    cursor.sys_flag = sys_flag
    cursor.born_time_ms = signed64(p, at + 40)
    cursor.store_time_ms = signed64(p, store_time_at)
    cursor.reconsume_times = signed32(p, body_at - 16)
    cursor.prepared_offset = signed64(p, body_at - 12)
    cursor.whole = True
    return size


@cython.cfunc
def pointer(cursor: RecordCursor) -> cython.p_const_uchar:
    """Return a pointer to the cursor's buffer if the record still lies within it."""
    if not cursor.whole or cursor.at + cursor.size > len(cursor.buffer):
        raise ValueError("the cursor is on no whole record: `read` one first")
    return address(cursor.buffer)


@cython.cfunc
def value_at(
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    name: cython.p_const_uchar,
    name_size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Return where the value of the last property with this name begins, or -1."""
    found: cython.Py_ssize_t = -1
    stop: cython.Py_ssize_t
    value: cython.Py_ssize_t
    while at < end and name_size:
        stop = find(p, at, end, VALUE_END)
        value = at + name_size + 1
        if value < stop and p[value - 1] == NAME_END and same(p, at, name, name_size):
            found = value
        at = stop + 1
    return found


@cython.cfunc
def _has_right_crc(
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    properties_at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.bint:
    """Return whether the last property is the record checksum and matches the other bytes of
    p[at:end].
    """
    begin: cython.Py_ssize_t = end - CRC_PROPERTY_SIZE
    if begin < properties_at or not same(p, begin, CRC_PREFIX, len(CRC_PREFIX)):
        return False
    value: cython.longlong = 0
    digit: cython.Py_ssize_t = end - 2
    while p[digit] != NAME_END:  # the lowest digit comes first
        value = value * 10 + (p[digit] - 48)
        digit -= 1
    return value == crc(p, at, begin - at) & CRC_MASK
