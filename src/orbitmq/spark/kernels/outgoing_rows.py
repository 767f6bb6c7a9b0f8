# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: encodes rows of Arrow columns into bodies of batch send requests, without an object per
row.

Rows of a topic share batches; rows with a sharding key share the batches of the queue that the key
selects. A row that cannot be part of a batch is returned by its number, to be sent alone. Knows
neither producers nor brokers. The bytes are the same as those of `Outbox`.

Invariants: messages for one queue come out in row order. A row that cannot be sent raises an error
that names the row.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import cython

from orbitmq.common.errors import InvalidMessageError
from orbitmq.message import properties
from orbitmq.message.message_id import UniqueIds

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import address, copy, put16, put32, same, text_bytes
    from cython.cimports.orbitmq.message.tags import utf8_hash
    from cython.cimports.orbitmq.spark.kernels.arrow_texts import ArrowTexts, is_valid
    from cython.cimports.orbitmq.spark.kernels.row_properties import RowProperties, write

    from orbitmq.spark.kernels.arrow_texts import ArrowLists
else:
    from orbitmq.common.mem import address, copy, put16, put32, same, text_bytes
    from orbitmq.message.tags import utf8_hash
    from orbitmq.spark.kernels.arrow_texts import ArrowLists, ArrowTexts, is_valid
    from orbitmq.spark.kernels.row_properties import RowProperties, write

# The size, magic, checksum, flag and body size of an item.
HEAD_SIZE = cython.declare(cython.Py_ssize_t, 20)
ITEM_SIZE_MIN = cython.declare(cython.Py_ssize_t, 22)
ROOM_MIN = cython.declare(cython.Py_ssize_t, 1 << 10)
ANY_QUEUE = cython.declare(cython.Py_ssize_t, -1)


class OutgoingRequest(NamedTuple):
    """One request: the body of a batch or, if None, a row of the loaded columns to be sent
    alone.
    """

    topic: str
    queue: int | None  # index among the topic's queues; None for any
    body: bytes | None
    messages: int
    row: int


class EncodingRules(NamedTuple):
    """Settings that apply to all rows of a task."""

    topic: str | None  # of all rows; None: each has its own
    batch_count_max: int
    batch_size_max: int
    body_size_max: int
    alone_from: int  # body size from which a row is sent alone
    instance: str  # the namespace; empty without one
    drops_reserved: bool  # drop reserved properties instead of refusing them
    place: str  # describes the task in errors


class RowColumns(NamedTuple):
    """The columns of some rows, None for a missing one. `is_alone` has one byte per row, not 0 if
    the row must be sent alone.
    """

    size: int
    topic: ArrowTexts | None
    body: ArrowTexts
    keys: ArrowTexts | None
    key_lists: ArrowLists | None
    tags: ArrowTexts | None
    properties: ArrowLists | None
    sharding_key: ArrowTexts | None
    is_alone: Any


class OpenBatch:
    """A batch that is not full yet."""

    p: Any

    def __init__(self, topic: str, queue: int) -> None:
        self.topic = topic
        self.queue = queue
        self.buffer = bytearray(ROOM_MIN)
        self.p = address(self.buffer)
        self.size = self.count = 0


class TopicBatches:
    """The open batches of a topic: one for any queue, and one per queue once a sharding key selects
    one.
    """

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.name = properties.decode_text(raw)
        self.any_queue = OpenBatch(self.name, ANY_QUEUE)
        self.queues: list[OpenBatch] = []

    def all(self) -> list[OpenBatch]:
        """Return all open batches."""
        return [self.any_queue, *self.queues]


class BatchEncoder:
    """Encodes rows: `load` columns, `encode` from row 0 to the end, `take` finished requests in
    between, and `take_rest` at the end.
    """

    def __init__(
        self, rules: EncodingRules, ids: UniqueIds, queue_count: Callable[[str], int]
    ) -> None:
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
        self._ready: list[OutgoingRequest] = []
        self._count = self._first_row = 0
        self._body: ArrowTexts | None = None
        self._topic: ArrowTexts | None = None
        self._sharding_key: ArrowTexts | None = None
        self._alone: Any = None

    def load(self, columns: RowColumns) -> None:
        """Load the next rows; all earlier ones must be encoded."""
        self._first_row += self._count
        self._count = columns.size
        self._topic = columns.topic
        self._body = columns.body
        self._sharding_key = columns.sharding_key
        self._alone = columns.is_alone
        if self._alone is not None:
            self._alone_p = address(self._alone)
        self._texts.load(
            columns.properties, columns.keys, columns.key_lists, columns.tags, columns.sharding_key
        )

    def encode(self, begin: cython.Py_ssize_t) -> int:
        """Encode rows from `begin` until a request is ready or all rows are encoded; return the
        next row.
        """
        row: cython.Py_ssize_t = begin
        try:
            while row < self._count and not self._ready:
                _encode_row(self, row)
                row += 1
        except InvalidMessageError as problem:
            raise self.refusal(row, problem) from problem
        return row

    def take(self) -> list[OutgoingRequest]:
        """Return the finished requests."""
        ready, self._ready = self._ready, []
        return ready

    def take_rest(self) -> list[OutgoingRequest]:
        """Return the finished requests and all open batches."""
        topic: TopicBatches
        for topic in self._topics.values():
            for batch in topic.all():
                _close_batch(self, batch)
        if self._topic is not None:  # there may be many topics; free their buffers
            self._topics.clear()
            self._last = None
        return self.take()

    @property
    def open_size(self) -> int:
        """The number of bytes in open batches."""
        size: cython.Py_ssize_t = 0
        topic: TopicBatches
        batch: OpenBatch
        for topic in self._topics.values():
            for batch in topic.all():
                size += batch.size
        return size

    def refusal(self, row: int, why: Exception) -> InvalidMessageError:
        """Return the error to raise for one of the loaded rows."""
        return InvalidMessageError(
            f"row {self._first_row + row} {self._place} cannot be sent: {why}"
        )


