"""Delivered copies: what is stored, where a message belongs, of one that waited in a topic of the broker's own.

Body, birth, flags and properties stay, those that said where and how long it waited too, as in the original: whoever reads the copy
must not mind them. Knows nothing of when.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from orbitmq.broker.own_messages import OwnMessages, copy_of
from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.common.errors import MessageIllegal
from orbitmq.common.topic_names import HALF_TOPIC
from orbitmq.message import properties
from orbitmq.message.record import decode_all
from orbitmq.message.record_write import Message
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.types import LogOffset

_INT_MAX = (1 << 31) - 1

log = logging.getLogger(__name__)


def message_at(reads: PluggableReads, log_offset: int) -> StoredMessage | None:
    """The message at a place in the log, as plug-ins of the store give it back; None when there is none, or it is damaged."""
    record = reads.record_at(LogOffset(log_offset))
    return None if record is None else next(decode_all(record), None)


class Stored(NamedTuple):
    """So many more of the copies are dealt with; those that are stored end there in the log, at 0 when none is."""

    copies: int
    log_end: int


def put(own: OwnMessages, messages: Sequence[Message]) -> Iterator[Stored]:
    """Store copies in one write, or one by one when some can never be stored, which are passed over; what is dealt with after each write.

    StoreError when the store takes no more: what was given out before that is stored.
    """
    if not messages:
        return
    try:
        log_end = own.put(*messages)[-1].end
    except MessageIllegal:
        yield from _put_singly(own, messages)
    else:
        yield Stored(len(messages), log_end)


def _put_singly(own: OwnMessages, messages: Sequence[Message]) -> Iterator[Stored]:
    log_end = 0
    for message in messages:
        try:
            log_end = own.put(message)[-1].end
        except MessageIllegal as error:
            log.error("delivery_dropped message=%r reason=%s", message, error)
        yield Stored(1, log_end)


def delivered(stored: StoredMessage) -> Message:
    """The copy of a message whose delay level is over; MessageIllegal when it does not say where it belongs."""
    topic, queue_id = _destination(stored.properties())
    return copy_of(stored, topic, queue_id, {})


def fired(stored: StoredMessage, found: Mapping[str, str], enqueued_ms: int, now_ms: int) -> Message:
    """The copy of a timed message, which has these properties, and whose time has come; it came into the wheel at `enqueued_ms`."""
    topic, queue_id = _destination(found)
    more: dict[str, str | None] = {properties.TIMER_ENQUEUE_MS: str(enqueued_ms), properties.TIMER_DEQUEUE_MS: str(now_ms)}
    return copy_of(stored, topic, queue_id, more)


def rolled(stored: StoredMessage, found: Mapping[str, str], enqueued_ms: int, now_ms: int, deliver_ms: int) -> Message:
    """A timed message that is still far away, once more for the timer topic; it keeps the exact time, however that was said at first."""
    times = found.get(properties.TIMER_ROLL_TIMES, "0")
    more: dict[str, str | None] = {
        properties.TIMER_ROLL_TIMES: str(int(times) + 1 if times.isdecimal() else 1),
        properties.TIMER_ENQUEUE_MS: str(enqueued_ms),
        properties.TIMER_DEQUEUE_MS: str(now_ms),
        properties.TIMER_DELIVER_MS: str(deliver_ms),
    }
    return copy_of(stored, stored.topic, stored.queue_id, more)


def _destination(found: Mapping[str, str]) -> tuple[str, int]:
    topic, queue_text = found.get(properties.REAL_TOPIC, ""), found.get(properties.REAL_QUEUE_ID, "")
    if not topic or not queue_text.isdecimal() or int(queue_text) > _INT_MAX:
        raise MessageIllegal(f"it does not say where it belongs: REAL_TOPIC={topic!r} REAL_QID={queue_text!r}")
    if topic == HALF_TOPIC:
        raise MessageIllegal("it belongs to the topic of half messages, which nothing may be delivered to")
    return topic, int(queue_text)
