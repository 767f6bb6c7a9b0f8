# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: the open batch of the commit log: assigns each message its log and queue offset, and
encodes its record into a buffer.

Knows only the size of files: a message that leaves no room for a blank closes the file with one and
goes to the next. `RecordLimits` decides what is refused; this is only the fast path for messages
within all limits. Invariants: a refused message changes nothing, except that a file may be closed;
store times never decrease.
"""

from collections.abc import Sequence
from typing import NamedTuple

import cython

from orbitmq.common.errors import InvalidMessageError, StoreReadOnlyError
from orbitmq.message import batch, layout, properties
from orbitmq.message.flags import INNER_BATCH
from orbitmq.message.record import RecordLimits
from orbitmq.message.record_write import encode_blank
from orbitmq.store.types import LogOffset, QueueOffset, StoreTimeMs

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address
    from cython.cimports.orbitmq.message.record_write import (
        MessageRecord,
        RecordParts,
        size_with,
        stored_properties,
        take_apart,
        write,
    )
    from cython.cimports.orbitmq.store.queue_offsets import QueueOffsets
else:
    from orbitmq.common.mem import address
    from orbitmq.message.record_write import (
        MessageRecord,
        RecordParts,
        size_with,
        stored_properties,
        take_apart,
        write,
    )
    from orbitmq.store.queue_offsets import QueueOffsets

BLANK_SIZE = cython.declare(cython.Py_ssize_t, layout.BLANK_SIZE)
PROPERTIES_SIZE_MAX = cython.declare(cython.Py_ssize_t, layout.PROPERTIES_SIZE_MAX)
BUFFER_SIZE_MIN = cython.declare(cython.Py_ssize_t, 1 << 16)
# Set in prepared and in rolled back messages: they take no offset in their queue.
PREPARED = cython.declare(cython.int, 0x4)
INNER_BATCH_BIT = cython.declare(cython.int, INNER_BATCH)
INNER_COUNT_MAX = 0x7FFF  # the count in a queue entry has two bytes
INNER_MAX = cython.declare(cython.int, INNER_COUNT_MAX)


class Appended:
    """Where a message was put, valid once the batch is committed. The message is durable once `end`
    is flushed.
    """

    offset: LogOffset
    end: LogOffset
    size: int
    queue_offset: QueueOffset
    store_time_ms: StoreTimeMs

    def __repr__(self) -> str:
        return (
            f"Appended(offset={self.offset} size={self.size} queue_offset={self.queue_offset}"
            f" store_time_ms={self.store_time_ms})"
        )


class Part(NamedTuple):
    """A range of the buffer and its log offset, within one file."""

    offset: int
    begin: int
    end: int


class LogBatch:
    """The records since the last commit; `end` is the log's end once they are written."""

    def __init__(
        self,
        offsets: QueueOffsets,
        limits: RecordLimits,
        store_host: bytes,
        with_crc: bool,
        file_size: int,
        batch_size_max: int,
    ) -> None:
        self._offsets = offsets
        self._store_host = store_host
        self._with_crc = with_crc
        self._file_size = file_size
        self._batch_size_max = batch_size_max
        self.set_limits(limits)
        self.buffer = bytearray(BUFFER_SIZE_MIN)
        self._refusal: str | None = None
        self._message_parts = RecordParts()
        self._parts: list[Part] = []  # those closed by a blank
        self.used = self.end = self.store_time_ms = self._part_begin = self._part_offset = 0

    def set_limits(self, limits: RecordLimits) -> None:
        """Set the size limits of records."""
        self._limits = limits
        self._body_size_max = limits.body_size_max
        self._topic_size_max = min(limits.topic_size_max, limits.retry_topic_size_max)
        self._record_size_max = limits.body_size_max + limits.around_body_size_max

    def begin(self, end: cython.longlong, store_time_ms: cython.longlong) -> None:
        """Start a batch at `end`, after a record of that time."""
        self._parts.clear()
        self.used = self._part_begin = 0
        self.end = self._part_offset = end
        self.store_time_ms = store_time_ms
        if len(self.buffer) > self._batch_size_max:  # grown for one large message
            self.buffer = bytearray(self._batch_size_max)

    def refuse(self, reason: str) -> None:
        """Refuse all further messages."""
        self._refusal = reason

    def parts(self) -> list[Part]:
        """Return what to write where, in order."""
        return (
            [*self._parts, Part(self._part_offset, self._part_begin, self.used)]
            if self.used
            else []
        )

    def append(self, message: MessageRecord, now_ms: cython.longlong) -> Appended:
        """Append one message; InvalidMessageError if it breaks a limit, StoreReadOnlyError if the
        log is read-only.

        An inner batch gets the queue offset of its first message as a property.
        """
        if self._refusal is not None:
            raise StoreReadOnlyError(self._refusal)
        places: cython.int = _queue_places(message)
        if message.sys_flag & INNER_BATCH_BIT:
            _set_inner_base(message, self._offsets.peek(message.topic, message.queue_id))
        properties: bytes = stored_properties(message, self._with_crc)
        size: cython.Py_ssize_t = _checked_size(self, message, properties)
        make_room(self, size, 1, now_ms)
        return _put(self, size, places)

    def append_all(
        self, messages: Sequence[MessageRecord], now_ms: cython.longlong
    ) -> list[Appended]:
        """Append messages contiguously in one file, with one store time; all or none, and no inner
        batches.
        """
        if self._refusal is not None:
            raise StoreReadOnlyError(self._refusal)
        message: MessageRecord
        properties: bytes
        size: cython.Py_ssize_t = 0
        for message in messages:
            _queue_places(message)
            properties = stored_properties(message, self._with_crc)
            size += _checked_size(self, message, properties)
        make_room(self, size, len(messages), now_ms)
        appended = []
        for message in messages:
            properties = stored_properties(message, self._with_crc)
            appended.append(
                _put(self, _checked_size(self, message, properties), _queue_places(message))
            )
        return appended


