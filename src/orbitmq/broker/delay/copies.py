"""Delivered copies: what is stored, where a message belongs, of one that waited in a topic of the broker's own.

A kill may come between the write of copies and the note of them; `written` finds out afterwards which of a batch are in the log.

Body, birth, flags and properties stay, those that said where and how long it waited too, as in the original: whoever reads the copy
must not mind them. Knows nothing of when.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from orbitmq.broker.own_messages import OwnMessages, copy_of
from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.common.errors import MessageIllegal
from orbitmq.common.topic_names import HALF_TOPIC
from orbitmq.message import properties
from orbitmq.message.message_type import MessageType
from orbitmq.message.record import decode_all
from orbitmq.message.record_write import Message
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.types import LogOffset

_INT_MAX = (1 << 31) - 1
K = TypeVar("K")

log = logging.getLogger(__name__)


def message_at(reads: PluggableReads, log_offset: int) -> StoredMessage | None:
    """The message at a place in the log, as plug-ins of the store give it back; None when there is none, or it is damaged."""
    record = reads.record_at(LogOffset(log_offset))
    return None if record is None else next(decode_all(record), None)


class Stored(NamedTuple):
    """So many more of the copies are dealt with; those that are stored have so many bytes, and end there in the log, at 0 when none is."""

    copies: int
    log_end: int
    stored: int
    size: int


def put(own: OwnMessages, messages: Sequence[Message]) -> Iterator[Stored]:
    """Store copies in one write, or one by one when some can never be stored, which are passed over; what is dealt with after each write.

    StoreError when the store takes no more: what was given out before that is stored.
    """
    if not messages:
        return
    try:
        places = own.put(*messages, message_type=MessageType.DELAY)
    except MessageIllegal:
        yield from _put_singly(own, messages)
    else:
        yield Stored(len(messages), places[-1].end, len(places), sum(place.size for place in places))


def _put_singly(own: OwnMessages, messages: Sequence[Message]) -> Iterator[Stored]:
    log_end = 0
    for message in messages:
        stored = size = 0
        try:
            (place,) = own.put(message, message_type=MessageType.DELAY)
            log_end, stored, size = place.end, 1, place.size
        except MessageIllegal as error:
            log.error("delivery_dropped message=%r reason=%s", message, error)
        yield Stored(1, log_end, stored, size)


def written(
    own: OwnMessages, reads: PluggableReads, log_begin: int, batch: Iterable[K], is_copy: Callable[[StoredMessage, K], bool]
) -> list[K]:
    """Which messages of a batch, whose copies were about to be written at `log_begin`, have theirs in the log.

    Copies of one batch stand one behind the other, in its order; some of it may have been passed over.
    """
    found: list[K] = []
    left = iter(batch)
    for log_offset in own.written_since(log_begin):
        stored = message_at(reads, log_offset)
        match = None if stored is None else next((each for each in left if is_copy(stored, each)), None)
        if match is None:
            break
        found.append(match)
    return found


def is_written_as(stored: StoredMessage, copy: Message) -> bool:
    """Whether a stored message is that copy, made at any time."""
    if (stored.topic.encode(), stored.queue_id, stored.born_time_ms) != (bytes(copy.topic), copy.queue_id, copy.born_time_ms):
        return False
    ours, theirs = stored.properties(), properties.parse(bytes(copy.properties))
    for name in (properties.CRC32, properties.TIMER_ENQUEUE_MS, properties.TIMER_DEQUEUE_MS):
        ours.pop(name, None)
        theirs.pop(name, None)
    return ours == theirs and stored.body == bytes(copy.body)


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
