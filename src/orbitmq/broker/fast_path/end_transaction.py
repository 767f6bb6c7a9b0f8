# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: serves the ends of transactions in a loop iteration. The message for consumers and the op
record that marks its half message as ended enter the log's batch; they are committed and
acknowledged with everything else in the iteration.

`processors.transactions` and `transactions.service` are the executable specification: an end that
is accepted here is stored and answered exactly as there. Accepted are ends of half messages that
are still where their producers' sends put them and whose messages are not delayed; everything else,
including a second END_TRANSACTION, goes there. Invariant: a transaction is pending until the
records that end it are stored.
"""

from typing import Any

import cython

from orbitmq.broker.transactions import records
from orbitmq.broker.transactions.service import Transactions
from orbitmq.common.errors import InvalidMessageError
from orbitmq.common.topic_names import HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.message.flags import TransactionType
from orbitmq.message.half_messages import SEPARATOR, Half, number
from orbitmq.message.message_type import MessageType
from orbitmq.message.properties import REAL_QUEUE_ID, UNIQUE_KEY
from orbitmq.message.property_rules import CODE_GENERAL, CODE_PLAIN, DeferralKind
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand, SerializeType

if cython.compiled:
    from cython.cimports.orbitmq.broker.fast_path.counters import count
    from cython.cimports.orbitmq.broker.fast_path.properties import rule_at
    from cython.cimports.orbitmq.broker.fast_path.replies import (
        ReplyBuffer,
        ReplyTemplate,
        begin,
        end,
    )
    from cython.cimports.orbitmq.broker.fast_path.send import FastTopic, SendHandler, commit_if_full
    from cython.cimports.orbitmq.common.mem import address, copy, find, same, text_bytes
    from cython.cimports.orbitmq.message.record_read import RecordCursor
    from cython.cimports.orbitmq.message.record_write import RecordParts
    from cython.cimports.orbitmq.protocol.header_view import HeaderView, read_end
    from cython.cimports.orbitmq.store.log_batch import LogBatch, make_room, put, size_within
else:
    from orbitmq.broker.fast_path.counters import count
    from orbitmq.broker.fast_path.properties import rule_at
    from orbitmq.broker.fast_path.replies import ReplyBuffer, ReplyTemplate, begin, end
    from orbitmq.broker.fast_path.send import FastTopic, SendHandler, commit_if_full
    from orbitmq.common.mem import address, copy, find, same, text_bytes
    from orbitmq.message.record_read import RecordCursor
    from orbitmq.message.record_write import RecordParts
    from orbitmq.protocol.header_view import HeaderView, read_end
    from orbitmq.store.log_batch import LogBatch, make_room, put, size_within

ONEWAY = cython.declare(cython.int, 2)
COMMIT = cython.declare(cython.int, TransactionType.COMMIT)
ROLLBACK = cython.declare(
    cython.int, TransactionType.ROLLBACK
)  # all transaction bits of the system flag
HALF = cython.declare(cython.int, DeferralKind.HALF)  # codes below it are those of delayed messages
PLAIN = cython.declare(cython.int, CODE_PLAIN)
GENERAL = cython.declare(cython.int, CODE_GENERAL)
NAME_END = cython.declare(cython.int, 1)
VALUE_END = cython.declare(cython.int, 2)
BORN_HOST_AT = cython.declare(cython.Py_ssize_t, 48)  # in a record
BORN_HOST_V6 = cython.declare(cython.int, 0x10)
HALF_NAME = cython.declare(bytes, HALF_TOPIC.encode())
TOPICS_MAX = 100_000
_FOR_THE_GENERAL_PATH = (InvalidMessageError, OSError)  # the general path reports what is wrong


class EndTransactionHandler:
    """Serves END_TRANSACTION."""

    def __init__(self, sends: SendHandler, service: Transactions) -> None:
        send_service = sends._service
        self._sends = sends
        self._service = service
        self._pending = service.pending
        self._record_at = send_service.store.reads.record_at
        self._is_saved = send_service.topics.is_saved
        self._log = send_service.store.log.batch
        self._message = RecordParts()
        self._op = RecordParts()
        self._half = RecordCursor()
        self._json, self._binary = _template(SerializeType.JSON), _template(SerializeType.ROCKETMQ)
        self._topics: dict[str, FastTopic] = {}
        self._op_topic = _topic_of(self, OP_HALF_TOPIC)
        self._properties = bytearray(1 << 12)
        self._ending: set[int] = set()  # the roots of transactions that end in this iteration
        self._ended: list[
            tuple[Half, TransactionType, int]
        ] = []  # with the offset of the op record
        sample = records.op_of((), 0, send_service.store_host)
        self._op_properties = sample.properties
        self._op.topic = sample.topic
        self._op.born_host = sample.born_host
        self._op.queue_id = sample.queue_id
        sends.on_commit = self._committed

    def end(
        self, link: Any, p: cython.p_const_uchar, header: HeaderView, is_binary: cython.bint
    ) -> cython.bint:
        """Commit or roll back a half message. Returns False if the request must take the general
        path; then nothing was done.
        """
        if (
            not self._sends._is_open
            or not read_end(header, p)
            or (header.outcome != COMMIT and header.outcome != ROLLBACK)
        ):
            return False
        half = _pending_half(self, header.queue_offset)
        if (
            half is None
            or half.log_offset != header.commit_log_offset
            or not self._is_saved(HALF_TOPIC)
        ):
            return False
        if half.group.encode() != text_bytes(p, header.group_at, header.group_size):
            return False
        record: bytes | None = self._record_at(half.log_offset)
        if (
            record is None
            or self._half.read(record, 0, len(record), False) != len(record)
            or not _is_named(self, p, header)
        ):
            return False
        try:
            return _store(self, link, header, half, record, is_binary)
        except _FOR_THE_GENERAL_PATH:
            return False

    def _committed(self, is_stored: bool) -> None:
        """Learn whether the pending ends are stored."""
        if self._ended:
            ended, self._ended = self._ended, []
            self._ending.clear()
            for half, kind, op_offset in ended if is_stored else ():
                self._service.was_ended(half, kind, op_offset)


def _template(kind: SerializeType) -> ReplyTemplate:
    return ReplyTemplate(RemotingCommand(0, serialize_type=kind).reply(ResponseCode.SUCCESS), [])


def _pending_half(ends: EndTransactionHandler, root: int) -> Half | None:
    """Return the transaction if its half message is still where its producer's send put it; None if
    it is not, or if the transaction is about to end.
    """
    half: Half | None = ends._pending.find(root)
    if half is None and root >= ends._pending.next_half:
        ends._service.follow()
        half = ends._pending.find(root)
    if (
        half is None
        or half.offset != root
        or half.is_doubtful
        or half.immunity_s is not None
        or root in ends._ending
    ):
        return None
    return half


def _topic_of(ends: EndTransactionHandler, name: str) -> FastTopic:
    """Return the counters of a topic, whether or not the topic exists."""
    topic: FastTopic | None = ends._topics.get(name)
    if topic is None:
        topic = FastTopic.__new__(FastTopic)
        topic.name = name
        topic.raw = name.encode()
        topic.raw_size = len(topic.raw)
        topic.more_flags = topic.queue_count = 0
        topic.plain = topic.sharded = ends._sends.counts.tally(name, MessageType.TRANSACTION)
        topic.queues = []
        if len(ends._topics) >= TOPICS_MAX:
            ends._topics.clear()
        ends._topics[name] = topic
    return topic


@cython.cfunc
def _is_named(
    ends: EndTransactionHandler, p: cython.p_const_uchar, header: HeaderView
) -> cython.bint:
    """Return whether the record is the half message that the request names: by its queue offset,
    and by its id if that is given.
    """
    half: RecordCursor = ends._half
    if (
        half.queue_offset != header.queue_offset
        or half.log_offset != header.commit_log_offset
        or half.topic() != HALF_NAME
    ):
        return False
    if header.transaction_id_size <= 0:
        return True
    key: str | None = half.property(UNIQUE_KEY)
    return key is not None and key.encode() == text_bytes(
        p, header.transaction_id_at, header.transaction_id_size
    )


@cython.cfunc
def _store(
    ends: EndTransactionHandler,
    link: Any,
    header: HeaderView,
    half: Any,
    record: bytes,
    is_binary: cython.bint,
) -> cython.bint:
    """Append the records that end the transaction, and queue the reply. Returns False if the
    request must take the general path.
    """
    sends: SendHandler = ends._sends
    log: LogBatch = ends._log
    op: RecordParts = ends._op
    topic: FastTopic = _topic_of(ends, half.topic)
    size: cython.Py_ssize_t = 0
    named: bytes = f"{half.offset}{SEPARATOR}".encode()
    op.body = address(named)
    op.body_at = op.properties_at = 0
    op.body_size = len(named)
    op.born_time_ms = sends._now_ms
    op.properties = address(ends._op_properties)
    op.properties_size = len(ends._op_properties)
    op_size: cython.Py_ssize_t = size_within(log, op, op.properties_size)
    if op_size == 0:
        return False
    if header.outcome == COMMIT:
        size = _take_message(ends, record, topic)
        if size == 0:
            return False
        make_room(log, size, 1, sends._now_ms)
        put(log, ends._message, size, 1)
    make_room(log, op_size, 1, sends._now_ms)
    kind = TransactionType.COMMIT if header.outcome == COMMIT else TransactionType.ROLLBACK
    ends._ended.append((half, kind, put(log, op, op_size, 1)))
    ends._ending.add(half.root)
    if not header.flag & ONEWAY:
        answers: ReplyBuffer = sends._safe if sends._waits else sends._now
        begin(answers, link, ends._binary if is_binary else ends._json, 0)
        end(answers, header.opaque, 0)
        sends.counts.iteration.ends += 1
    else:
        sends.counts.iteration.oneway_ends += 1
    if size:
        count(sends.counts, topic.plain, 1, size)
    count(sends.counts, ends._op_topic.plain, 1, op_size)
    commit_if_full(sends)
    return True


@cython.cfunc
def _take_message(
    ends: EndTransactionHandler, record: bytes, topic: FastTopic
) -> cython.Py_ssize_t:
    """Fill the record parts with the message for consumers. Return the size of its record, or 0 if
    the request must take the general path.
    """
    half: RecordCursor = ends._half
    message: RecordParts = ends._message
    source: cython.p_const_uchar = address(record)
    if not _take_properties(ends, source):
        return 0
    message.topic = topic.raw
    message.born_host = record[
        BORN_HOST_AT : BORN_HOST_AT + (20 if half.sys_flag & BORN_HOST_V6 else 8)
    ]
    message.body = source
    message.body_at = half.body_at
    message.body_size = half.body_size
    message.properties = address(ends._properties)
    message.properties_at = 0
    message.queue_id = number(half.property(REAL_QUEUE_ID)) or 0
    message.flag = half.flag
    message.sys_flag = half.sys_flag & ~ROLLBACK | COMMIT
    message.reconsume_times = half.reconsume_times
    message.born_time_ms = half.born_time_ms
    message.prepared_offset = half.log_offset
    return size_within(ends._log, message, message.properties_size)


@cython.cfunc
def _take_properties(ends: EndTransactionHandler, source: cython.p_const_uchar) -> cython.bint:
    """Copy the half message's properties, except those that only it has. Returns False if they
    delay the message.
    """
    half: RecordCursor = ends._half
    at: cython.Py_ssize_t = half.properties_at
    size: cython.Py_ssize_t = half.properties_size
    end_at: cython.Py_ssize_t = at + size
    stop: cython.Py_ssize_t
    name_size: cython.Py_ssize_t
    rule: cython.int
    used: cython.Py_ssize_t = 0
    if size + 1 > len(ends._properties):
        ends._properties = bytearray(2 * size)
    target: cython.p_uchar = address(ends._properties)
    while at < end_at:
        stop = find(source, at, end_at, VALUE_END)
        name_size = find(source, at, stop, NAME_END) - at
        if at + name_size < stop:
            rule = rule_at(source, at, name_size)
            if rule == GENERAL or PLAIN < rule < HALF:
                return False
            if _is_of_half(source, at, name_size):
                at = stop + 1
                continue
        copy(target, used, source, at, stop - at)
        used += stop - at
        target[used] = VALUE_END
        used += 1
        at = stop + 1
    ends._message.properties_size = used
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _is_of_half(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.bint:
    """Return whether a property of that name belongs only to the half message or its record."""
    if size == 10:
        return same(p, at, b"REAL_TOPIC", 10)
    return size == 8 and (same(p, at, b"REAL_QID", 8) or same(p, at, b"__CRC32#", 8))
