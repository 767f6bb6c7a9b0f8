"""Turns the records of a reply into messages: inflates bodies and unpacks batches.

A message whose body cannot be decoded (corrupt or unknown compression, too large when inflated,
checksum mismatch, malformed batch) is still a message, with a `problem`: it is logged once at
WARNING and does not hold up the others. Only a corrupt reply hides where its records end;
`resume_offset` then says where to pull again.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from orbitmq.client.messages import ReceivedMessage
from orbitmq.common.errors import CorruptRecordError, InvalidMessageError
from orbitmq.message import flags, properties
from orbitmq.message.record import decode_all, decode_each
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.clients import MessageQueue

BODY_SIZE_MAX: Final = 64 << 20  # of one inflated body
REPLY_SIZE_MAX: Final = 256 << 20  # of all inflated bodies of a reply; the rest is pulled again
_WRAPPED: Final = flags.COMPRESSED | flags.NEED_UNWRAP

log = logging.getLogger(__name__)


class UnwrappedReply(NamedTuple):
    """Messages of a reply in order; `resume_offset` is where to pull the unread rest, `why` the
    reason.
    """

    messages: list[ReceivedMessage]
    resume_offset: int | None = None
    why: str = ""


def unwrap_reply(body: bytes, queue: MessageQueue, asked_at: int) -> UnwrappedReply:
    """Return the messages of a queue's records that were pulled from offset `asked_at`."""
    found: list[ReceivedMessage] = []
    size = 0
    try:
        for record in decode_all(body):
            if record.sys_flag & _WRAPPED:
                inflated = record.inflated(BODY_SIZE_MAX)
                size += len(inflated.body)
                if size > REPLY_SIZE_MAX:
                    break
                found += [
                    ReceivedMessage.in_queue(inner, queue) for inner in inflated.inner_messages()
                ]
            else:
                found.append(ReceivedMessage.in_queue(record, queue))
        else:
            return UnwrappedReply(found)
    except (CorruptRecordError, InvalidMessageError):
        pass
    return _one_by_one(body, queue, asked_at)


def _one_by_one(body: bytes, queue: MessageQueue, asked_at: int) -> UnwrappedReply:
    """Do the same for a reply that contains an error."""
    found: list[ReceivedMessage] = []
    size = 0
    next_at = asked_at
    try:
        for record, flaw in decode_each(body):
            messages = unwrap(record, queue, flaw)
            size += sum(message.body_size for message in messages if record.sys_flag & _WRAPPED)
            if found and size > REPLY_SIZE_MAX:
                return UnwrappedReply(
                    found,
                    record.queue_offset,
                    f"the bodies of the reply inflate to more than {REPLY_SIZE_MAX} bytes",
                )
            found += messages
            next_at = max(next_at, record.queue_offset + _offset_count(record))
    except CorruptRecordError as problem:
        return UnwrappedReply(found, next_at, str(problem))
    return UnwrappedReply(found)


def unwrap(
    record: StoredMessage, queue: MessageQueue | str, flaw: str | None = None
) -> list[ReceivedMessage]:
    """Return the messages of one record of a queue or broker.

    If they cannot be decoded, or `flaw` already says so, return one message with a `problem`.
    """
    where = (
        queue
        if isinstance(queue, MessageQueue)
        else MessageQueue(record.topic, queue, record.queue_id)
    )
    if flaw is None:
        try:
            inner = record.inflated(BODY_SIZE_MAX).inner_messages()
            return [ReceivedMessage.in_queue(each, where) for each in inner]
        except (CorruptRecordError, InvalidMessageError) as problem:
            flaw = str(problem)
    message = ReceivedMessage.in_queue(record, where)
    message.problem = flaw
    place = (message.topic, where.broker_name, where.queue_id, record.queue_offset, message.msg_id)
    log.warning(
        "message_unreadable topic=%s broker=%s queue=%d offset=%d msg_id=%s why='%s'", *place, flaw
    )
    return [message]


def unwrap_one(body: bytes, broker_name: str) -> ReceivedMessage:
    """Return the message of the only record in `body`; raise CorruptRecordError if empty."""
    for record, flaw in decode_each(body):
        return unwrap(record, broker_name, flaw)[0]
    raise CorruptRecordError("the body is empty and contains no record")


def _offset_count(record: StoredMessage) -> int:
    """Return the number of queue offsets that a record occupies."""
    count = record.properties().get(properties.INNER_NUM, "") if record.is_inner_batch else ""
    return int(count) if count.isascii() and count.isdigit() and len(count) < 6 else 1
