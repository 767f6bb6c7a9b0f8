# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: writes the stored record (docs/format/record.md) into the caller's buffer.

It refuses only what the format cannot hold; a broker's own limits are in `record.RecordLimits`.
Invariants: the two host bits of the system flag match the hosts; a topic of more than 127 bytes
makes a version 2 record.
"""

import cython

from orbitmq.common.errors import InvalidMessageError
from orbitmq.common.mem import Buffer
from orbitmq.message import layout
from orbitmq.message.properties import CRC32, closed, without

if cython.compiled:
    from cython.cimports.orbitmq.common.crc import crc
    from cython.cimports.orbitmq.common.mem import address, copy, put16, put32, put64
else:
    from orbitmq.common.crc import crc
    from orbitmq.common.mem import address, copy, put16, put32, put64

MAGIC_V1 = cython.declare(cython.uint, layout.MAGIC_V1)
MAGIC_V2 = cython.declare(cython.uint, layout.MAGIC_V2)
MAGIC_BLANK = cython.declare(cython.uint, layout.MAGIC_BLANK)
SIZE_MIN = cython.declare(cython.Py_ssize_t, layout.SIZE_MIN)
BLANK_SIZE = cython.declare(cython.Py_ssize_t, layout.BLANK_SIZE)
TOPIC_SIZE_V1_MAX = cython.declare(cython.Py_ssize_t, layout.TOPIC_SIZE_V1_MAX)
SHORT_MAX = cython.declare(cython.Py_ssize_t, 0x7FFF)
INT_MAX = cython.declare(cython.Py_ssize_t, 0x7FFFFFFF)
# size of a host: the address, then four bytes of port
V4_SIZE = cython.declare(cython.Py_ssize_t, 8)
V6_SIZE = cython.declare(cython.Py_ssize_t, 20)
V6_BITS = cython.declare(cython.int, 0x30)  # host bits of the system flag
BORN_HOST_V6 = cython.declare(cython.int, 0x10)
STORE_HOST_V6 = cython.declare(cython.int, 0x20)
CRC_MASK = cython.declare(cython.uint, 0x7FFFFFFF)  # the bits of a checksum that are stored
CRC_DIGITS = cython.declare(cython.int, 10)
CRC_PROPERTY = cython.declare(bytes, f"{CRC32}\x010000000000\x02".encode())
CRC_PROPERTY_SIZE = cython.declare(cython.Py_ssize_t, layout.CRC_PROPERTY_SIZE)
EMPTY = cython.declare(bytes, b"")

_MEMBERS = (
    "body",
    "born_host",
    "born_time_ms",
    "flag",
    "prepared_offset",
    "properties",
    "queue_id",
    "reconsume_times",
    "sys_flag",
    "topic",
)


class MessageRecord:
    """A message to be stored: what its producer sent, without the fields that the store adds.

    `born_host` is 4 or 16 address bytes and the port in 4; `body` is any buffer, in its stored
    form; `properties` is their text in UTF-8.
    """

    def __init__(
        self,
        topic: bytes,
        body: Buffer,
        *,
        born_host: bytes,
        born_time_ms: int,
        queue_id: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        properties: bytes = b"",
    ) -> None:
        self.topic = topic
        self.body = body
        self.born_host = born_host
        self.born_time_ms = born_time_ms
        self.queue_id = queue_id
        self.flag = flag
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset
        self.properties = properties

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageRecord):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _MEMBERS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"MessageRecord(topic={self.topic!r} queue_id={self.queue_id} flag={self.flag}"
            f" sys_flag={self.sys_flag:#x} body={len(self.body)} bytes"
            f" properties={self.properties[:80]!r})"
        )


class RecordParts:
    """A message whose parts point into foreign buffers: for kernels that write many messages
    without creating objects.

    `properties` are in their stored form. Body and properties are pointers, valid as long as their
    owner keeps the buffers.
    """

    def __init__(self) -> None:
        self.topic = self.born_host = b""
        self.body = self.properties = address(EMPTY)
        self.body_at = self.body_size = self.properties_at = self.properties_size = 0
        self.queue_id = self.flag = self.sys_flag = self.reconsume_times = 0
        self.born_time_ms = self.prepared_offset = 0


def record_size(message: MessageRecord, store_host: bytes, with_crc: cython.bint = False) -> int:
    """Return the number of bytes that `encode` will write; raise InvalidMessageError if the format
    cannot hold the message.
    """
    properties: bytes = stored_properties(message, with_crc)
    parts: RecordParts = RecordParts()
    take_apart(message, properties, parts)
    return size_with(parts, store_host)


def encode(
    message: MessageRecord,
    target: bytearray,
    at: cython.Py_ssize_t,
    queue_offset: cython.longlong,
    log_offset: cython.longlong,
    store_time_ms: cython.longlong,
    store_host: bytes,
    with_crc: cython.bint = False,
) -> int:
    """Write the record of `message` to target[at:] and return its size; `with_crc` adds the
    checksum of the whole record.
    """
    properties: bytes = stored_properties(message, with_crc)
    parts: RecordParts = RecordParts()
    take_apart(message, properties, parts)
    size: cython.Py_ssize_t = size_with(parts, store_host)
    _check_room(target, at, size)
    return write(
        parts,
        address(target),
        at,
        size,
        queue_offset,
        log_offset,
        store_time_ms,
        store_host,
        with_crc,
    )


@cython.cfunc
def take_apart(message: MessageRecord, properties: bytes, parts: RecordParts) -> cython.int:
    """Set `parts` to those of the message with `properties`; both must outlive them."""
    parts.topic = message.topic
    parts.born_host = message.born_host
    parts.body_at = 0
    parts.body_size = len(message.body)
    parts.body = address(message.body if parts.body_size else EMPTY)
    parts.properties = address(properties)
    parts.properties_at = 0
    parts.properties_size = len(properties)
    parts.queue_id = message.queue_id
    parts.flag = message.flag
    parts.sys_flag = message.sys_flag
    parts.reconsume_times = message.reconsume_times
    parts.born_time_ms = message.born_time_ms
    parts.prepared_offset = message.prepared_offset
    return 0


@cython.cfunc
def write(
    parts: RecordParts,
    p: cython.p_uchar,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    queue_offset: cython.longlong,
    log_offset: cython.longlong,
    store_time_ms: cython.longlong,
    store_host: bytes,
    with_crc: cython.bint,
) -> cython.Py_ssize_t:
    """Do what `encode` does, for callers that know the size and that p has room; with a checksum,
    its property comes last and is filled in here.
    """
    born_host: bytes = parts.born_host
    topic: bytes = parts.topic
    born_host_size: cython.Py_ssize_t = len(born_host)
    store_host_size: cython.Py_ssize_t = len(store_host)
    topic_size: cython.Py_ssize_t = len(topic)
    sys_flag: cython.int = parts.sys_flag & ~V6_BITS
    if born_host_size == V6_SIZE:
        sys_flag |= BORN_HOST_V6
    if store_host_size == V6_SIZE:
        sys_flag |= STORE_HOST_V6
    start: cython.Py_ssize_t = at
    put32(p, at, size)
    put32(p, at + 4, MAGIC_V1 if topic_size <= TOPIC_SIZE_V1_MAX else MAGIC_V2)
    put32(p, at + 12, parts.queue_id)
    put32(p, at + 16, parts.flag)
    put64(p, at + 20, queue_offset)
    put64(p, at + 28, log_offset)
    put32(p, at + 36, sys_flag)
    put64(p, at + 40, parts.born_time_ms)
    at += 48
    copy(p, at, born_host, 0, born_host_size)
    at += born_host_size
    put64(p, at, store_time_ms)
    at += 8
    copy(p, at, store_host, 0, store_host_size)
    at += store_host_size
    put32(p, at, parts.reconsume_times)
    put64(p, at + 4, parts.prepared_offset)
    put32(p, at + 12, parts.body_size)
    at += 16
    copy(p, at, parts.body, parts.body_at, parts.body_size)
    put32(p, start + 8, crc(p, at, parts.body_size) & CRC_MASK)
    at += parts.body_size
    if topic_size <= TOPIC_SIZE_V1_MAX:
        p[at] = topic_size
        at += 1
    else:
        put16(p, at, topic_size)
        at += 2
    copy(p, at, topic, 0, topic_size)
    at += topic_size
    put16(p, at, parts.properties_size)
    copy(p, at + 2, parts.properties, parts.properties_at, parts.properties_size)
    if with_crc:
        _put_crc(p, start, size)
    return size


def encode_blank(target: bytearray, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> int:
    """Write the 8-byte blank marker of the `size` unused bytes from target[at:] to the end of the
    file; return 8.
    """
    if size < BLANK_SIZE or size > INT_MAX:
        raise ValueError(f"a blank of {size} bytes: a file keeps at least {BLANK_SIZE} free for it")
    _check_room(target, at, BLANK_SIZE)
    p: cython.p_uchar = address(target)
    put32(p, at, size)
    put32(p, at + 4, MAGIC_BLANK)
    return BLANK_SIZE


@cython.cfunc
def stored_properties(message: MessageRecord, with_crc: cython.bint) -> bytes:
    """Return the properties in their stored form: a record checksum is the last of them and occurs
    once.
    """
    return (
        closed(without(message.properties, CRC32)) + CRC_PROPERTY
        if with_crc
        else message.properties
    )


@cython.cfunc
def size_with(parts: RecordParts, store_host: bytes) -> cython.Py_ssize_t:
    """Return the size of the record of these parts; raise InvalidMessageError if the format cannot
    hold it.
    """
    born_host_size: cython.Py_ssize_t = len(parts.born_host)
    store_host_size: cython.Py_ssize_t = len(store_host)
    topic_size: cython.Py_ssize_t = len(parts.topic)
    if (born_host_size != V4_SIZE and born_host_size != V6_SIZE) or (
        store_host_size != V4_SIZE and store_host_size != V6_SIZE
    ):
        raise ValueError(
            f"hosts of {born_host_size} and {store_host_size} bytes: 8 are an IPv4 address and a"
            " port, 20 an IPv6 one"
        )
    if parts.properties_size > SHORT_MAX:
        raise InvalidMessageError(
            f"properties of {parts.properties_size} bytes: a record holds at most {SHORT_MAX}"
        )
    if topic_size > SHORT_MAX:
        raise InvalidMessageError(
            f"a topic of {topic_size} bytes: a record holds at most {SHORT_MAX}"
        )
    size: cython.Py_ssize_t = (
        SIZE_MIN
        + (born_host_size - V4_SIZE)
        + (store_host_size - V4_SIZE)
        + parts.body_size
        + topic_size
        + parts.properties_size
    )
    if topic_size > TOPIC_SIZE_V1_MAX:
        size += 1
    if size > INT_MAX:
        raise InvalidMessageError(f"a record of {size} bytes: the largest has {INT_MAX}")
    return size


@cython.cfunc
def _check_room(
    target: bytearray, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    left: cython.Py_ssize_t = len(target) - at
    if at < 0 or left < size:
        raise ValueError(
            f"{size} bytes do not fit at {at} of a buffer of {len(target)}: make it larger first"
        )
    return left


@cython.cfunc
def _put_crc(
    p: cython.p_uchar, start: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Fill in the digits of the last property, lowest first: the checksum of all bytes
    before it.
    """
    value: cython.longlong = crc(p, start, size - CRC_PROPERTY_SIZE) & CRC_MASK
    at: cython.Py_ssize_t = start + size - CRC_DIGITS - 1
    i: cython.int
    for i in range(CRC_DIGITS):
        p[at + i] = 48 + value % 10
        value //= 10
    return at
