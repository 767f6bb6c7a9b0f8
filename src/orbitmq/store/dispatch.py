"""Dispatch: adds the records of the commit log to the consume queues and the index, and notifies
the listeners that wait for messages.

One code path, live and in recovery: records are read from the log, from `offset` on. Queues and
index skip what they have, so dispatching again from any earlier offset is always right. Thread
rule: the loop thread; the caller that committed to the log calls `advance`.

Invariants: everything before `offset` is in queues and index, written though maybe not flushed;
listeners are notified of a message after its entry can be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from orbitmq.common.errors import CorruptRecordError
from orbitmq.message.flags import INNER_BATCH, TransactionType, transaction_type
from orbitmq.message.layout import SIZE_MIN
from orbitmq.message.properties import DELAY, INNER_NUM, decode_text
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.batch_consume_queue import BatchEntry
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch_batch import SCHEDULE_TOPIC as SCHEDULE_TOPIC
from orbitmq.store.dispatch_batch import Arrival as Arrival
from orbitmq.store.dispatch_batch import DispatchBatch
from orbitmq.store.entry_queue import EntryQueue
from orbitmq.store.index import Index
from orbitmq.store.log_batch import INNER_COUNT_MAX
from orbitmq.store.quarantine import BadBytes, Quarantine
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs

_IN_QUEUE = (TransactionType.NONE, TransactionType.COMMIT)
_DIGITS_MAX = 20
_STRIDE = 16 << 20  # bytes of the log between two writes of queues and index
_LOOK_AHEAD = 64 << 20  # bytes of the log searched for the queue's next record after a gap

# Precomputed filter results of a topic's message, for ext files.
FilterBits: TypeAlias = Callable[[str, RecordCursor], bytes]

log = logging.getLogger(__name__)


class _Listener(NamedTuple):
    arrived: Callable[[Arrival], object]
    is_awaited: Callable[[], bool]


def _always() -> bool:
    return True


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
        filter_bits: FilterBits | None = None,
    ) -> None:
        self.offset = LogOffset(0)
        self.store_time_ms = StoreTimeMs(0)  # of the last dispatched record
        self.problem: str | None = None  # why dispatch stopped
        self._listeners: list[_Listener] = []
        self._filter_bits = filter_bits
        self._quarantine = quarantine
        self._log = log
        self._queues = queues
        self._index = index
        self._delay_levels_ms = tuple(delay_levels_ms)
        self._touched: dict[int, EntryQueue] = {}  # by id(): queues with pending entries
        self._arrivals: list[Arrival] = []
        self._batch = DispatchBatch(
            queues.plain.obtain, self._put_or_quarantine, index, quarantine.found
        )

    def add_listener(
        self, arrived: Callable[[Arrival], object], is_awaited: Callable[[], bool] = _always
    ) -> None:
        """Have a listener called for each message; not while no listener awaits one."""
        self._listeners.append(_Listener(arrived, is_awaited))

    def advance(
        self, end: LogOffset | None = None, progress: Callable[[LogOffset], None] | None = None
    ) -> None:
        """Dispatch up to `end`, by default the log's committed end; `problem` says why it stopped
        early.

        WriteFailedError if queues or index could not be written: the next call resumes where this
        one began.
        """
        end = self._log.end_offset if end is None else end
        while self.offset < end and self.problem is None:
            self._advance_to(LogOffset(min(self.offset + _STRIDE, end)))
            if progress is not None:
                progress(self.offset)

    def _advance_to(self, stop: LogOffset) -> None:
        self._arrivals.clear()  # of a failed call: they are dispatched again
        self._forget_put()
        self._batch.begin(self._arrivals if self._is_awaited() else None)
        scan = self._log.scan(
            self.offset,
            stop,
            check_body=False,
            check_record=False,
            quarantine=self._quarantine,
            scanner=self._batch,
        )
        scan.to_end()
        self._batch.write_runs()
        self._commit()
        self.offset = scan.offset
        if scan.records:
            self.store_time_ms = scan.store_time_ms
        if scan.problem is not None:
            self.problem = scan.problem
            log.error("dispatch_stopped problem=%s", scan.problem)
        arrivals, self._arrivals = self._arrivals, []
        for arrival in arrivals:
            for listener in self._listeners:
                listener.arrived(arrival)

    def _is_awaited(self) -> bool:
        return any(listener.is_awaited() for listener in self._listeners)

    def _put_or_quarantine(self, record: RecordCursor) -> None:
        """Put a record's entry; a record with a corrupt field that no checksum covers is
        quarantined alone.
        """
        try:
            self._put(record)
        except CorruptRecordError as error:
            self._quarantine.add(
                BadBytes(
                    LogOffset(record.log_offset),
                    LogOffset(record.log_offset + record.size),
                    str(error),
                )
            )

    def _put(self, record: RecordCursor) -> None:
        topic = record.topic()
        key = QueueKey(decode_text(topic), record.queue_id)
        if key.topic.encode() != topic:
            raise CorruptRecordError(f"its topic {topic!r} is not valid UTF-8")
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
                self._check_gap(
                    record,
                    key,
                    record.queue_offset - queue.next_offset,
                    LogOffset(queue.max_physical_offset),
                )
            bits = (
                self._filter_bits(key.topic, record)
                if self._filter_bits is not None and queue.ext is not None
                else b""
            )
            queue.put(
                record.log_offset,
                record.size,
                tags_code,
                record.queue_offset,
                record.store_time_ms,
                bits,
            )
            self._touched[id(queue)] = queue
        if self._listeners:
            self._arrivals.append(
                Arrival(
                    key,
                    QueueOffset(record.queue_offset + count),
                    tags_code,
                    StoreTimeMs(record.store_time_ms),
                )
            )

    def _check_gap(
        self, record: RecordCursor, key: QueueKey, missing: int, physical_end: LogOffset
    ) -> None:
        """Refuse a record with a corrupt queue offset: the log has no room for the messages before
        it, or the queue's next record contradicts it.
        """
        number, end = record.queue_offset, LogOffset(record.log_offset + record.size)
        if missing * SIZE_MIN > record.log_offset - physical_end:
            raise CorruptRecordError(
                f"it claims to be message {number} of {key}: the log has no room for {missing}"
                " before it"
            )
        topic = key.topic.encode()
        for each in self._log.scan(
            end, LogOffset(end + _LOOK_AHEAD), check_body=False, check_record=False
        ):
            if (
                each.queue_id == key.queue_id
                and each.topic() == topic
                and transaction_type(each.sys_flag) in _IN_QUEUE
            ):
                if each.queue_offset <= number:
                    raise CorruptRecordError(
                        f"it claims to be message {number} of {key}: a later record claims this"
                        " number or a lower one"
                    )
                return

    def _delivery_time(self, record: RecordCursor) -> int:
        """Return when a delayed message is due, which its entry holds instead of the tags code; a
        level above the last counts as the last.
        """
        level = _number(record.property(DELAY), len(self._delay_levels_ms))
        return (
            record.store_time_ms + self._delay_levels_ms[level - 1] if level else record.tags_code()
        )

    def _forget_put(self) -> None:
        """Drop the entries of a failed call: they are put again."""
        for queue in self._touched.values():
            queue.forget_pending()
        self._touched.clear()

    def _commit(self) -> None:
        """Write the put entries; after a failure the records must be put again."""
        for queue in self._touched.values():
            queue.commit()
        self._touched.clear()
        if self._index is not None:
            self._index.commit()


def _number(text: str | None, limit: int) -> int:
    """Return the property's number, at most `limit`; 0 if it has none."""
    return (
        min(int(text[:_DIGITS_MAX]), limit)
        if text is not None and text.isascii() and text.isdigit()
        else 0
    )
