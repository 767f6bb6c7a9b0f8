# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: what a turn does with sends. Messages go into the log's batch as they are read; all are committed and answered at once.

`processors.send` is the executable specification: a send that is taken here is stored and answered as it would be there, and whatever
takes more than a look goes there: topics that have to be made, queues that have to be chosen, messages that are sent back, those that
break a limit, those without a key of their own. Its rules are asked for, not written again; where messages wait, its quick placers say.

Invariants: between two turns, and whenever other code may touch the log, nothing is pending (`commit`); no answer is written before its
message is. What was looked up stays good until `refresh`.
"""

from functools import partial
from typing import Any

import cython

from orbitmq.broker.made_answers import tell, tell_failure
from orbitmq.broker.processors.send import SendProcessor, WaitKind
from orbitmq.common.errors import MessageIllegal
from orbitmq.common.topic_names import FORBIDDEN_TO_SEND, RETRY_PREFIX
from orbitmq.message import flags, layout, properties
from orbitmq.message.half_messages import PROPERTIES_ROOM as HALF_PROPERTIES_ROOM
from orbitmq.message.message_type import MessageType
from orbitmq.protocol.bodies.nameserver import PERM_WRITE
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand, SerializeType
from orbitmq.protocol.headers.send import SendMessageResponseHeader
from orbitmq.store.config import FlushMode

if cython.compiled:
    from cython.cimports.orbitmq.broker.hot_answers import Answers, AnswerTemplate, begin, end, put_id, put_text, put_value
    from cython.cimports.orbitmq.broker.hot_counts import HotCounts, HotQueue, HotTally, count_send, pending_count
    from cython.cimports.orbitmq.broker.hot_header import HotHeader, read_send
    from cython.cimports.orbitmq.broker.hot_properties import HotProperties, complete, complete_waiting, read
    from cython.cimports.orbitmq.common.mem import address, same, signed16, signed32, text, text_bytes
    from cython.cimports.orbitmq.message.record_write import RecordParts
    from cython.cimports.orbitmq.store.log_batch import LogBatch, make_room, put, size_within

    from orbitmq.broker.hot_answers import marks
else:
    from orbitmq.broker.hot_answers import Answers, AnswerTemplate, begin, end, marks, put_id, put_text, put_value
    from orbitmq.broker.hot_counts import HotCounts, HotQueue, HotTally, count_send, pending_count
    from orbitmq.broker.hot_header import HotHeader, read_send
    from orbitmq.broker.hot_properties import HotProperties, complete, complete_waiting, read
    from orbitmq.common.mem import address, same, signed16, signed32, text, text_bytes
    from orbitmq.message.record_write import RecordParts
    from orbitmq.store.log_batch import LogBatch, make_room, put, size_within

ONEWAY = cython.declare(cython.int, 2)
ODD_FLAGS = cython.declare(cython.int, flags.TransactionType.ROLLBACK | flags.INNER_BATCH | flags.NEED_UNWRAP)
PREPARED = cython.declare(cython.int, flags.TransactionType.PREPARED)
HALF = cython.declare(cython.int, WaitKind.HALF)
PROPERTIES_SIZE_MAX = cython.declare(cython.Py_ssize_t, layout.PROPERTIES_SIZE_MAX)
PROPERTIES_ROOM = cython.declare(cython.Py_ssize_t, HALF_PROPERTIES_ROOM)
TRANSACTION = cython.declare(object, MessageType.TRANSACTION)
DELAY = cython.declare(object, MessageType.DELAY)
FIFO = cython.declare(object, MessageType.FIFO)
ITEM_HEAD_SIZE = cython.declare(cython.Py_ssize_t, 20)
OFFSET_DIGITS = cython.declare(cython.Py_ssize_t, 16)
TOPICS_MAX = 100_000
_FOR_THE_GENERAL_WAY = (MessageIllegal, OSError)  # it will say what is wrong


class HotTopic:
    """A topic that messages are taken for, and what counts those that are stored there."""

    __slots__ = ("more_flags", "name", "plain", "queue_count", "queues", "raw", "raw_size", "sharded")

    name: str
    raw: bytes
    raw_size: int
    more_flags: int
    queue_count: int
    plain: HotTally
    sharded: HotTally
    queues: list[HotQueue | None]


class HotSends:
    """310 and 320."""

    __slots__ = (
        "_binary",
        "_binary_recall",
        "_general",
        "_host_digits",
        "_ids",
        "_ids_p",
        "_is_open",
        "_is_sync",
        "_json",
        "_json_recall",
        "_keyless_binary",
        "_keyless_json",
        "_known",
        "_last",
        "_log",
        "_now",
        "_now_ms",
        "_parts",
        "_properties",
        "_safe",
        "_settings",
        "_settings_seen",
        "_store",
        "_stored_size",
        "_topics",
        "_topics_version",
        "counts",
        "is_pending",
        "on_commit",
    )

    def __init__(self, general: SendProcessor) -> None:
        self._general = general
        self._store = general.store
        self._topics = general.topics
        self._settings = general.settings
        self._log = general.store.log.batch
        self._is_sync = general.store.config.flush_mode is FlushMode.SYNC
        self._host_digits = general.store_host.hex().upper().encode()
        self._parts = RecordParts()
        self._now = Answers()
        self._safe = Answers()
        self._properties = HotProperties()
        self._ids = bytearray(1 << 10)
        self._ids_p = address(self._ids)
        self._known: dict[bytes, HotTopic] = {}
        self._last: HotTopic | None = None
        self.counts = HotCounts(general.listener)
        self._topics_version: Any = None
        self._settings_seen: Any = None
        self._json = self._binary = self._keyless_json = self._keyless_binary = self._json_recall = self._binary_recall = None
        self._now_ms = self._stored_size = 0
        self.is_pending = self._is_open = False
        self.on_commit: Any = None  # hears whether what was pending is stored, before it is answered

    def refresh(self) -> None:
        """Look again at everything that others may have changed."""
        settings = self._settings
        self._now_ms = self._general.now_ms()
        if not self.is_pending:
            self.counts.turn.begun_ms = self._general.listener.monotonic_ms()
        version = self._topics.data_version
        if version is not self._topics_version:
            self._topics_version = version
            self._known.clear()
            self._last = None
        seen = (settings.region_id, settings.trace_on, settings.broker_cluster_name)
        if seen != self._settings_seen:
            self._properties.more = properties.encode(self._general.added_properties())
            self._json, self._binary = self._template(SerializeType.JSON, 4), self._template(SerializeType.ROCKETMQ, 4)
            self._keyless_json, self._keyless_binary = self._template(SerializeType.JSON, 3), self._template(SerializeType.ROCKETMQ, 3)
            self._json_recall, self._binary_recall = self._template(SerializeType.JSON, 5), self._template(SerializeType.ROCKETMQ, 5)
            self._settings_seen = seen
        self._is_open = (
            self._general.busy() is None
            and settings.broker_permission & PERM_WRITE != 0
            and self._now_ms >= settings.start_accept_send_request_time_stamp
            and self._store.refusal is None
            and not self._store.config.record_crc
        )

    def _template(self, kind: SerializeType, value_count: int) -> AnswerTemplate:
        """An answer with the values of `_answer`; the fourth is the unique key, which a batch may not have, the fifth a recall handle."""
        marked = marks(value_count)
        header = SendMessageResponseHeader(
            msg_id=str(marked[0]),
            queue_id=marked[1],
            queue_offset=marked[2],
            transaction_id=str(marked[3]) if value_count > 3 else None,
            recall_handle=str(marked[4]) if value_count > 4 else None,
            msg_region=self._settings.region_id,
            trace_on=self._settings.trace_on,
        )
        return AnswerTemplate(RemotingCommand(0, serialize_type=kind).answer(ResponseCode.SUCCESS, header=header), marked)

    def send(
        self,
        link: Any,
        p: cython.p_const_uchar,
        header: HotHeader,
        born_host: bytes,
        body_at: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        is_binary: cython.bint,
    ) -> cython.bint:
        """Take the send whose body is p[body_at:stop]; no: it is for the general way, and nothing was done."""
        kind: cython.int
        if not self._is_open or not read_send(header, p):
            return False
        topic: HotTopic | None = _topic(self, p, header.topic_at, header.topic_size)
        if topic is None or header.queue_id < 0 or header.queue_id >= topic.queue_count:
            return False
        if not read(self._properties, p, header.properties_at, max(header.properties_size, 0), header.is_escaped):
            return False
        kind = self._properties.kind
        if self._properties.key_size == 0 and not header.is_batch:
            return False
        if header.sys_flag & ODD_FLAGS and (kind != HALF or header.sys_flag & ODD_FLAGS != PREPARED):
            return False
        if kind and (header.is_batch or header.reconsume_times):
            return False
        parts: RecordParts = self._parts
        parts.topic = topic.raw
        parts.born_host = born_host
        parts.queue_id = header.queue_id
        parts.flag = header.message_flag
        parts.sys_flag = header.sys_flag & ~PREPARED | topic.more_flags
        parts.reconsume_times = header.reconsume_times
        parts.born_time_ms = header.born_time_ms
        parts.prepared_offset = parts.properties_at = 0
        try:
            if header.is_batch:
                return _store_batch(self, link, p, header, topic, body_at, stop, is_binary)
            if kind:
                return _store_waiting(self, link, p, header, topic, body_at, stop, is_binary)
            if not _store_one(self, link, p, header, body_at, stop, complete(self._properties), is_binary, b""):
                return False
            return _count(self, header, topic, 1, self._stored_size)
        except _FOR_THE_GENERAL_WAY:
            return False

    def commit(self) -> Any:
        """Write what is pending, and answer it: now, or when the disk has it."""
        if not self.is_pending:
            return None
        self.is_pending = False
        end_offset: cython.longlong = self._log.end
        counts: HotCounts = self.counts
        listener = self._general.listener
        message_count: cython.longlong = pending_count(counts)
        try:
            self._general.committed(list, message_count)  # with nothing to append but what is pending
        except Exception as problem:
            if self.on_commit is not None:
                self.on_commit(False)
            failed = [*self._now.take(), *self._safe.take()]
            counts.failed(tell_failure(failed, problem), listener.monotonic_ms())
            return None
        counts.stored()
        if self.on_commit is not None:
            self.on_commit(True)
        for link, data in self._now.take():
            link.write(data)
        if self._safe.used:
            settle = partial(tell, self._store, self._safe.take(), partial(self._settle, counts.put_off()))
            self._store.when_safe(end_offset, settle, message_count)
        else:
            counts.settle(listener.monotonic_ms())
        return None

    def _settle(self, turn: Any, response: int) -> None:
        """What a turn stored is answered with that code, now that the disk has it, or has not."""
        self.counts.settle_late(turn, response, self._general.listener.monotonic_ms())


@cython.cfunc
def _topic(sends: HotSends, p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> Any:
    """The topic of that name, None for one that the general way has to look at."""
    topic: HotTopic | None = sends._last
    if topic is not None and topic.raw_size == size and same(p, at, topic.raw, size):
        return topic
    raw: bytes = text_bytes(p, at, size)
    topic = sends._known.get(raw)
    if topic is None:
        topic = _known_topic(sends, raw)
    if topic is not None:
        sends._last = topic
    return topic


def _known_topic(sends: HotSends, raw: bytes) -> HotTopic | None:
    """Look a topic up in the broker's table, and keep it."""
    name = raw.decode()
    config = sends._topics.find_saved(name)  # the general way holds answers back until a new topic is saved
    if config is None or name in FORBIDDEN_TO_SEND or name.startswith(RETRY_PREFIX):
        return None
    if config.attributes.get("queue.type") == "BatchCQ" or config.attributes.get("cleanup.policy") == "COMPACTION":
        return None
    topic: HotTopic = HotTopic.__new__(HotTopic)
    topic.name = config.name
    topic.raw = raw
    topic.raw_size = len(raw)
    topic.more_flags = flags.MULTI_TAGS if config.filter_type == "MULTI_TAG" else 0
    topic.queue_count = max(config.read_queue_nums, config.write_queue_nums)
    topic.plain = sends.counts.tally(topic.name, MessageType.NORMAL)
    topic.sharded = sends.counts.tally(topic.name, MessageType.FIFO)
    topic.queues = [None] * topic.queue_count
    if len(sends._known) >= TOPICS_MAX:
        sends._known.clear()
    sends._known[raw] = topic
    return topic


