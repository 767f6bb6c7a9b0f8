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
_LOOK_AHEAD = 64 << 20  # bytes of the log in which the record after a gap is looked for
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
        self._forget_put()
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
            if record.queue_offset > queue.next_offset:
                self._check_gap(record, key, record.queue_offset - queue.next_offset, LogOffset(queue.max_physical_offset))
            bits = self.bits_of(key.topic, record) if self.bits_of is not None and queue.ext is not None else b""
            queue.put(record.log_offset, record.size, tags_code, record.queue_offset, record.store_time_ms, bits)
            self._touched[id(queue)] = queue
        if self.listeners:
            self._arrivals.append(Arrival(key, QueueOffset(record.queue_offset + count), tags_code, StoreTimeMs(record.store_time_ms)))

    def _check_gap(self, record: RecordCursor, key: QueueKey, missing: int, physical_end: LogOffset) -> None:
        """Refuse a record whose queue offset is damaged: the log has no room for those before it, or the next of the queue disagrees."""
        number, end = record.queue_offset, LogOffset(record.log_offset + record.size)
        if missing * SIZE_MIN > record.log_offset - physical_end:
            raise CorruptRecord(f"it says that it is message {number} of {key}: the log has no room for {missing} before it")
        topic = key.topic.encode()
        for each in self._log.scan(end, LogOffset(end + _LOOK_AHEAD), check_body=False, check_record=False):
            if each.queue_id == key.queue_id and each.topic() == topic and transaction_type(each.sys_flag) in _IN_QUEUE:
                if each.queue_offset <= number:
                    raise CorruptRecord(f"it says that it is message {number} of {key}: so does a later one, or of one before")
                return

    def _delivery_time(self, record: RecordCursor) -> int:
        """When a delayed message is due, which its entry has in the place of the tags code; a level above the last is the last."""
        level = _number(record.property(DELAY), len(self._delay_levels_ms))
        return record.store_time_ms + self._delay_levels_ms[level - 1] if level else record.tags_code()

    def _forget_put(self) -> None:
        """Forget the entries of a call that failed: they are put again."""
        for queue in self._touched.values():
            queue.forget_pending()
        self._touched.clear()

    def _commit(self) -> None:
        """Write what was put; after a failure the records have to be put again."""
        for queue in self._touched.values():
            queue.commit()
        self._touched.clear()
        if self._index is not None:
            self._index.commit()


def _number(text: str | None, most: int) -> int:
    """The number that a property says, `most` if it is more than that; 0 when it says none."""
    return min(int(text[:_DIGITS_MAX]), most) if text is not None and text.isascii() and text.isdigit() else 0
