"""Delivered copies: the messages stored in their destination topic when deferred messages come due.

A kill may come between the write of copies and the note of their progress; `written` finds out
afterwards which copies of a batch are in the log.

Body, birth, flags and properties stay, including those that say where and how long the message was
held, as in Apache RocketMQ: readers of a copy must ignore them. Knows nothing of due times.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.broker.produce.internal_writer import InternalMessageWriter, copy_of
from orbitmq.common.errors import InvalidMessageError
from orbitmq.common.topic_names import HALF_TOPIC
from orbitmq.message import properties
from orbitmq.message.message_type import MessageType
from orbitmq.message.record import decode_all
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.types import LogOffset

_INT_MAX = (1 << 31) - 1
K = TypeVar("K")

log = logging.getLogger(__name__)


def message_at(reads: PluggableReads, log_offset: int) -> StoredMessage | None:
    """Return the message at a log offset, as store plug-ins decode it; None if there is none, or it
    is corrupt.
    """
    record = reads.record_at(LogOffset(log_offset))
    return None if record is None else next(decode_all(record), None)


class Stored(NamedTuple):
    """The result of one write: how many more copies are settled, the bytes of the stored ones, and
    their end in the log, 0 if none is stored.
    """

    copies: int
    log_end: int
    stored: int
    size: int


def put(own: InternalMessageWriter, messages: Sequence[MessageRecord]) -> Iterator[Stored]:
    """Store copies in one write, or one by one if some can never be stored, which are skipped;
    yield what is settled after each write.

    Raises StoreError if the store accepts no more: what was yielded before is stored.
    """
    if not messages:
        return
    try:
        places = own.put(*messages, message_type=MessageType.DELAY)
    except InvalidMessageError:
        yield from _put_singly(own, messages)
    else:
        yield Stored(
            len(messages), places[-1].end, len(places), sum(place.size for place in places)
        )


def _put_singly(own: InternalMessageWriter, messages: Sequence[MessageRecord]) -> Iterator[Stored]:
    log_end = 0
    for message in messages:
        stored = size = 0
        try:
            (place,) = own.put(message, message_type=MessageType.DELAY)
            log_end, stored, size = place.end, 1, place.size
        except InvalidMessageError as error:
            log.error("delivery_dropped message=%r reason=%s", message, error)
        yield Stored(1, log_end, stored, size)


def written(
    own: InternalMessageWriter,
    reads: PluggableReads,
    log_begin: int,
    batch: Iterable[K],
    is_copy: Callable[[StoredMessage, K], bool],
) -> list[K]:
    """Return which messages of a batch, whose copies were about to be written at `log_begin`, have
    their copies in the log.

    Copies of a batch are adjacent and in order; some messages of it may have been skipped.
    """
    found: list[K] = []
    left = iter(batch)
    for log_offset in own.written_since(log_begin):
        stored = message_at(reads, log_offset)
        match = (
            None if stored is None else next((each for each in left if is_copy(stored, each)), None)
        )
        if match is None:
            break
        found.append(match)
    return found


def is_written_as(stored: StoredMessage, copy: MessageRecord) -> bool:
    """Return whether a stored message is that copy, whenever it was made."""
    if (stored.topic.encode(), stored.queue_id, stored.born_time_ms) != (
        bytes(copy.topic),
        copy.queue_id,
        copy.born_time_ms,
    ):
        return False
    ours, theirs = stored.properties(), properties.parse(bytes(copy.properties))
    for name in (properties.CRC32, properties.TIMER_ENQUEUE_MS, properties.TIMER_DEQUEUE_MS):
        ours.pop(name, None)
        theirs.pop(name, None)
    return ours == theirs and stored.body == bytes(copy.body)


def delivered(stored: StoredMessage) -> MessageRecord:
    """Return the copy of a message whose delay level has elapsed. Raises InvalidMessageError if its
    destination is missing.
    """
    topic, queue_id = _destination(stored.properties())
    return copy_of(stored, topic, queue_id, {})


def fired(
    stored: StoredMessage, found: Mapping[str, str], enqueued_ms: int, now_ms: int
) -> MessageRecord:
    """Return the copy of a timed message with these properties whose time has come; it entered the
    wheel at `enqueued_ms`.
    """
    topic, queue_id = _destination(found)
    more: dict[str, str | None] = {
        properties.TIMER_ENQUEUE_MS: str(enqueued_ms),
        properties.TIMER_DEQUEUE_MS: str(now_ms),
    }
    return copy_of(stored, topic, queue_id, more)


def rolled(
    stored: StoredMessage, found: Mapping[str, str], enqueued_ms: int, now_ms: int, deliver_ms: int
) -> MessageRecord:
    """Return a copy for the timer topic of a timed message that is still far away; it keeps the
    exact time, however the producer gave it.
    """
    times = found.get(properties.TIMER_ROLL_TIMES, "0")
    more: dict[str, str | None] = {
        properties.TIMER_ROLL_TIMES: str(int(times) + 1 if times.isdecimal() else 1),
        properties.TIMER_ENQUEUE_MS: str(enqueued_ms),
        properties.TIMER_DEQUEUE_MS: str(now_ms),
        properties.TIMER_DELIVER_MS: str(deliver_ms),
    }
    return copy_of(stored, stored.topic, stored.queue_id, more)


def _destination(found: Mapping[str, str]) -> tuple[str, int]:
    topic, queue_text = (
        found.get(properties.REAL_TOPIC, ""),
        found.get(properties.REAL_QUEUE_ID, ""),
    )
    if not topic or not queue_text.isdecimal() or int(queue_text) > _INT_MAX:
        raise InvalidMessageError(
            f"its destination is missing or invalid: REAL_TOPIC={topic!r} REAL_QID={queue_text!r}"
        )
    if topic == HALF_TOPIC:
        raise InvalidMessageError(
            "its destination is the topic of half messages, to which nothing may be delivered"
        )
    return topic, int(queue_text)
