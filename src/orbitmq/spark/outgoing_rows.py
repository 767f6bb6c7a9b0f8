# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: rows of Arrow columns become the bodies of batches (SEND_BATCH_MESSAGE), without an object for any row.

Rows of one topic share batches; those with a sharding key share the batches of the queue that the key chooses. A row that cannot be part
of a batch is handed out by its number, to be sent alone. Knows neither producers nor brokers. The bytes are those that `Outbox` makes.

Invariants: what is for one queue comes out in the order of its rows. A row that cannot be sent raises, and says which row it is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import cython

from orbitmq.common.errors import MessageIllegal
from orbitmq.message import properties
from orbitmq.message.message_id import UniqueIds

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, copy, put16, put32, same, text_bytes
    from cython.cimports.orbitmq.message.tags import utf8_hash
    from cython.cimports.orbitmq.spark.arrow_texts import ArrowTexts, is_there
    from cython.cimports.orbitmq.spark.row_properties import RowProperties, write

    from orbitmq.spark.arrow_texts import ArrowRuns
else:
    from orbitmq.common.mem import address, copy, put16, put32, same, text_bytes
    from orbitmq.message.tags import utf8_hash
    from orbitmq.spark.arrow_texts import ArrowRuns, ArrowTexts, is_there
    from orbitmq.spark.row_properties import RowProperties, write

HEAD_SIZE = cython.declare(cython.Py_ssize_t, 20)  # of an item: its size, magic, checksum, flag, the body's size
ITEM_SIZE_MIN = cython.declare(cython.Py_ssize_t, 22)
ROOM_MIN = cython.declare(cython.Py_ssize_t, 1 << 10)
ANY_QUEUE = cython.declare(cython.Py_ssize_t, -1)


class Parcel(NamedTuple):
    """What goes out in one request: the body of a batch, or, without one, that row of the columns that were loaded last."""

    topic: str
    queue: int | None  # its place among the topic's; None for any
    body: bytes | None
    messages: int  # in it
    row: int


class RowRules(NamedTuple):
    """What applies to all rows of a task."""

    topic: str | None  # of all rows; None: each has its own
    batch_count_max: int
    batch_size_max: int
    body_size_max: int
    alone_from: int  # bodies of that many bytes are sent alone
    instance: str  # the namespace; empty without one
    drops_reserved: bool  # properties of RocketMQ's own among the user's are left out, not refused
    place: str  # where these rows are, for errors


class RowColumns(NamedTuple):
    """The columns of some rows; None for one that is not there. `is_alone` has a byte for each row, not 0 if it has to go alone."""

    size: int
    topic: ArrowTexts | None
    body: ArrowTexts
    keys: ArrowTexts | None
    key_runs: ArrowRuns | None
    tags: ArrowTexts | None
    properties: ArrowRuns | None
    sharding_key: ArrowTexts | None
    is_alone: Any


class OpenBatch:
    """A batch that is not full."""

    __slots__ = ("buffer", "count", "p", "queue", "size", "topic")

    p: Any

    def __init__(self, topic: str, queue: int) -> None:
        self.topic = topic
        self.queue = queue
        self.buffer = bytearray(ROOM_MIN)
        self.p = address(self.buffer)
        self.size = self.count = 0