@cython.cfunc
def _store_one(
    sends: HotSends,
    link: Any,
    p: cython.p_const_uchar,
    header: HotHeader,
    body_at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    properties_size: cython.Py_ssize_t,
    is_binary: cython.bint,
    recall_handle: bytes,
) -> cython.bint:
    """Append the message, whose properties are complete; no: it breaks a limit."""
    parts: RecordParts = sends._parts
    log: LogBatch = sends._log
    size: cython.Py_ssize_t
    offset: cython.longlong
    queue_offset: cython.longlong
    parts.body = p
    parts.body_at = body_at
    parts.body_size = stop - body_at
    parts.properties = sends._properties.p
    parts.properties_size = properties_size
    size = size_within(log, parts, parts.properties_size)
    if size == 0:
        return False
    make_room(log, size, 1, sends._now_ms)
    offset = log.end
    queue_offset = put(log, parts, size, 1)
    if not header.flag & ONEWAY:
        put_id(sends._ids_p, 0, sends._host_digits, offset)
        _answer(sends, link, header, queue_offset, len(sends._host_digits) + OFFSET_DIGITS, is_binary, recall_handle)
    sends._stored_size = size
    return True


@cython.cfunc
def _store_waiting(
    sends: HotSends,
    link: Any,
    p: cython.p_const_uchar,
    header: HotHeader,
    topic: HotTopic,
    body_at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    is_binary: cython.bint,
) -> cython.bint:
    """Append a message that waits, where it does; no: it does not, or may not, or breaks a limit."""
    found: HotProperties = sends._properties
    parts: RecordParts = sends._parts
    place = sends._general.quick_placers.get(found.kind)
    if place is None:
        return False
    waiting = place(topic.name, header.queue_id, text(found.p, found.key_at, found.key_size), found.number)
    if waiting is None:
        return False
    parts.topic = waiting.topic
    parts.queue_id = waiting.queue_id
    size: cython.Py_ssize_t = complete_waiting(found, waiting.more)
    if found.kind == HALF and size > PROPERTIES_SIZE_MAX - PROPERTIES_ROOM:
        return False
    if not _store_one(sends, link, p, header, body_at, stop, size, is_binary, waiting.recall_handle):
        return False
    kind = TRANSACTION if found.kind == HALF else FIFO if found.is_sharded else DELAY
    tally, queue = sends.counts.waiting(waiting.topic, waiting.queue_id, kind)
    count_send(sends.counts, tally, queue, 1, sends._stored_size, False, header.flag & ONEWAY)
    return commit_if_full(sends)


