"""The two queues that a broker keeps of its transactions, half messages and op records, and how far it is done with them.

Reads them into `Pending`: from the committed offsets on when the broker starts, then what producers add. What the broker writes itself,
`Pending` hears from whoever writes it. Crash rule: offsets are committed when a crash cannot take back any more what they stand for.
Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from orbitmq.broker.offsets import Offsets
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
    """Floors that hold once the log is on disk up to there."""

    floors: Floors
    log_end: LogOffset


class TransactionQueues:
    """See above."""

    def __init__(self, pending: Pending, store: MessageStore, reads: PluggableReads, offsets: Offsets) -> None:
        self._pending = pending
        self._store = store
        self._reads = reads
        self._offsets = offsets
        self._noted: _Noted | None = None
        self._looked_at_ms = 0

    def load(self) -> None:
        """Find out which transactions have not ended, which those are that may have been committed and the word of it lost."""
        floors = Floors(self._begin(HALF_TOPIC), self._begin(OP_HALF_TOPIC))
        self._pending.begin(floors)
        for records in self._read(HALF_TOPIC, floors.half):
            for half in decode_all(records):
                self._pending.took_half(Half.of(half)._replace(is_doubtful=True))
        for records in self._read(OP_HALF_TOPIC, floors.op):
            for op in decode_all(records):
                self._pending.took_op(op.queue_offset, ended_offsets(op))
        log.info("transactions_loaded pending=%d half_from=%d op_from=%d", len(self._pending), *floors)

    def _begin(self, topic: str) -> int:
        """From where on a queue is needed: the committed offset, unless the queue ends before it."""
        queues = self._store.queues
        committed = self._offsets.query(OFFSETS_GROUP, topic, QUEUE_ID)
        begin = queues.min_offset(topic, QUEUE_ID) if committed is None else committed
        return min(begin, queues.max_offset(topic, QUEUE_ID))

    def _read(self, topic: str, offset: int) -> Iterator[bytes | bytearray]:
        """The messages of a queue from an offset on, as records, many at a time."""
        end = self._store.queues.max_offset(topic, QUEUE_ID)
        while offset < end:
            found = self._reads.get(QueueKey(topic, QUEUE_ID), QueueOffset(offset), count_max=_READ_COUNT)
            yield found.records
            if found.next_offset <= offset:
                return
            offset = found.next_offset

    def follow(self) -> Iterator[Half]:
        """Take the half messages that producers sent meanwhile, and give each; copies are known since they were stored."""
        end, next_half = self._store.queues.max_offset(HALF_TOPIC, QUEUE_ID), self._pending.next_half
        if next_half < end:
            for records in self._read(HALF_TOPIC, next_half):
                at, cursor = 0, RecordCursor()
                while at < len(records) and (size := cursor.read(records, at, len(records), False)) > 0:
                    at += size
                    half = Half.sent(cursor)
                    if half is not None:
                        self._pending.took_half(half)
                        yield half
            self._pending.next_half = max(self._pending.next_half, end)  # one that cannot be read will not be tomorrow

    def log_ends(self) -> tuple[LogOffset, LogOffset]:
        """Where the log ends, and up to where queues and index have it."""
        return self._store.log.end_offset, self._store.dispatcher.offset

    def keep_floors(self, now_ms: int) -> None:
        """Commit from where on the queues are needed, if that is on disk; look anew every now and then."""
        if self._noted is not None and self._store.log.flushed_offset >= self._noted.log_end:
            floors, self._noted = self._noted.floors, None
            self._offsets.commit(OFFSETS_GROUP, HALF_TOPIC, QUEUE_ID, floors.half)
            self._offsets.commit(OFFSETS_GROUP, OP_HALF_TOPIC, QUEUE_ID, floors.op)
        if self._noted is None and now_ms - self._looked_at_ms >= _FLOORS_PERIOD_MS:
            self._looked_at_ms = now_ms
            floors = self._pending.floors()
            committed = (self._offsets.query(OFFSETS_GROUP, topic, QUEUE_ID) or 0 for topic in (HALF_TOPIC, OP_HALF_TOPIC))
            if tuple(committed) != tuple(floors):
                self._noted = _Noted(floors, self._store.log.end_offset)
