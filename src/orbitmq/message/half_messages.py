"""What the records of transactions say: half messages and their copies, and op records, which say that they ended.

A half message waits in queue 0 of the half topic; its place there, the queue offset that it had at first, names its transaction for good
("root"). Whenever its producer is asked it is stored once more, as a copy that says its root. An op record names the half messages that
ended: queue offsets in decimal, each with a comma behind it; one of 4.9 has a single one and no comma.
Invariant: the root can be read off any copy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from orbitmq.message import properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.stored_message import StoredMessage

QUEUE_ID: Final = 0  # of the half topic and of the op topic
OFFSETS_GROUP: Final = "CID_RMQ_SYS_TRANS"  # whose committed offsets say how far both are done with
ENDED_TAG: Final = "d"
SEPARATOR: Final = ","
PROPERTIES_ROOM: Final = 128  # bytes, for what copies of a half message say
_LONG_DIGITS: Final = 19


class Half(NamedTuple):
    """What is known of a half message without reading it again."""

    root: int  # the queue offset that it had at first
    offset: int  # the queue offset of its newest copy
    log_offset: int  # where that is
    since_ms: int  # when it came; of a copy, when it was born by its producer's clock, unless that is ahead of ours
    checks: int  # how often its producer was asked
    immunity_s: int | None  # how long it wants to be left alone; None: as long as any
    group: str  # of its producer
    topic: str  # where it belongs
    is_doubtful: bool = False  # from before a start: it may be committed, if the word of that was lost

    @classmethod
    def of(cls, stored: StoredMessage) -> Half:
        found = stored.properties()
        root = _root(found, stored.queue_offset)
        return cls(
            root=root,
            offset=stored.queue_offset,
            log_offset=stored.log_offset,
            since_ms=stored.store_time_ms if root == stored.queue_offset else min(stored.born_time_ms, stored.store_time_ms),
            checks=number(found.get(properties.TRANSACTION_CHECK_TIMES)) or 0,
            immunity_s=number(found.get(properties.CHECK_IMMUNITY_TIME_S)),
            group=found.get(properties.PRODUCER_GROUP, ""),
            topic=found.get(properties.REAL_TOPIC, ""),
        )

    @classmethod
    def sent(cls, record: RecordCursor) -> Half | None:
        """The same of a record; None when it is a copy, which producers do not send."""
        if record.property(properties.PREPARED_QUEUE_OFFSET) is not None:
            return None
        return cls(
            root=record.queue_offset,
            offset=record.queue_offset,
            log_offset=record.log_offset,
            since_ms=record.store_time_ms,
            checks=number(record.property(properties.TRANSACTION_CHECK_TIMES)) or 0,
            immunity_s=number(record.property(properties.CHECK_IMMUNITY_TIME_S)),
            group=record.property(properties.PRODUCER_GROUP) or "",
            topic=record.property(properties.REAL_TOPIC) or "",
        )

    def immunity_ms(self, timeout_ms: int) -> int:
        """For how long after it came nobody is asked, if those that want nothing else are left alone for `timeout_ms`."""
        return timeout_ms if self.immunity_s is None else self.immunity_s * 1000


def root_of(half: StoredMessage) -> int:
    """The queue offset that a half message, of which this may be a copy, had at first."""
    return _root(half.properties(), half.queue_offset)


def is_copy(half: StoredMessage) -> bool:
    """Whether the broker stored it, not a producer."""
    return properties.PREPARED_QUEUE_OFFSET in half.properties()


def ended_offsets(op: StoredMessage) -> list[int]:
    """The half messages that an op record says have ended; what of it cannot be read is left out."""
    if op.properties().get(properties.TAGS) != ENDED_TAG:
        return []
    numbers = map(number, op.body.decode("ascii", "replace").split(SEPARATOR))
    return [each for each in numbers if each is not None]


def number(text: str | None) -> int | None:
    """The number that a text says, from 0 on; None when it says none."""
    return int(text) if text is not None and len(text) <= _LONG_DIGITS and text.isascii() and text.isdigit() else None


def _root(found: Mapping[str, str], offset: int) -> int:
    root = number(found.get(properties.PREPARED_QUEUE_OFFSET))
    return offset if root is None else root
