"""The two queues of a broker's transactions, half messages and op records, and their committed
offsets.

Reads them into `Pending`: from the committed offsets on when the broker starts, then what producers
add. Records that the broker writes are reported to `Pending` by their writer. Crash rule: offsets
are committed only once the records before them are flushed. Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.broker.transactions.pending import Floors, Pending
from orbitmq.common.topic_names import HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.message.half_messages import OFFSETS_GROUP, QUEUE_ID, Half, ended_offsets
from orbitmq.message.record import decode_all
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset

_FLOORS_PERIOD_MS: Final = 1_000
_READ_COUNT: Final = 1024

log = logging.getLogger(__name__)


class _Noted(NamedTuple):
    """Floors that are valid once the log is flushed up to `log_end`."""

    floors: Floors
    log_end: LogOffset


class TransactionQueues:
    """Reads the half queue and the op queue, and commits their offsets."""

    def __init__(
        self, pending: Pending, store: MessageStore, reads: PluggableReads, offsets: Offsets
    ) -> None:
        self._pending = pending
        self._store = store
        self._reads = reads
        self._offsets = offsets
        self._noted: _Noted | None = None
        self._looked_at_ms = 0

    def load(self) -> None:
        """Find the pending transactions, and those that may have been committed without an op
        record.
        """
        floors = Floors(self._begin(HALF_TOPIC), self._begin(OP_HALF_TOPIC))
        self._pending.begin(floors)
        for records in self._read(HALF_TOPIC, floors.half):
            for half in decode_all(records):
                self._pending.took_half(Half.of(half)._replace(is_doubtful=True))
        for records in self._read(OP_HALF_TOPIC, floors.op):
            for op in decode_all(records):
                self._pending.took_op(op.queue_offset, ended_offsets(op))
        log.info(
            "transactions_loaded pending=%d half_from=%d op_from=%d", len(self._pending), *floors
        )

    def _begin(self, topic: str) -> int:
        """Return where to start reading a queue: at the committed offset, or at the queue's end if
        that is lower.
        """
        queues = self._store.queues
        committed = self._offsets.query(OFFSETS_GROUP, topic, QUEUE_ID)
        begin = queues.min_offset(topic, QUEUE_ID) if committed is None else committed
        return min(begin, queues.max_offset(topic, QUEUE_ID))

    def _read(self, topic: str, offset: int) -> Iterator[bytes | bytearray]:
        """Yield the messages of a queue from an offset on, in batches of records."""
        end = self._store.queues.max_offset(topic, QUEUE_ID)
        while offset < end:
            found = self._reads.get(
                QueueKey(topic, QUEUE_ID), QueueOffset(offset), count_max=_READ_COUNT
            )
            yield found.records
            if found.next_offset <= offset:
                return
            offset = found.next_offset

    def follow(self) -> Iterator[Half]:
        """Yield the half messages that producers have sent since the last call; copies were noted
        when they were stored.
        """
        end, next_half = (
            self._store.queues.max_offset(HALF_TOPIC, QUEUE_ID),
            self._pending.next_half,
        )
        if next_half < end:
            for records in self._read(HALF_TOPIC, next_half):
                at, cursor = 0, RecordCursor()
                while (
                    at < len(records)
                    and (size := cursor.read(records, at, len(records), False)) > 0
                ):
                    at += size
                    half = Half.sent(cursor)
                    if half is not None:
                        self._pending.took_half(half)
                        yield half
            self._pending.next_half = max(
                self._pending.next_half, end
            )  # an unreadable record will not become readable

    def log_ends(self) -> tuple[LogOffset, LogOffset]:
        """Return the end of the log, and the end of its dispatched part."""
        return self._store.log.end_offset, self._store.dispatcher.offset

    def keep_floors(self, now_ms: int) -> None:
        """Commit the floors of the queues once they are durable; compute new ones periodically."""
        if self._noted is not None and self._store.flushing.settled_offset >= self._noted.log_end:
            floors, self._noted = self._noted.floors, None
            self._offsets.commit(OFFSETS_GROUP, HALF_TOPIC, QUEUE_ID, floors.half)
            self._offsets.commit(OFFSETS_GROUP, OP_HALF_TOPIC, QUEUE_ID, floors.op)
        if self._noted is None and now_ms - self._looked_at_ms >= _FLOORS_PERIOD_MS:
            self._looked_at_ms = now_ms
            floors = self._pending.floors()
            committed = (
                self._offsets.query(OFFSETS_GROUP, topic, QUEUE_ID) or 0
                for topic in (HALF_TOPIC, OP_HALF_TOPIC)
            )
            if tuple(committed) != tuple(floors):
                self._noted = _Noted(floors, self._store.log.end_offset)
