"""The history of transactions in the log: half messages and how they ended, for transactions that
are no longer tracked in memory.

The outcome is found through the index, by the unique key that all records of a transaction share;
without an index nothing is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.common.topic_names import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType, transaction_type
from orbitmq.message.half_messages import ended_offsets, is_copy, root_of
from orbitmq.message.record import decode, decode_all
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.types import LogOffset

_COUNT_MAX: Final = 64
_FOREVER_MS: Final = (1 << 63) - 1


class TransactionHistory:
    """Finds half messages and their outcomes in the log."""

    def __init__(self, reads: PluggableReads) -> None:
        self._reads = reads

    def half_at(self, log_offset: int) -> StoredMessage | None:
        """Return the half message, or the copy of one, at a log offset; None if there is none."""
        record = self._reads.record_at(LogOffset(log_offset))
        half = None if record is None else decode(record)
        return half if half is not None and half.topic == HALF_TOPIC else None

    def was_committed(self, half: StoredMessage, root: int) -> bool:
        """Return whether this transaction has a committed message, from any copy of its half
        message.
        """
        topic = half.properties().get(properties.REAL_TOPIC, "")
        return any(
            transaction_type(each.sys_flag) is TransactionType.COMMIT
            and self._root_at(each.prepared_offset) == root
            for place in (topic, SCHEDULE_TOPIC, TIMER_TOPIC)
            for each in self._relatives(half, place)
        )

    def is_given_up(self, half: StoredMessage, root: int) -> bool:
        """Return whether it was given up after too many checks, and nothing happened since.

        Giving up writes an op record that the index can find, and an end after it writes another:
        exactly one must be there, or none if only the half message itself was kept.
        """
        kept = [
            each
            for each in self._relatives(half, CHECK_MAX_TIME_TOPIC)
            if is_copy(each) and root_of(each) == root
        ]
        if half.topic == CHECK_MAX_TIME_TOPIC:
            kept.append(half)
        if not kept or self.was_committed(half, root):
            return False
        since = max(each.log_offset for each in kept)
        later = [
            each.topic
            for topic in (HALF_TOPIC, OP_HALF_TOPIC)
            for each in self._relatives(half, topic)
            if each.log_offset > since
            and root in (ended_offsets(each) if topic == OP_HALF_TOPIC else (root_of(each),))
        ]
        return later == [OP_HALF_TOPIC] or (not later and half.topic == CHECK_MAX_TIME_TOPIC)

    def _relatives(self, half: StoredMessage, topic: str) -> Iterator[StoredMessage]:
        """Yield the messages of a topic that have its unique key."""
        key = half.properties().get(properties.UNIQUE_KEY)
        if key:
            found = self._reads.query_records(
                topic, key, count_max=_COUNT_MAX, begin_ms=0, end_ms=_FOREVER_MS, by_tags=False
            )
            yield from decode_all(found.records)

    def _root_at(self, log_offset: int) -> int | None:
        half = self.half_at(log_offset)
        return None if half is None else root_of(half)