class TopicBatches:
    """The batches of a topic: one for any queue, and one for each queue once a sharding key chooses one."""

    __slots__ = ("any_queue", "name", "queues", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.name = properties.decode_text(raw)
        self.any_queue = OpenBatch(self.name, ANY_QUEUE)
        self.queues: list[OpenBatch] = []

    def all(self) -> list[OpenBatch]:
        return [self.any_queue, *self.queues]


class OutgoingRows:
    """`load` columns, `encode` from row 0 until all are, `take` what is ready in between; at the end `take_rest`."""

    __slots__ = (
        "_alone",
        "_alone_from",
        "_alone_p",
        "_batch_count_max",
        "_batch_size_max",
        "_body",
        "_body_size_max",
        "_count",
        "_first_row",
        "_last",
        "_place",
        "_queue_count",
        "_ready",
        "_sharding_key",
        "_texts",
        "_topic",
        "_topics",
    )

    def __init__(self, rules: RowRules, ids: UniqueIds, queue_count: Callable[[str], int]) -> None:
        self._batch_count_max = rules.batch_count_max
        self._batch_size_max = rules.batch_size_max
        self._body_size_max = rules.body_size_max
        self._alone_from = rules.alone_from
        self._place = rules.place
        self._queue_count = queue_count
        self._texts = RowProperties(ids, rules.instance, drops_reserved=rules.drops_reserved)
        self._topics: dict[bytes, TopicBatches] = {}
        self._last: TopicBatches | None = None
        if rules.topic is not None:
            _enter_topic(self, rules.topic.encode())
        self._ready: list[Parcel] = []
        self._count = self._first_row = 0
        self._body: ArrowTexts | None = None
        self._topic: ArrowTexts | None = None
        self._sharding_key: ArrowTexts | None = None
        self._alone: Any = None

    def load(self, columns: RowColumns) -> None:
        """Let these be the next rows; those before are all encoded."""
        self._first_row += self._count
        self._count = columns.size
        self._topic = columns.topic
        self._body = columns.body
        self._sharding_key = columns.sharding_key
        self._alone = columns.is_alone
        if self._alone is not None:
            self._alone_p = address(self._alone)
        self._texts.load(columns.properties, columns.keys, columns.key_runs, columns.tags, columns.sharding_key)

    def encode(self, begin: cython.Py_ssize_t) -> int:
        """Encode rows from that one on until something is ready to go out, or all are encoded; where it stopped."""
        row: cython.Py_ssize_t = begin
        try:
            while row < self._count and not self._ready:
                _encode_row(self, row)
                row += 1
        except MessageIllegal as problem:
            raise self.refusal(row, problem) from problem
        return row

    def take(self) -> list[Parcel]:
        """What is ready."""
        ready, self._ready = self._ready, []
        return ready

    def take_rest(self) -> list[Parcel]:
        """What is ready, and every batch that is begun."""
        topic: TopicBatches
        for topic in self._topics.values():
            for batch in topic.all():
                _finish(self, batch)
        if self._topic is not None:  # there may be many, each with its memory
            self._topics.clear()
            self._last = None
        return self.take()

    @property
    def open_size(self) -> int:
        """How many bytes are in batches that are begun."""
        size: cython.Py_ssize_t = 0
        topic: TopicBatches
        batch: OpenBatch
        for topic in self._topics.values():
            for batch in topic.all():
                size += batch.size
        return size

    def refusal(self, row: int, why: Exception) -> MessageIllegal:
        """What to raise for one of the rows that were loaded last."""
        return MessageIllegal(f"row {self._first_row + row} {self._place} cannot be sent: {why}")


@cython.cfunc
def _encode_row(rows: OutgoingRows, row: cython.Py_ssize_t) -> cython.int:
    body: ArrowTexts = rows._body
    body_at: cython.Py_ssize_t = body.offsets[row]
    body_size: cython.Py_ssize_t = body.offsets[row + 1] - body_at
    if body_size == 0 or not is_there(body, row):
        raise MessageIllegal(f"its body is {'empty' if is_there(body, row) else 'null'}, and brokers take no message without one")
    if body_size > rows._body_size_max:
        raise MessageIllegal(f"its body has {body_size} bytes, and {rows._body_size_max} are allowed (option maxMessageSize)")
    topic: TopicBatches | None = rows._last if rows._topic is None else _topic_of(rows, row)
    batch: OpenBatch = _batch_of(rows, topic, row)
    if body_size >= rows._alone_from or (rows._alone is not None and rows._alone_p[row]):
        return _hand_out(rows, batch, row)
    texts: RowProperties = rows._texts
    write(texts, row)
    item_size: cython.Py_ssize_t = ITEM_SIZE_MIN + body_size + texts.size
    if item_size > rows._batch_size_max:
        return _hand_out(rows, batch, row)
    if batch.size + item_size > rows._batch_size_max:
        _finish(rows, batch)
    at: cython.Py_ssize_t = batch.size
    if at + item_size > len(batch.buffer):
        _make_room(batch, at + item_size, rows._batch_size_max)
    p: cython.p_uchar = batch.p
    put32(p, at, item_size)
    put32(p, at + 4, 0)
    put32(p, at + 8, 0)
    put32(p, at + 12, 0)
    put32(p, at + 16, body_size)
    at += HEAD_SIZE
    copy(p, at, body.data, body_at, body_size)
    at += body_size
    put16(p, at, texts.size)
    copy(p, at + 2, texts.p, 0, texts.size)
    batch.size += item_size
    batch.count += 1
    if batch.count == rows._batch_count_max:
        _finish(rows, batch)
    return 0


@cython.cfunc
def _hand_out(rows: OutgoingRows, batch: OpenBatch, row: cython.Py_ssize_t) -> cython.int:
    """Let a row go alone, behind what goes to its queue before it."""
    if batch.queue != ANY_QUEUE:
        _finish(rows, batch)
    rows._ready.append(Parcel(batch.topic, None if batch.queue == ANY_QUEUE else batch.queue, None, 1, row))
    return 0


@cython.cfunc
def _finish(rows: OutgoingRows, batch: OpenBatch) -> cython.int:
    """Let a batch go, if there is anything in it."""
    if batch.count:
        body: bytes = text_bytes(batch.p, 0, batch.size)
        rows._ready.append(Parcel(batch.topic, None if batch.queue == ANY_QUEUE else batch.queue, body, batch.count, 0))
        batch.size = batch.count = 0
    return 0


@cython.cfunc
def _make_room(batch: OpenBatch, size: cython.Py_ssize_t, size_max: cython.Py_ssize_t) -> cython.int:
    """Give a batch a larger buffer, in the end as large as it may become."""
    buffer: bytearray = bytearray(min(max(4 * len(batch.buffer), size), size_max))
    copy(address(buffer), 0, batch.p, 0, batch.size)
    batch.buffer = buffer
    batch.p = address(buffer)
    return 0


# -- where a row goes


@cython.cfunc
def _topic_of(rows: OutgoingRows, row: cython.Py_ssize_t) -> TopicBatches:
    column: ArrowTexts = rows._topic
    at: cython.Py_ssize_t = column.offsets[row]
    size: cython.Py_ssize_t = column.offsets[row + 1] - at
    last: TopicBatches | None = rows._last
    if size == 0 or not is_there(column, row):
        raise MessageIllegal("its topic is null or empty; name one, or give the option topic for all rows")
    if last is not None and len(last.raw) == size and same(column.data, at, last.raw, size):
        return last
    return _enter_topic(rows, text_bytes(column.data, at, size))


@cython.cfunc
def _enter_topic(rows: OutgoingRows, raw: bytes) -> TopicBatches:
    topic: TopicBatches | None = rows._topics.get(raw)
    if topic is None:
        topic = rows._topics[raw] = TopicBatches(raw)
    rows._last = topic
    return topic


@cython.cfunc
def _batch_of(rows: OutgoingRows, topic: TopicBatches, row: cython.Py_ssize_t) -> OpenBatch:
    """The batch of any queue, or that of the queue that the sharding key chooses, as `by_sharding_key` does."""
    column: ArrowTexts | None = rows._sharding_key
    if column is None or column.offsets[row] == column.offsets[row + 1] or not is_there(column, row):
        return topic.any_queue
    if not topic.queues:
        topic.queues = [OpenBatch(topic.name, queue) for queue in range(rows._queue_count(topic.name))]
    key_hash: cython.longlong = utf8_hash(column.data, column.offsets[row], column.offsets[row + 1])
    place: cython.Py_ssize_t = (key_hash if key_hash >= 0 else -key_hash) % len(topic.queues)
    return topic.queues[place]
