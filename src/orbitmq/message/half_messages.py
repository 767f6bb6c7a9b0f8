"""The records of transactions: half messages, their copies, and op records, which mark them as
ended.

A half message is held in queue 0 of the half topic; its original queue offset there, the "root",
identifies its transaction for good. Each check of its producer stores it again, as a copy that
carries the root. An op record lists ended half messages: decimal queue offsets, each followed by a
comma; 4.9 writes a single one without a comma. Invariant: the root can be read from any copy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from orbitmq.message import properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.stored_message import StoredMessage

QUEUE_ID: Final = 0  # of the half topic and of the op topic
OFFSETS_GROUP: Final = "CID_RMQ_SYS_TRANS"  # its committed offsets are the progress in both topics
ENDED_TAG: Final = "d"
SEPARATOR: Final = ","
PROPERTIES_ROOM: Final = 128  # bytes reserved for the properties that copies add
_LONG_DIGITS: Final = 19


class Half(NamedTuple):
    """The state of a half message that is known without reading it again."""

    root: int  # its original queue offset
    offset: int  # queue offset of its newest copy
    log_offset: int  # log offset of that copy
    # Arrival time; of a copy, the born time by its producer's clock unless that is in the future.
    since_ms: int
    checks: int  # number of checks sent to its producer
    immunity_s: int | None  # requested time without checks; None: the default
    group: str  # producer group
    topic: str  # real topic
    is_doubtful: bool = (
        False  # from before a restart: possibly committed, if the op record was lost
    )

    @classmethod
    def of(cls, stored: StoredMessage) -> Half:
        found = stored.properties()
        root = _root(found, stored.queue_offset)
        return cls(
            root=root,
            offset=stored.queue_offset,
            log_offset=stored.log_offset,
            since_ms=(
                stored.store_time_ms
                if root == stored.queue_offset
                else min(stored.born_time_ms, stored.store_time_ms)
            ),
            checks=number(found.get(properties.TRANSACTION_CHECK_TIMES)) or 0,
            immunity_s=number(found.get(properties.CHECK_IMMUNITY_TIME_S)),
            group=found.get(properties.PRODUCER_GROUP, ""),
            topic=found.get(properties.REAL_TOPIC, ""),
        )

    @classmethod
    def sent(cls, record: RecordCursor) -> Half | None:
        """Return the half message of a record; None for a copy, which producers never send."""
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
        """Return for how long after its arrival it is not checked; `timeout_ms` unless it requests
        otherwise.
        """
        return timeout_ms if self.immunity_s is None else self.immunity_s * 1000


def root_of(half: StoredMessage) -> int:
    """Return the original queue offset of a half message or of a copy of one."""
    return _root(half.properties(), half.queue_offset)


def is_copy(half: StoredMessage) -> bool:
    """Return whether the broker stored it as a copy, rather than a producer."""
    return properties.PREPARED_QUEUE_OFFSET in half.properties()


def ended_offsets(op: StoredMessage) -> list[int]:
    """Return the half messages that an op record marks as ended, ignoring malformed parts."""
    if op.properties().get(properties.TAGS) != ENDED_TAG:
        return []
    numbers = map(number, op.body.decode("ascii", "replace").split(SEPARATOR))
    return [each for each in numbers if each is not None]


def number(text: str | None) -> int | None:
    """Return the non-negative number in a text, or None."""
    return (
        int(text)
        if text is not None and len(text) <= _LONG_DIGITS and text.isascii() and text.isdigit()
        else None
    )


def _root(found: Mapping[str, str], offset: int) -> int:
    root = number(found.get(properties.PREPARED_QUEUE_OFFSET))
    return offset if root is None else root
