"""Dispatch: what is in the commit log comes into the consume queues and the index, and those who wait for messages hear of it.

One code path, live and in recovery: records are read from the log, from `offset` on. Queues and index pass over what they have, so
dispatching again from anywhere before is always right. Thread rule: the loop thread; whoever committed to the log calls `advance`.

Invariants: `offset` is where everything before is in queues and index, written though maybe not flushed; listeners hear of a message
after its entry can be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from orbitmq.common.errors import CorruptRecord
from orbitmq.message.flags import INNER_BATCH, TransactionType, transaction_type
from orbitmq.message.layout import SIZE_MIN
from orbitmq.message.properties import DELAY, INNER_NUM, decode_text
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.batch_consume_queue import BatchEntry
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch_turn import SCHEDULE_TOPIC as SCHEDULE_TOPIC
from orbitmq.store.dispatch_turn import Arrival as Arrival
from orbitmq.store.dispatch_turn import DispatchTurn
from orbitmq.store.entry_queue import EntryQueue
from orbitmq.store.index import Index
from orbitmq.store.log_batch import INNER_COUNT_MAX
from orbitmq.store.quarantine import BadBytes, Quarantine
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs

_IN_QUEUE = (TransactionType.NONE, TransactionType.COMMIT)
_DIGITS_MAX = 20
_STRIDE = 16 << 20  # bytes of the log between two writes of queues and index
log = logging.getLogger(__name__)


Listener = Callable[[Arrival], None]


class Dispatcher:
    """Follows the log."""

    def __init__(
        self,
        log: CommitLog,
        queues: Queues,
        index: Index | None,
        quarantine: Quarantine,
        *,
        delay_levels_ms: Sequence[int],
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.offset = LogOffset(0)
        self.store_time_ms = StoreTimeMs(0)  # of the last record that was dispatched
        self.problem: str | None = None  # why it does not go on
        self.listeners = list(listeners)
        self.is_awaited: Callable[[], bool] = lambda: True  # whether any listener waits for a message now: if none does, none hears of it
        self.bits_of: Callable[[str, RecordCursor], bytes] | None = None  # what filters say of a message of a topic, for ext files
        self._quarantine = quarantine
        self._log = log
        self._queues = queues
        self._index = index
        self._delay_levels_ms = tuple(delay_levels_ms)
        self._touched: dict[int, EntryQueue] = {}  # by identity: queues with entries that are not written yet
        self._arrivals: list[Arrival] = []
        self._turn = DispatchTurn(queues.plain.obtain, self._put_or_quarantine, index)

    def advance(self, end: LogOffset | None = None, progress: Callable[[LogOffset], None] | None = None) -> None:
        """Dispatch up to `end`, by default the log's committed end; `problem` says why it stopped before, if it had to.

        WriteFailed when queues or index could not be written: the next call goes on where this one began.
        """
        end = self._log.end_offset if end is None else end
        while self.offset < end and self.problem is None:
            self._advance_to(LogOffset(min(self.offset + _STRIDE, end)))
            if progress is not None:
                progress(self.offset)

    def _advance_to(self, stop: LogOffset) -> None:
        self._arrivals.clear()  # of a call that failed: they come again
        self._turn.begin(self._arrivals if self.listeners and self.is_awaited() else None)
        scan = self._log.scan(self.offset, stop, check_body=False, check_record=False, quarantine=self._quarantine, run=self._turn)
        scan.to_end()
        self._turn.hand_over()
        self._commit()
        self.offset = scan.offset
        if scan.records:
            self.store_time_ms = scan.store_time_ms
        if scan.problem is not None:
            self.problem = scan.problem
            log.error("dispatch_stopped problem=%s", scan.problem)
        arrivals, self._arrivals = self._arrivals, []
        for arrival in arrivals:
            for listener in self.listeners:
                listener(arrival)

    def refill(self, key: QueueKey, queue: EntryQueue) -> None:
        """Give a queue that lost entries those of the records that were dispatched already."""
        begin = LogOffset(max(queue.max_physical_offset, self._log.min_offset))
        listeners, self.listeners = self.listeners, []
        topic = key.topic.encode()
        try:
            for record in self._log.scan(begin, self.offset, check_body=False, check_record=False, quarantine=self._quarantine):
                if record.queue_id == key.queue_id and record.topic() == topic and transaction_type(record.sys_flag) in _IN_QUEUE:
                    self._put_or_quarantine(record)
            queue.commit()
        finally:
            self.listeners = listeners
        log.warning("queue_refilled topic=%s queue=%d from=%d entries_end=%d", *key, begin, queue.max_offset)

    def _put_or_quarantine(self, record: RecordCursor) -> None:
        """Put a record's entry; one that cannot be put, since a field without a checksum is damaged, costs that record alone."""
        try:
            self._put(record)
        except CorruptRecord as error:
            self._quarantine.add(BadBytes(LogOffset(record.log_offset), LogOffset(record.log_offset + record.size), str(error)))

    def _put(self, record: RecordCursor) -> None:
        topic = record.topic()
        key = QueueKey(decode_text(topic), record.queue_id)
        if key.topic.encode() != topic:
            raise CorruptRecord(f"its topic {topic!r} is no text")
        tags_code = record.tags_code()
        if record.sys_flag & INNER_BATCH:
            count = _number(record.property(INNER_NUM), INNER_COUNT_MAX) or 1
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
            missing = record.queue_offset - queue.next_offset
            if missing > 0 and missing * SIZE_MIN > record.log_offset - queue.max_physical_offset:
                raise CorruptRecord(
                    f"it says that it is message {record.queue_offset} of {key}: the log has no room for {missing} before it"
                )
            bits = self.bits_of(key.topic, record) if self.bits_of is not None and queue.ext is not None else b""
            queue.put(record.log_offset, record.size, tags_code, record.queue_offset, record.store_time_ms, bits)
            self._touched[id(queue)] = queue
        if self.listeners:
            self._arrivals.append(Arrival(key, QueueOffset(record.queue_offset + count), tags_code, StoreTimeMs(record.store_time_ms)))

    def _delivery_time(self, record: RecordCursor) -> int:
        """When a delayed message is due, which its entry has in the place of the tags code; a level above the last is the last."""
        level = _number(record.property(DELAY), len(self._delay_levels_ms))
        return record.store_time_ms + self._delay_levels_ms[level - 1] if level else record.tags_code()

    def _commit(self) -> None:
        """Write what was put; a failure keeps it for the next call."""
        for queue in self._touched.values():
            queue.commit()
        self._touched.clear()
        if self._index is not None:
            self._index.commit()


def _number(text: str | None, most: int) -> int:
    """The number that a property says, `most` if it is more than that; 0 when it says none."""
    return min(int(text[:_DIGITS_MAX]), most) if text is not None and text.isascii() and text.isdigit() else 0
