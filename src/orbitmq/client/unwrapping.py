"""From the records of a reply to messages: bodies inflated, batches taken apart.

A message whose body cannot be read (it is not the compressed data that its flag says, of an unknown type, larger than is inflated, not what
its checksum says, or a batch that is none) is a message all the same, with a `problem`: it is logged once, at WARNING, and keeps no other
from its reader. Where a record ends is unknown only in a reply that is damaged itself: `rest_at` says where to ask again.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from orbitmq.client.messages import ReceivedMessage
from orbitmq.common.errors import CorruptRecord, MessageIllegal
from orbitmq.message import flags, properties
from orbitmq.message.record import decode_all, decode_each
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import MessageQueue

BODY_SIZE_MAX: Final = 64 << 20  # of a body that is inflated
REPLY_SIZE_MAX: Final = 256 << 20  # of all bodies of a reply that are inflated; the rest of its records is asked for again
_WRAPPED: Final = flags.COMPRESSED | flags.NEED_UNWRAP

log = logging.getLogger(__name__)


class Unwrapped(NamedTuple):
    """The messages of a reply in order; `rest_at` is the queue offset to ask for what was not read of it, and `why` says why not."""

    messages: list[ReceivedMessage]
    rest_at: int | None = None
    why: str = ""


def unwrapped(body: bytes, queue: MessageQueue, asked_at: int) -> Unwrapped:
    """The messages of a queue's records, which were asked for from an offset on."""
    found: list[ReceivedMessage] = []
    size = 0
    try:
        for record in decode_all(body):
            if record.sys_flag & _WRAPPED:
                inflated = record.inflated(BODY_SIZE_MAX)
                size += len(inflated.body)
                if size > REPLY_SIZE_MAX:
                    break
                found += [ReceivedMessage.in_queue(inner, queue) for inner in inflated.inner_messages()]
            else:
                found.append(ReceivedMessage.in_queue(record, queue))
        else:
            return Unwrapped(found)
    except (CorruptRecord, MessageIllegal):
        pass
    return _one_by_one(body, queue, asked_at)


def _one_by_one(body: bytes, queue: MessageQueue, asked_at: int) -> Unwrapped:
    """The same of a reply in which something is wrong."""
    found: list[ReceivedMessage] = []
    size = 0
    next_at = asked_at
    try:
        for record, flaw in decode_each(body):
            messages = unwrap(record, queue, flaw)
            size += sum(message.body_size for message in messages if record.sys_flag & _WRAPPED)
            if found and size > REPLY_SIZE_MAX:
                return Unwrapped(found, record.queue_offset, f"the bodies of the reply inflate to more than {REPLY_SIZE_MAX} bytes")
            found += messages
            next_at = max(next_at, record.queue_offset + _places(record))
    except CorruptRecord as problem:
        return Unwrapped(found, next_at, str(problem))
    return Unwrapped(found)


def unwrap(record: StoredMessage, queue: MessageQueue | str, flaw: str | None = None) -> list[ReceivedMessage]:
    """The messages of one record of a queue, or of a broker; one with a `problem` when they cannot be read, or `flaw` says so already."""
    where = queue if isinstance(queue, MessageQueue) else MessageQueue(record.topic, queue, record.queue_id)
    if flaw is None:
        try:
            inner = record.inflated(BODY_SIZE_MAX).inner_messages()
            return [ReceivedMessage.in_queue(each, where) for each in inner]
        except (CorruptRecord, MessageIllegal) as problem:
            flaw = str(problem)
    message = ReceivedMessage.in_queue(record, where)
    message.problem = flaw
    place = (message.topic, where.broker_name, where.queue_id, record.queue_offset, message.msg_id)
    log.warning("message_unreadable topic=%s broker=%s queue=%d offset=%d msg_id=%s why='%s'", *place, flaw)
    return [message]


def unwrap_one(body: bytes, broker_name: str) -> ReceivedMessage:
    """The message of the one record that a body holds; CorruptRecord when it holds none."""
    for record, flaw in decode_each(body):
        return unwrap(record, broker_name, flaw)[0]
    raise CorruptRecord("no record in a body without bytes")


def _places(record: StoredMessage) -> int:
    """How many offsets of its queue a record takes."""
    count = record.properties().get(properties.INNER_NUM, "") if record.is_inner_batch else ""
    return int(count) if count.isascii() and count.isdigit() and len(count) < 6 else 1
