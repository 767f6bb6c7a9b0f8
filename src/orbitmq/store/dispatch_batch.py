# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: one batch of dispatch: scans records and collects each queue's entries, to write them
together.

No object is created per record. A plain message in order becomes an entry in its queue's run and
goes straight to the index writer. Everything else (a batch, a delayed message, a queue with ext
files or with a gap, a corrupt name) goes to `other`, the general path, at the record's place in the
order. Knows no files.

Invariant: until `write_runs`, the entries of a run are invisible; a failed batch is dropped, and
its records are dispatched again.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import cython

from orbitmq.common.errors import CorruptRecordError
from orbitmq.message.flags import INNER_BATCH, TransactionType
from orbitmq.message.properties import decode_text
from orbitmq.store.consume_queue import ENTRY_SIZE, ConsumeQueue
from orbitmq.store.index import Index
from orbitmq.store.quarantine import BadBytes
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, put32, put64, same, text_bytes
    from cython.cimports.orbitmq.message.record_read import RecordCursor
    from cython.cimports.orbitmq.message.tags import ascii_hash
    from cython.cimports.orbitmq.store.index_writer import IndexWriter, put_keys
    from cython.cimports.orbitmq.store.record_scanner import RecordScanner
else:
    from orbitmq.common.mem import address, put32, put64, same, text_bytes
    from orbitmq.message.record_read import RecordCursor
    from orbitmq.message.tags import ascii_hash
    from orbitmq.store.index_writer import IndexWriter, put_keys
    from orbitmq.store.record_scanner import RecordScanner

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_TRANSACTION_BITS = cython.declare(cython.int, TransactionType.ROLLBACK)
_COMMIT = cython.declare(cython.int, TransactionType.COMMIT)
_ROLLBACK = cython.declare(cython.int, TransactionType.ROLLBACK)
_INNER_BATCH = cython.declare(cython.int, INNER_BATCH)
_ENTRY_SIZE = cython.declare(cython.Py_ssize_t, ENTRY_SIZE)
# Slots of the direct-mapped cache of runs: a power of 2.
_RECENT = cython.declare(cython.Py_ssize_t, 64)
_RUNS_MAX = cython.declare(cython.Py_ssize_t, 4096)  # kept for later batches
_ENTRIES_MIN = cython.declare(cython.Py_ssize_t, 16)
_ALL_PUT = cython.declare(cython.int, -1)


class Arrival(NamedTuple):
    """A message that can be read from now on."""

    queue: QueueKey
    next_offset: QueueOffset  # after the message
    tags_code: int
    store_time_ms: StoreTimeMs


class QueueRun:
    """The entries of one queue in batch number `batch_number`: `used` bytes of `entries`.
    `next_offset` and `physical_end` are after the last one.
    """

    batch_number: int
    entries: bytearray
    is_plain: bool
    key: QueueKey
    next_offset: int
    p: Any
    physical_end: int
    queue: Any
    queue_id: int
    topic: bytes
    topic_size: int
    used: int


class DispatchBatch(RecordScanner):  # type: ignore[misc]  # untyped to mypy
    """The records dispatched from `begin` to `write_runs`."""

    def __init__(
        self,
        obtain: Callable[[str, int], ConsumeQueue],
        other: Callable[[RecordCursor], None],
        index: Index | None,
        bad: dict[LogOffset, BadBytes],
    ) -> None:
        super().__init__()
        self._bad = bad
        self._obtain = obtain
        self._other = other
        self._index = index
        self._writer: IndexWriter | None = None
        self._arrivals: list[Arrival] | None = None
        self._number = 0
        self._runs: dict[tuple[bytes, int], QueueRun] = {}
        self._recent: list[QueueRun | None] = [None] * _RECENT
        self._touched: list[QueueRun] = []

    def begin(self, arrivals: list[Arrival] | None) -> None:
        """Start a new batch; arriving messages are added to `arrivals`."""
        super().__init__()  # reset the scanner
        self._arrivals = arrivals
        self._writer = None if self._index is None else self._index.writer
        self._number += 1
        self._touched.clear()
        if len(self._runs) > _RUNS_MAX:
            self._runs.clear()
            self._recent = [None] * _RECENT

    def write_runs(self) -> None:
        """Write the runs to their queues; WriteFailedError if one cannot: then the batch must be
        repeated.
        """
        run: QueueRun
        for run in self._touched:
            _write_run(run)

    def take(self, record: RecordCursor, p: cython.p_const_uchar) -> cython.int:
        """Put the record into its queue and the index, unless it is quarantined: its fields are not
        trusted.
        """
        if self._bad and record.log_offset in self._bad:
            return 0
        kind: cython.int = record.sys_flag & _TRANSACTION_BITS
        if kind == 0 or kind == _COMMIT:
            if record.sys_flag & _INNER_BATCH:
                self._other(record)
            else:
                _put(self, record, p)
        if self._index is not None and kind != _ROLLBACK:
            writer: IndexWriter | None = self._writer
            if writer is not None and record.log_offset < writer.end_offset:
                return 0  # already indexed
            if (
                writer is None
                or record.log_offset == writer.end_offset
                or put_keys(writer, record, p, 0) != _ALL_PUT
            ):
                self._index.put(record)  # some keys are in already, or need the next file
                self._writer = self._index.writer
        return 0


