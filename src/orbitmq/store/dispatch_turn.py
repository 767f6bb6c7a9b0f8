# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: a turn of dispatch: goes over records, and gathers what each queue gets until all of them can have it at once.

No object is made for a record. A record of a plain message, in order, becomes an entry of its queue's run and goes straight to the
writer of the index. Whatever is not so (a batch, a delayed message, a queue with ext files or with a gap, a damaged name) is for
`other`, the general way, at the record's place in the order. Knows no files.

Invariant: until `hand_over`, the entries of a run are known to nobody; a turn that fails is forgotten, and the records come again.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import cython

from orbitmq.common.errors import CorruptRecord
from orbitmq.message.flags import INNER_BATCH, TransactionType
from orbitmq.message.properties import decode_text
from orbitmq.store.consume_queue import ENTRY_SIZE, ConsumeQueue
from orbitmq.store.index import Index
from orbitmq.store.types import QueueKey, QueueOffset, StoreTimeMs

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, put32, put64, same, text_bytes
    from cython.cimports.orbitmq.message.record_read import RecordCursor
    from cython.cimports.orbitmq.message.tags import ascii_hash
    from cython.cimports.orbitmq.store.index_writer import IndexWriter, put_keys
    from cython.cimports.orbitmq.store.record_run import RecordRun
else:
    from orbitmq.common.mem import address, put32, put64, same, text_bytes
    from orbitmq.message.record_read import RecordCursor
    from orbitmq.message.tags import ascii_hash
    from orbitmq.store.index_writer import IndexWriter, put_keys
    from orbitmq.store.record_run import RecordRun

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_TRANSACTION_BITS = cython.declare(cython.int, TransactionType.ROLLBACK)
_COMMIT = cython.declare(cython.int, TransactionType.COMMIT)
_ROLLBACK = cython.declare(cython.int, TransactionType.ROLLBACK)
_INNER_BATCH = cython.declare(cython.int, INNER_BATCH)
_ENTRY_SIZE = cython.declare(cython.Py_ssize_t, ENTRY_SIZE)
_RECENT = cython.declare(cython.Py_ssize_t, 64)  # places for runs that are found without a look into the table: a power of 2
_RUNS_MAX = cython.declare(cython.Py_ssize_t, 4096)  # that are kept for the turns to come
_ENTRIES_MIN = cython.declare(cython.Py_ssize_t, 16)
_ALL_PUT = cython.declare(cython.int, -1)


class Arrival(NamedTuple):
    """A message that can be read now."""

    queue: QueueKey
    next_offset: QueueOffset  # behind the message
    tags_code: int
    store_time_ms: StoreTimeMs


class QueueRun:
    """What one queue gets in turn number `turn`: `used` bytes of `entries`. `next_offset` and `physical_end` are behind the last."""

    __slots__ = (
        "entries", "is_plain", "key", "next_offset", "p", "physical_end", "queue", "queue_id", "topic", "topic_size", "turn", "used"
    )  # fmt: skip

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
    turn: int
    used: int


class DispatchTurn(RecordRun):  # type: ignore[misc]  # to mypy it is whatever Cython says
    """From `begin` to `hand_over`."""

    __slots__ = ("_arrivals", "_index", "_number", "_obtain", "_other", "_recent", "_runs", "_touched", "_writer")

    def __init__(self, obtain: Callable[[str, int], ConsumeQueue], other: Callable[[RecordCursor], None], index: Index | None) -> None:
        super().__init__()
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
        """Forget the turn before; messages that arrive are added to `arrivals`."""
        super().__init__()  # the numbers of a run
        self._arrivals = arrivals
        self._writer = None if self._index is None else self._index.writer
        self._number += 1
        self._touched.clear()
        if len(self._runs) > _RUNS_MAX:
            self._runs.clear()
            self._recent = [None] * _RECENT

    def hand_over(self) -> None:
        """Have the queues write what they get; WriteFailed when one cannot: then the turn has to be made again."""
        run: QueueRun
        for run in self._touched:
            _give(run)

    def take(self, record: RecordCursor, p: cython.p_const_uchar) -> cython.int:
        """Put the record into its queue and into the index."""
        kind: cython.int = record.sys_flag & _TRANSACTION_BITS
        if kind == 0 or kind == _COMMIT:
            if record.sys_flag & _INNER_BATCH:
                self._other(record)
            else:
                _put(self, record, p)
        if self._index is not None and kind != _ROLLBACK:
            writer: IndexWriter | None = self._writer
            if writer is not None and record.log_offset < writer.end_offset:
                return 0  # it was indexed before
            if writer is None or record.log_offset == writer.end_offset or put_keys(writer, record, p, 0) != _ALL_PUT:
                self._index.put(record)  # some of its keys are in, or they go to the next file
                self._writer = self._index.writer
        return 0