@cython.cfunc
def _store_batch(
    sends: HotSends,
    link: Any,
    p: cython.p_const_uchar,
    header: HotHeader,
    topic: HotTopic,
    body_at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    is_binary: cython.bint,
) -> cython.bint:
    """Append the messages of a batch one behind the other; no: it is none, or one of them breaks a limit."""
    log: LogBatch = sends._log
    item: cython.Py_ssize_t = body_at
    size: cython.Py_ssize_t
    size_of_all: cython.Py_ssize_t = 0
    messages: cython.Py_ssize_t = 0
    id_at: cython.Py_ssize_t = 0
    offset: cython.longlong
    queue_offset: cython.longlong
    first_offset: cython.longlong = 0
    while item < stop:
        size = _item(sends, p, item, stop)
        if size == 0:
            return False
        size_of_all += size
        messages += 1
        item += signed32(p, item)
    if messages == 0:
        return False
    make_room(log, size_of_all, messages, sends._now_ms)
    size = messages * (len(sends._host_digits) + OFFSET_DIGITS + 1)
    if size > len(sends._ids):
        sends._ids = bytearray(2 * size)
        sends._ids_p = address(sends._ids)
    item = body_at
    while item < stop:
        size = _item(sends, p, item, stop)
        offset = log.end
        queue_offset = put(log, sends._parts, size, 1)
        if item == body_at:
            first_offset = queue_offset
        else:
            sends._ids_p[id_at] = 44
            id_at += 1
        id_at = put_id(sends._ids_p, id_at, sends._host_digits, offset)
        item += signed32(p, item)
    if not header.flag & ONEWAY:
        _answer(sends, link, header, first_offset, id_at, is_binary, b"")
    return _count(sends, header, topic, messages, size_of_all)