def _inner_count(message: MessageRecord) -> int:
    """Return the message count that an inner batch declares."""
    text = properties.parse(message.properties).get(properties.INNER_NUM, "")
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= INNER_MAX):
        raise InvalidMessageError(
            f"an inner batch of {text!r} messages: property {properties.INNER_NUM} is between 1 and"
            f" {INNER_MAX}"
        )
    return int(text)


@cython.cfunc
def _queue_places(message: MessageRecord) -> cython.int:
    """Return how many offsets of its queue the message takes."""
    if message.sys_flag & PREPARED:
        return 0
    return _inner_count(message) if message.sys_flag & INNER_BATCH_BIT else 1


def _set_inner_base(message: MessageRecord, queue_offset: int) -> None:
    """Set the property for the queue offset of the batch's first message, unless it is right."""
    if properties.parse(message.properties).get(properties.INNER_BASE) != str(queue_offset):
        batch.set_inner_base(message, queue_offset)


@cython.cfunc
def _checked_size(log: LogBatch, message: MessageRecord, stored: bytes) -> cython.Py_ssize_t:
    """Return the size of the record if the message is within all limits; set `_message_parts`."""
    take_apart(message, stored, log._message_parts)
    return size_within(log, log._message_parts, len(message.properties)) or log._limits.check(
        message, log._store_host, log._with_crc
    )


@cython.cfunc
def size_within(
    log: LogBatch, parts: RecordParts, properties_size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the size of the record of these parts, `properties_size` bytes of which are the
    message's own; 0 if `RecordLimits` must decide.
    """
    topic_size: cython.Py_ssize_t = len(parts.topic)
    size: cython.Py_ssize_t
    if (
        0 < topic_size <= log._topic_size_max
        and parts.body_size <= log._body_size_max
        and properties_size <= PROPERTIES_SIZE_MAX
    ):
        size = size_with(parts, log._store_host)
        if size <= log._record_size_max:
            return size
    return 0


@cython.cfunc
def make_room(
    log: LogBatch, size: cython.Py_ssize_t, count: cython.Py_ssize_t, now_ms: cython.longlong
) -> cython.Py_ssize_t:
    """Ensure that `size` bytes fit into the buffer and, with a blank after them, into the file;
    close the file if they do not.

    The next record gets the store time `now_ms`, or the previous record's if that is later.
    """
    if size > log._record_size_max:
        raise InvalidMessageError(
            f"{count} records of {size} bytes together: at most {log._record_size_max}; send fewer"
            " at once"
        )
    if size + BLANK_SIZE > log._file_size:
        raise InvalidMessageError(
            f"{size} bytes for a commit log whose files have {log._file_size}, {BLANK_SIZE} of them"
            " reserved; send less"
        )
    room: cython.Py_ssize_t = len(log.buffer)
    needed: cython.Py_ssize_t = log.used + BLANK_SIZE + size
    if needed > room:
        log.buffer += bytes(max(needed, min(2 * room, log._batch_size_max)) - room)
    left: cython.Py_ssize_t = log._file_size - log.end % log._file_size
    if size + BLANK_SIZE > left:
        log.used += encode_blank(log.buffer, log.used, left)
        log._parts.append(Part(log._part_offset, log._part_begin, log.used))
        log._part_begin = log.used
        log.end += left
        log._part_offset = log.end
    if now_ms > log.store_time_ms:
        log.store_time_ms = now_ms
    return left


@cython.cfunc
def put(
    log: LogBatch, parts: RecordParts, size: cython.Py_ssize_t, places: cython.int
) -> cython.longlong:
    """Encode the record of these parts at the end, after `make_room`; return its queue offset."""
    queue_offset: cython.longlong = (
        log._offsets.take(parts.topic, parts.queue_id, places) if places else 0
    )
    write(
        parts,
        address(log.buffer),
        log.used,
        size,
        queue_offset,
        log.end,
        log.store_time_ms,
        log._store_host,
        log._with_crc,
    )
    log.used += size
    log.end += size
    return queue_offset


@cython.cfunc
def _put(log: LogBatch, size: cython.Py_ssize_t, places: cython.int) -> Appended:
    """Encode the record of `_message_parts` at the end."""
    # A NamedTuple would cost more than the queue offset's lookup.
    appended: Appended = Appended.__new__(Appended)
    appended.offset = log.end  # type: ignore[assignment]  # calling a NewType costs, here and below
    appended.size = size
    appended.store_time_ms = log.store_time_ms  # type: ignore[assignment]
    appended.queue_offset = put(log, log._message_parts, size, places)
    appended.end = log.end  # type: ignore[assignment]
    return appended