@cython.cfunc
def _put(turn: DispatchTurn, record: RecordCursor, p: cython.p_const_uchar) -> cython.int:
    """Add the entry of the record to the run of its queue."""
    topic_end: cython.Py_ssize_t = record.topic_at + record.topic_size
    place: cython.Py_ssize_t = ascii_hash(record.queue_id, p, record.topic_at, topic_end) & (_RECENT - 1)
    run: QueueRun | None = turn._recent[place]
    if (
        run is None
        or run.queue_id != record.queue_id
        or run.topic_size != record.topic_size
        or not same(p, record.topic_at, run.topic, run.topic_size)
    ):
        run = turn._recent[place] = _run_of(turn, text_bytes(p, record.topic_at, record.topic_size), record.queue_id)
    if run.turn != turn._number:
        _begin(turn, run)
    if not run.is_plain:
        turn._other(record)
        return 0
    is_new: cython.bint = record.log_offset + record.size > run.physical_end
    if is_new and record.queue_offset > run.next_offset:
        _give(run)
        turn._other(record)
        _follow(run)
        return 0
    is_next: cython.bint = is_new and record.queue_offset == run.next_offset
    if not is_next and turn._arrivals is None:
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
    if turn._arrivals is not None:
        turn._arrivals.append(tuple.__new__(Arrival, (run.key, record.queue_offset + 1, tags_code, record.store_time_ms)))
    return 0


@cython.cfunc
def _run_of(turn: DispatchTurn, topic: bytes, queue_id: cython.int) -> QueueRun:
    """The run of a queue, a new one when none is kept."""
    table_key = (topic, queue_id)
    run: QueueRun | None = turn._runs.get(table_key)
    if run is None:
        run = QueueRun.__new__(QueueRun)
        run.topic = topic
        run.topic_size = len(topic)
        run.queue_id = queue_id
        run.key = QueueKey(decode_text(topic), queue_id)
        run.entries = bytearray(_ENTRIES_MIN * _ENTRY_SIZE)
        run.p = address(run.entries)
        run.turn = run.used = 0
        turn._runs[table_key] = run
    return run


@cython.cfunc
def _begin(turn: DispatchTurn, run: QueueRun) -> cython.int:
    """Begin an empty run behind what the queue has; it may be another queue than before, of a topic that was deleted and made again."""
    run.queue = None
    run.is_plain = False
    if run.key.topic != SCHEDULE_TOPIC and run.key.topic.encode() == run.topic:  # another topic may read the same if it is malformed
        try:
            run.queue = turn._obtain(run.key.topic, run.queue_id)
            run.is_plain = run.queue.ext is None
        except CorruptRecord:  # no queue can have that name: `other` says so
            pass
    run.turn = turn._number
    run.used = 0
    if run.is_plain:
        _follow(run)
        turn._touched.append(run)
    return 0


@cython.cfunc
def _give(run: QueueRun) -> cython.int:
    """Give the queue its run, which is empty then."""
    if run.used:
        run.queue.write_run(run.entries[: run.used], run.next_offset - run.used // _ENTRY_SIZE, run.physical_end)
        run.used = 0
    return 0


@cython.cfunc
def _follow(run: QueueRun) -> cython.int:
    """Go on where the queue ends, with all that was put."""
    run.next_offset = run.queue.next_offset
    run.physical_end = run.queue.max_physical_offset
    return 0