@cython.cfunc
def _put(batch: DispatchBatch, record: RecordCursor, p: cython.p_const_uchar) -> cython.int:
    """Add the entry of the record to the run of its queue."""
    topic_end: cython.Py_ssize_t = record.topic_at + record.topic_size
    place: cython.Py_ssize_t = ascii_hash(record.queue_id, p, record.topic_at, topic_end) & (
        _RECENT - 1
    )
    run: QueueRun | None = batch._recent[place]
    if (
        run is None
        or run.queue_id != record.queue_id
        or run.topic_size != record.topic_size
        or not same(p, record.topic_at, run.topic, run.topic_size)
    ):
        run = batch._recent[place] = _run_of(
            batch, text_bytes(p, record.topic_at, record.topic_size), record.queue_id
        )
    if run.batch_number != batch._number:
        _begin(batch, run)
    if not run.is_plain:
        batch._other(record)
        return 0
    is_new: cython.bint = record.log_offset + record.size > run.physical_end
    if is_new and record.queue_offset != run.next_offset:
        _write_run(run)
        batch._other(record)
        _follow(run)
        return 0
    is_next: cython.bint = is_new and record.queue_offset == run.next_offset
    if not is_next and batch._arrivals is None:
        return 0
    tags_code: cython.longlong = record.tags_code()
    if is_next:
        if run.used == len(run.entries):
            run.entries += bytes(run.used)
            run.p = address(run.entries)
        put64(run.p, run.used, record.log_offset)
        put32(run.p, run.used + 8, record.size)
        put64(run.p, run.used + 12, tags_code)
        run.used += _ENTRY_SIZE
        run.next_offset += 1
        run.physical_end = record.log_offset + record.size
    if batch._arrivals is not None:
        batch._arrivals.append(
            tuple.__new__(
                Arrival, (run.key, record.queue_offset + 1, tags_code, record.store_time_ms)
            )
        )
    return 0


@cython.cfunc
def _run_of(batch: DispatchBatch, topic: bytes, queue_id: cython.int) -> QueueRun:
    """Return the run of a queue, a new one if there is none."""
    table_key = (topic, queue_id)
    run: QueueRun | None = batch._runs.get(table_key)
    if run is None:
        run = QueueRun.__new__(QueueRun)
        run.topic = topic
        run.topic_size = len(topic)
        run.queue_id = queue_id
        run.key = QueueKey(decode_text(topic), queue_id)
        run.entries = bytearray(_ENTRIES_MIN * _ENTRY_SIZE)
        run.p = address(run.entries)
        run.batch_number = run.used = 0
        batch._runs[table_key] = run
    return run


@cython.cfunc
def _begin(batch: DispatchBatch, run: QueueRun) -> cython.int:
    """Start an empty run after the queue's last entry; the queue may be a new one, of a topic that
    was deleted and recreated.
    """
    run.queue = None
    run.is_plain = False
    # A malformed topic may decode to the name of another one.
    if run.key.topic != SCHEDULE_TOPIC and run.key.topic.encode() == run.topic:
        try:
            run.queue = batch._obtain(run.key.topic, run.queue_id)
            run.is_plain = run.queue.ext is None
        except CorruptRecordError:  # no queue can have that name: `other` reports it
            pass
    run.batch_number = batch._number
    run.used = 0
    if run.is_plain:
        _follow(run)
        batch._touched.append(run)
    return 0


@cython.cfunc
def _write_run(run: QueueRun) -> cython.int:
    """Write the run to its queue and empty it."""
    if run.used:
        run.queue.write_run(
            run.entries[: run.used], run.next_offset - run.used // _ENTRY_SIZE, run.physical_end
        )
        run.used = 0
    return 0


@cython.cfunc
def _follow(run: QueueRun) -> cython.int:
    """Continue where the queue ends."""
    run.next_offset = run.queue.next_offset
    run.physical_end = run.queue.max_physical_offset
    return 0