@cython.cfunc
def _encode_row(rows: BatchEncoder, row: cython.Py_ssize_t) -> cython.int:
    body: ArrowTexts = rows._body
    body_at: cython.Py_ssize_t = body.offsets[row]
    body_size: cython.Py_ssize_t = body.offsets[row + 1] - body_at
    if body_size == 0 or not is_valid(body, row):
        raise InvalidMessageError(
            f"its body is {'empty' if is_valid(body, row) else 'null'}, but a message needs a body"
        )
    if body_size > rows._body_size_max:
        raise InvalidMessageError(
            f"its body has {body_size} bytes, but only {rows._body_size_max} are allowed (option"
            " maxMessageSize)"
        )
    topic: TopicBatches | None = rows._last if rows._topic is None else _topic_of(rows, row)
    batch: OpenBatch = _batch_of(rows, topic, row)
    if body_size >= rows._alone_from or (rows._alone is not None and rows._alone_p[row]):
        return _send_alone(rows, batch, row)
    texts: RowProperties = rows._texts
    write(texts, row)
    item_size: cython.Py_ssize_t = ITEM_SIZE_MIN + body_size + texts.size
    if item_size > rows._batch_size_max:
        return _send_alone(rows, batch, row)
    if batch.size + item_size > rows._batch_size_max:
        _close_batch(rows, batch)
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
        _close_batch(rows, batch)
    return 0


@cython.cfunc
def _send_alone(rows: BatchEncoder, batch: OpenBatch, row: cython.Py_ssize_t) -> cython.int:
    """Emit a row to be sent alone, after everything for its queue before it."""
    if batch.queue != ANY_QUEUE:
        _close_batch(rows, batch)
    rows._ready.append(
        OutgoingRequest(
            batch.topic, None if batch.queue == ANY_QUEUE else batch.queue, None, 1, row
        )
    )
    return 0


@cython.cfunc
def _close_batch(rows: BatchEncoder, batch: OpenBatch) -> cython.int:
    """Emit a batch unless it is empty."""
    if batch.count:
        body: bytes = text_bytes(batch.p, 0, batch.size)
        rows._ready.append(
            OutgoingRequest(
                batch.topic, None if batch.queue == ANY_QUEUE else batch.queue, body, batch.count, 0
            )
        )
        batch.size = batch.count = 0
    return 0


@cython.cfunc
def _make_room(
    batch: OpenBatch, size: cython.Py_ssize_t, size_max: cython.Py_ssize_t
) -> cython.int:
    """Enlarge the buffer of a batch, up to the maximum batch size."""
    buffer: bytearray = bytearray(min(max(4 * len(batch.buffer), size), size_max))
    copy(address(buffer), 0, batch.p, 0, batch.size)
    batch.buffer = buffer
    batch.p = address(buffer)
    return 0


# -- choosing a batch


@cython.cfunc
def _topic_of(rows: BatchEncoder, row: cython.Py_ssize_t) -> TopicBatches:
    """Return the batches of the row's topic."""
    column: ArrowTexts = rows._topic
    at: cython.Py_ssize_t = column.offsets[row]
    size: cython.Py_ssize_t = column.offsets[row + 1] - at
    last: TopicBatches | None = rows._last
    if size == 0 or not is_valid(column, row):
        raise InvalidMessageError(
            "its topic is null or empty; set one, or give the option topic for all rows"
        )
    if last is not None and len(last.raw) == size and same(column.data, at, last.raw, size):
        return last
    return _enter_topic(rows, text_bytes(column.data, at, size))


@cython.cfunc
def _enter_topic(rows: BatchEncoder, raw: bytes) -> TopicBatches:
    """Return the batches of a topic, made on first use."""
    topic: TopicBatches | None = rows._topics.get(raw)
    if topic is None:
        topic = rows._topics[raw] = TopicBatches(raw)
    rows._last = topic
    return topic


@cython.cfunc
def _batch_of(rows: BatchEncoder, topic: TopicBatches, row: cython.Py_ssize_t) -> OpenBatch:
    """Return the batch for any queue, or that of the queue that the sharding key selects, as
    `by_sharding_key` does.
    """
    column: ArrowTexts | None = rows._sharding_key
    if (
        column is None
        or column.offsets[row] == column.offsets[row + 1]
        or not is_valid(column, row)
    ):
        return topic.any_queue
    if not topic.queues:
        topic.queues = [
            OpenBatch(topic.name, queue) for queue in range(rows._queue_count(topic.name))
        ]
    key_hash: cython.longlong = utf8_hash(column.data, column.offsets[row], column.offsets[row + 1])
    place: cython.Py_ssize_t = (key_hash if key_hash >= 0 else -key_hash) % len(topic.queues)
    return topic.queues[place]
