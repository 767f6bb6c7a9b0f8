"""Dispatch: what is in the commit log comes into the consume queues and the index, and those who wait for messages hear of it.

One code path, live and in recovery: records are read from the log, from `offset` on. Queues and index pass over what they have, so
dispatching again from anywhere before is always right. Thread rule: the loop thread; whoever committed to the log calls `advance`.

Invariants: `offset` is where everything before is in queues and index, written though maybe not flushed; listeners hear of a message
after its entry can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from orbitmq.message.flags import INNER_BATCH, TransactionType, transaction_type
from orbitmq.message.properties import DELAY, INNER_NUM
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.batch_consume_queue import BatchEntry
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.entry_queue import EntryQueue
from orbitmq.store.index import Index
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_IN_QUEUE = (TransactionType.NONE, TransactionType.COMMIT)


class Arrival(NamedTuple):
    """A message that can be read now."""

    queue: QueueKey
    next_offset: QueueOffset  # behind the message
    tags_code: int
    store_time_ms: StoreTimeMs


Listener = Callable[[Arrival], None]


class Dispatcher:
    """Follows the log."""

    def __init__(
        self, log: CommitLog, queues: Queues, index: Index | None, *, delay_levels_ms: Sequence[int], listeners: Sequence[Listener] = ()
    ) -> None:
        self.offset = LogOffset(0)
        self.listeners = list(listeners)
        self._log = log
        self._queues = queues
        self._index = index
        self._delay_levels_ms = tuple(delay_levels_ms)
        self._touched: dict[int, EntryQueue] = {}  # by identity: queues with entries that are not written yet
        self._arrivals: list[Arrival] = []

    def advance(self, stop: LogOffset | None = None) -> str | None:
        """Dispatch up to the log's committed end, or to `stop`; what is wrong with the record it had to stop at, if it had to.

        WriteFailed when queues or index could not be written: the next call goes on where this one began.
        """
        scan = self._log.scan(self.offset, stop, check_body=False)
        for record in scan:
            kind = transaction_type(record.sys_flag)
            if kind in _IN_QUEUE:
                self._put(record)
            if self._index is not None and kind is not TransactionType.ROLLBACK:
                self._index.put(record)
        self._commit()
        self.offset = scan.offset
        arrivals, self._arrivals = self._arrivals, []
        for arrival in arrivals:
            for listener in self.listeners:
                listener(arrival)
        return scan.problem

    def _put(self, record: RecordCursor) -> None:
        key = QueueKey(record.topic().decode(), record.queue_id)
        tags_code = record.tags_code()
        if record.sys_flag & INNER_BATCH:
            count = int(record.property(INNER_NUM) or 1)
            batches = self._queues.batch.obtain(*key)
            batches.put(
                BatchEntry(
                    LogOffset(record.log_offset),
                    record.size,
                    tags_code,
                    StoreTimeMs(record.store_time_ms),
                    QueueOffset(record.queue_offset),
                    count,
                )
            )
            self._touched[id(batches)] = batches
        else:
            count = 1
            if key.topic == SCHEDULE_TOPIC:
                tags_code = self._delivery_time(record)
            queue = self._queues.plain.obtain(*key)
            queue.put(record.log_offset, record.size, tags_code, record.queue_offset, record.store_time_ms)
            self._touched[id(queue)] = queue
        if self.listeners:
            self._arrivals.append(Arrival(key, QueueOffset(record.queue_offset + count), tags_code, StoreTimeMs(record.store_time_ms)))

    def _delivery_time(self, record: RecordCursor) -> int:
        """When a delayed message is due, which its entry has in the place of the tags code; a level above the last is the last."""
        text = record.property(DELAY) or ""
        level = min(int(text), len(self._delay_levels_ms)) if text.isascii() and text.isdigit() else 0
        return record.store_time_ms + self._delay_levels_ms[level - 1] if level else record.tags_code()

    def _commit(self) -> None:
        """Write what was put; a failure keeps it for the next call."""
        for queue in self._touched.values():
            queue.commit()
        self._touched.clear()
        if self._index is not None:
            self._index.commit()
