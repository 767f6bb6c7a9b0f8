# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: what a turn does with ends of transactions: the message that consumers get, and the op record that says that its half message
ended, go into the log's batch; they are committed and answered with whatever else the turn brings.

`processors.transactions` and `transactions.service` are the executable specification: an end that is taken here is stored and answered as
it would be there. Taken are ends of half messages that lie as their producers sent them and whose messages are not to come later; whatever
else, a second word among it, goes there. Invariant: a transaction is pending until what ended it is stored.
"""

from typing import Any

import cython

from orbitmq.broker.processors.send import WaitKind
from orbitmq.broker.transactions import records
from orbitmq.broker.transactions.service import Transactions
from orbitmq.common.errors import MessageIllegal
from orbitmq.common.topic_names import HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.message.flags import TransactionType
from orbitmq.message.half_messages import SEPARATOR, Half, number
from orbitmq.message.message_type import MessageType
from orbitmq.message.properties import REAL_QUEUE_ID, UNIQUE_KEY
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand, SerializeType

if cython.compiled:
    from cython.cimports.orbitmq.broker.hot_answers import Answers, AnswerTemplate, begin, end
    from cython.cimports.orbitmq.broker.hot_counts import count
    from cython.cimports.orbitmq.broker.hot_header import HotHeader, read_end
    from cython.cimports.orbitmq.broker.hot_properties import kind_of
    from cython.cimports.orbitmq.broker.hot_send import HotSends, HotTopic, commit_if_full
    from cython.cimports.orbitmq.common.mem import address, copy, find, same, text_bytes
    from cython.cimports.orbitmq.message.record_read import RecordCursor
    from cython.cimports.orbitmq.message.record_write import RecordParts
    from cython.cimports.orbitmq.store.log_batch import LogBatch, make_room, put, size_within
else:
    from orbitmq.broker.hot_answers import Answers, AnswerTemplate, begin, end
    from orbitmq.broker.hot_counts import count
    from orbitmq.broker.hot_header import HotHeader, read_end
    from orbitmq.broker.hot_properties import kind_of
    from orbitmq.broker.hot_send import HotSends, HotTopic, commit_if_full
    from orbitmq.common.mem import address, copy, find, same, text_bytes
    from orbitmq.message.record_read import RecordCursor
    from orbitmq.message.record_write import RecordParts
    from orbitmq.store.log_batch import LogBatch, make_room, put, size_within

ONEWAY = cython.declare(cython.int, 2)
COMMIT = cython.declare(cython.int, TransactionType.COMMIT)
ROLLBACK = cython.declare(cython.int, TransactionType.ROLLBACK)  # of the system flag, all that it says of transactions
HALF = cython.declare(cython.int, WaitKind.HALF)  # kinds below it are of messages that are to come later
NAME_END = cython.declare(cython.int, 1)
VALUE_END = cython.declare(cython.int, 2)
BORN_HOST_AT = cython.declare(cython.Py_ssize_t, 48)  # in a record
BORN_HOST_V6 = cython.declare(cython.int, 0x10)
HALF_NAME = cython.declare(bytes, HALF_TOPIC.encode())
TOPICS_MAX = 100_000
_FOR_THE_GENERAL_WAY = (MessageIllegal, OSError)  # it will say what is wrong


class HotEnds:
    """37."""

    __slots__ = (
        "_binary",
        "_ended",
        "_ending",
        "_half",
        "_is_saved",
        "_json",
        "_log",
        "_message",
        "_op",
        "_op_properties",
        "_op_topic",
        "_pending",
        "_properties",
        "_record_at",
        "_sends",
        "_service",
        "_topics",
    )

    def __init__(self, sends: HotSends, service: Transactions) -> None:
        general = sends._general
        self._sends = sends
        self._service = service
        self._pending = service.pending
        self._record_at = general.store.reads.record_at
        self._is_saved = general.topics.is_saved
        self._log = general.store.log.batch
        self._message = RecordParts()
        self._op = RecordParts()
        self._half = RecordCursor()
        self._json, self._binary = _template(SerializeType.JSON), _template(SerializeType.ROCKETMQ)
        self._topics: dict[str, HotTopic] = {}
        self._op_topic = _topic_of(self, OP_HALF_TOPIC)
        self._properties = bytearray(1 << 12)
        self._ending: set[int] = set()  # the roots of those that end in this turn
        self._ended: list[tuple[Half, TransactionType, int]] = []  # with the offset of the op record
        sample = records.op_of((), 0, general.store_host)
        self._op_properties = sample.properties
        self._op.topic = sample.topic
        self._op.born_host = sample.born_host
        self._op.queue_id = sample.queue_id
        sends.on_commit = self._committed

    def end(self, link: Any, p: cython.p_const_uchar, header: HotHeader, is_binary: cython.bint) -> cython.bint:
        """Take the end of a transaction; no: it is for the general way, and nothing was done."""
        if not self._sends._is_open or not read_end(header, p) or (header.outcome != COMMIT and header.outcome != ROLLBACK):
            return False
        half = _pending_half(self, header.queue_offset)
        if half is None or half.log_offset != header.commit_log_offset or not self._is_saved(HALF_TOPIC):
            return False
        if half.group.encode() != text_bytes(p, header.group_at, header.group_size):
            return False
        record: bytes | None = self._record_at(half.log_offset)
        if record is None or self._half.read(record, 0, len(record), False) != len(record) or not _is_named(self, p, header):
            return False
        try:
            return _store(self, link, header, half, record, is_binary)
        except _FOR_THE_GENERAL_WAY:
            return False

    def _committed(self, is_stored: bool) -> None:
        """Hear that what was pending is stored, or is not going to be."""
        if self._ended:
            ended, self._ended = self._ended, []
            self._ending.clear()
            for half, kind, op_offset in ended if is_stored else ():
                self._service.was_ended(half, kind, op_offset)


def _template(kind: SerializeType) -> AnswerTemplate:
    return AnswerTemplate(RemotingCommand(0, serialize_type=kind).answer(ResponseCode.SUCCESS), [])


def _pending_half(ends: HotEnds, root: int) -> Half | None:
    """What is known of a transaction that is as its producer began it; None when it is not, or is about to end."""
    half: Half | None = ends._pending.find(root)
    if half is None and root >= ends._pending.next_half:
        ends._service.follow()
        half = ends._pending.find(root)
    if half is None or half.offset != root or half.is_doubtful or half.immunity_s is not None or root in ends._ending:
        return None
    return half


def _topic_of(ends: HotEnds, name: str) -> HotTopic:
    """What counts the messages of a topic, be it there or not."""
    topic: HotTopic | None = ends._topics.get(name)
    if topic is None:
        topic = HotTopic.__new__(HotTopic)
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
def _is_named(ends: HotEnds, p: cython.p_const_uchar, header: HotHeader) -> cython.bint:
    """Whether the record is the half message that the request names: by its place, and by its id if that is told."""
    half: RecordCursor = ends._half
    if half.queue_offset != header.queue_offset or half.log_offset != header.commit_log_offset or half.topic() != HALF_NAME:
        return False
    if header.transaction_id_size <= 0:
        return True
    key: str | None = half.property(UNIQUE_KEY)
    return key is not None and key.encode() == text_bytes(p, header.transaction_id_at, header.transaction_id_size)


@cython.cfunc
def _store(ends: HotEnds, link: Any, header: HotHeader, half: Any, record: bytes, is_binary: cython.bint) -> cython.bint:
    """Append what the end of a transaction stores, and have its answer ready; no: it is for the general way."""
    sends: HotSends = ends._sends
    log: LogBatch = ends._log
    op: RecordParts = ends._op
    topic: HotTopic = _topic_of(ends, half.topic)
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
        answers: Answers = sends._safe if sends._is_sync else sends._now
        begin(answers, link, ends._binary if is_binary else ends._json, 0)
        end(answers, header.opaque, 0)
        sends.counts.turn.ends += 1
    else:
        sends.counts.turn.oneway_ends += 1
    if size:
        count(sends.counts, topic.plain, 1, size)
    count(sends.counts, ends._op_topic.plain, 1, op_size)
    commit_if_full(sends)
    return True


@cython.cfunc
def _take_message(ends: HotEnds, record: bytes, topic: HotTopic) -> cython.Py_ssize_t:
    """Make the parts those of the message that consumers get; the size of its record, 0 when the general way has to make it."""
    half: RecordCursor = ends._half
    message: RecordParts = ends._message
    source: cython.p_const_uchar = address(record)
    if not _take_properties(ends, source):
        return 0
    message.topic = topic.raw
    message.born_host = record[BORN_HOST_AT : BORN_HOST_AT + (20 if half.sys_flag & BORN_HOST_V6 else 8)]
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
def _take_properties(ends: HotEnds, source: cython.p_const_uchar) -> cython.bint:
    """Take over the properties of the half message but for those that only it has; no: they say that the message is to come later."""
    half: RecordCursor = ends._half
    at: cython.Py_ssize_t = half.properties_at
    size: cython.Py_ssize_t = half.properties_size
    end_at: cython.Py_ssize_t = at + size
    stop: cython.Py_ssize_t
    name_size: cython.Py_ssize_t
    kind: cython.int
    used: cython.Py_ssize_t = 0
    if size + 1 > len(ends._properties):
        ends._properties = bytearray(2 * size)
    target: cython.p_uchar = address(ends._properties)
    while at < end_at:
        stop = find(source, at, end_at, VALUE_END)
        name_size = find(source, at, stop, NAME_END) - at
        if at + name_size < stop:
            kind = kind_of(source, at, name_size)
            if kind < 0 or 0 < kind < HALF:
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
def _is_of_half(p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    """Whether a property of that name is the half message's, or its record's, alone."""
    if size == 10:
        return same(p, at, b"REAL_TOPIC", 10)
    return size == 8 and (same(p, at, b"REAL_QID", 8) or same(p, at, b"__CRC32#", 8))