@cython.cfunc
def _item(sends: HotSends, p: cython.p_const_uchar, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Make the parts those of the batch's item at p[at:stop]; the size of its record, 0 when it is not whole or breaks a limit."""
    parts: RecordParts = sends._parts
    body_at: cython.Py_ssize_t = at + ITEM_HEAD_SIZE
    body_size: cython.longlong
    properties_at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    if stop - at < ITEM_HEAD_SIZE + 2:
        return 0
    body_size = signed32(p, at + 16)
    properties_at = body_at + body_size + 2
    if body_size < 0 or properties_at > stop:
        return 0
    size = signed16(p, properties_at - 2)
    if size < 0 or properties_at + size > stop or properties_at + size - at != signed32(p, at):
        return 0
    parts.flag = signed32(p, at + 12)
    parts.body = parts.properties = p
    parts.body_at = body_at
    parts.body_size = body_size
    parts.properties_at = properties_at
    parts.properties_size = size
    return size_within(sends._log, parts, size)


@cython.cfunc
def _answer(
    sends: HotSends,
    link: Any,
    header: HotHeader,
    queue_offset: cython.longlong,
    ids_size: cython.Py_ssize_t,
    is_binary: cython.bint,
    recall_handle: bytes,
) -> cython.int:
    """Have the answer ready: the ids are in their buffer, the unique key is where the properties say."""
    found: HotProperties = sends._properties
    answers: Answers = sends._safe if sends._is_sync and found.waits else sends._now
    template: AnswerTemplate
    if recall_handle:
        template = sends._binary_recall if is_binary else sends._json_recall
    elif found.key_size:
        template = sends._binary if is_binary else sends._json
    else:
        template = sends._keyless_binary if is_binary else sends._keyless_json
    begin(answers, link, template, ids_size + found.key_size + len(recall_handle))
    put_text(answers, sends._ids_p, 0, ids_size)
    put_value(answers, header.queue_id)
    put_value(answers, queue_offset)
    if found.key_size:
        put_text(answers, found.p, found.key_at, found.key_size)
    if recall_handle:
        put_text(answers, recall_handle, 0, len(recall_handle))
    return end(answers, header.opaque, 0)


@cython.cfunc
def _count(sends: HotSends, header: HotHeader, topic: HotTopic, messages: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    """Note that a send of messages that wait for nothing was taken; yes."""
    queue = topic.queues[header.queue_id]
    if queue is None:
        queue = topic.queues[header.queue_id] = HotQueue(topic.name, header.queue_id)
    tally: HotTally = topic.sharded if sends._properties.is_sharded else topic.plain
    count_send(sends.counts, tally, queue, messages, size, header.is_batch, header.flag & ONEWAY)
    return commit_if_full(sends)


@cython.cfunc
def commit_if_full(sends: HotSends) -> cython.bint:
    """Have what was appended committed, at once when the batch is large enough; yes."""
    log: LogBatch = sends._log
    sends.is_pending = True
    if log.used >= log._batch_size_max:
        sends.commit()
        sends.refresh()
    return True
