"""The stored record for code that reads whole messages or accepts new ones: limits on write, values
on read.

The bytes are written by `record_write` and read by `record_read`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orbitmq.common.errors import CorruptRecordError, InvalidMessageError
from orbitmq.common.mem import Buffer
from orbitmq.message.layout import PROPERTIES_SIZE_MAX, TOPIC_SIZE_V1_MAX, Flaw
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord, record_size
from orbitmq.message.stored_message import StoredMessage

_RETRY_TOPIC_PREFIX = b"%RETRY%"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLimits:
    """The sizes that a broker accepts; a record may exceed its body by 64 KiB."""

    body_size_max: int = 4 * 1024 * 1024
    around_body_size_max: int = 64 * 1024
    topic_size_max: int = TOPIC_SIZE_V1_MAX
    retry_topic_size_max: int = 255

    def check(self, message: MessageRecord, store_host: bytes, with_crc: bool = False) -> int:
        """Return the size of the record of `message`; raise InvalidMessageError, with size and
        limit, if it exceeds one.
        """
        body_size, topic_size, properties_size = (
            len(message.body),
            len(message.topic),
            len(message.properties),
        )
        if body_size > self.body_size_max:
            raise InvalidMessageError(
                f"a body of {body_size} bytes: at most {self.body_size_max} (maxMessageSize); send"
                " less, or compress it"
            )
        topic_max = (
            self.retry_topic_size_max
            if message.topic.startswith(_RETRY_TOPIC_PREFIX)
            else self.topic_size_max
        )
        if not 0 < topic_size <= topic_max:
            raise InvalidMessageError(f"a topic of {topic_size} bytes: between 1 and {topic_max}")
        if properties_size > PROPERTIES_SIZE_MAX:
            raise InvalidMessageError(
                f"properties of {properties_size} bytes: at most {PROPERTIES_SIZE_MAX}; put what is"
                " large into the body"
            )
        size: int = record_size(message, store_host, with_crc)
        if size > self.body_size_max + self.around_body_size_max:
            raise InvalidMessageError(
                f"a record of {size} bytes: at most"
                f" {self.body_size_max + self.around_body_size_max}; send less"
            )
        return size


def decode(
    buffer: Buffer, at: int = 0, end: int | None = None, *, check_body: bool = True
) -> StoredMessage:
    """Return the record at buffer[at:end]; raise CorruptRecordError if it is not valid."""
    cursor = RecordCursor()
    result = cursor.read(buffer, at, len(buffer) if end is None else end, check_body)
    if result <= 0:
        raise CorruptRecordError(f"no record at {at}: {flaw_text(result)}")
    return cursor.message()


def decode_all(buffer: Buffer, *, check_body: bool = True) -> Iterator[StoredMessage]:
    """Return the consecutive records of `buffer`, such as a pull response; raise CorruptRecordError
    at the first invalid one.
    """
    cursor = RecordCursor()
    at, end = 0, len(buffer)
    while at < end:
        result = cursor.read(buffer, at, end, check_body)
        if result <= 0:
            raise CorruptRecordError(f"no record at {at} of {end} bytes: {flaw_text(result)}")
        yield cursor.message()
        at += result


def decode_each(buffer: Buffer) -> Iterator[tuple[StoredMessage, str | None]]:
    """Like `decode_all`, with the flaw of each record whose body checksum is wrong; raise
    CorruptRecordError where the next record cannot be found.
    """
    cursor = RecordCursor()
    at, end = 0, len(buffer)
    while at < end:
        flaw = None
        result = cursor.read(buffer, at, end, True)
        if result == Flaw.BODY_CRC:
            flaw = flaw_text(result)
            result = cursor.read(buffer, at, end, False)
        if result <= 0:
            raise CorruptRecordError(f"no record at {at} of {end} bytes: {flaw_text(result)}")
        yield cursor.message(), flaw
        at += result


def flaw_text(result: int) -> str:
    """Describe a result of `RecordCursor.read` that is not a record."""
    return "a file ends there, blank from here on" if result == 0 else Flaw(result).reason
