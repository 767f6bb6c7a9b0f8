# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: serves the sends of a loop iteration. Messages enter the log's batch as they are read;
all are committed and acknowledged together.

`produce.service` is the executable specification: a send that is accepted here is stored and
answered exactly as there. Everything unusual goes there: topics that must be created, queues that
must be chosen, messages that are sent back, messages that break a limit or have no unique key. The
rules are called, not repeated; for deferred messages the quick form of the rewriters decides.

Invariants: nothing is pending between two iterations, nor whenever other code may touch the log
(`commit`); no reply is written before its message. Lookups stay valid until `refresh`.
"""

from functools import partial
from typing import Any

import cython

from orbitmq.broker.fast_path.pending_replies import fail_all, send_all
from orbitmq.broker.produce.service import SendService
from orbitmq.common.errors import InvalidMessageError
from orbitmq.common.topic_names import FORBIDDEN_TO_SEND, RETRY_PREFIX
from orbitmq.message import batch, flags, layout, properties
from orbitmq.message.half_messages import PROPERTIES_ROOM as HALF_PROPERTIES_ROOM
from orbitmq.message.message_type import MessageType
from orbitmq.message.property_rules import DeferralKind
from orbitmq.protocol.bodies.nameserver import PERM_WRITE
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand, SerializeType
from orbitmq.protocol.headers.send import SendMessageResponseHeader

if cython.compiled:
    from cython.cimports.orbitmq.broker.fast_path.counters import (
        FastQueue,
        SendCounters,
        SendTally,
        count_send,
        pending_count,
    )
    from cython.cimports.orbitmq.broker.fast_path.properties import (
        PropertyBuffer,
        complete,
        complete_deferred,
        read,
    )
    from cython.cimports.orbitmq.broker.fast_path.replies import (
        ReplyBuffer,
        ReplyTemplate,
        begin,
        end,
        put_id,
        put_text,
        put_value,
    )
    from cython.cimports.orbitmq.common.mem import (
        address,
        same,
        signed16,
        signed32,
        text,
        text_bytes,
    )
    from cython.cimports.orbitmq.message.record_write import RecordParts
    from cython.cimports.orbitmq.protocol.header_view import HeaderView, read_send
    from cython.cimports.orbitmq.store.log_batch import LogBatch, make_room, put, size_within

    from orbitmq.broker.fast_path.replies import marks
else:
    from orbitmq.broker.fast_path.counters import (
        FastQueue,
        SendCounters,
        SendTally,
        count_send,
        pending_count,
    )
    from orbitmq.broker.fast_path.properties import (
        PropertyBuffer,
        complete,
        complete_deferred,
        read,
    )
    from orbitmq.broker.fast_path.replies import (
        ReplyBuffer,
        ReplyTemplate,
        begin,
        end,
        marks,
        put_id,
        put_text,
        put_value,
    )
    from orbitmq.common.mem import address, same, signed16, signed32, text, text_bytes
    from orbitmq.message.record_write import RecordParts
    from orbitmq.protocol.header_view import HeaderView, read_send
    from orbitmq.store.log_batch import LogBatch, make_room, put, size_within

ONEWAY = cython.declare(cython.int, 2)
ODD_FLAGS = cython.declare(
    cython.int, flags.TransactionType.ROLLBACK | flags.INNER_BATCH | flags.NEED_UNWRAP
)
PREPARED = cython.declare(cython.int, flags.TransactionType.PREPARED)
HALF = cython.declare(cython.int, DeferralKind.HALF)
PROPERTIES_SIZE_MAX = cython.declare(cython.Py_ssize_t, layout.PROPERTIES_SIZE_MAX)
PROPERTIES_ROOM = cython.declare(cython.Py_ssize_t, HALF_PROPERTIES_ROOM)
TRANSACTION = cython.declare(object, MessageType.TRANSACTION)
DELAY = cython.declare(object, MessageType.DELAY)
FIFO = cython.declare(object, MessageType.FIFO)
ITEM_HEAD_SIZE = cython.declare(cython.Py_ssize_t, 20)
ITEMS_MAX = cython.declare(cython.Py_ssize_t, batch.ITEMS_MAX)
OFFSET_DIGITS = cython.declare(cython.Py_ssize_t, 16)
TOPICS_MAX = 100_000
_FOR_THE_GENERAL_PATH = (InvalidMessageError, OSError)  # the general path reports what is wrong


class FastTopic:
    """A topic that accepts messages, with the counters of those stored in it."""

    name: str
    raw: bytes
    raw_size: int
    more_flags: int
    queue_count: int
    plain: SendTally
    sharded: SendTally
    queues: list[FastQueue | None]


class SendHandler:
    """Serves SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""

    def __init__(self, service: SendService) -> None:
        self._service = service
        self._store = service.store
        self._topics = service.topics
        self._settings = service.settings
        self._log = service.store.log.batch
        self._waits = False
        self._host_digits = service.store_host.hex().upper().encode()
        self._parts = RecordParts()
        self._now = ReplyBuffer()
        self._safe = ReplyBuffer()
        self._properties = PropertyBuffer()
        self._ids = bytearray(1 << 10)
        self._ids_p = address(self._ids)
        self._known: dict[bytes, FastTopic] = {}
        self._last: FastTopic | None = None
        self.counts = SendCounters(service.listener)
        self._topics_version: Any = None
        self._settings_seen: Any = None
        self._json = self._binary = self._keyless_json = self._keyless_binary = (
            self._json_recall
        ) = self._binary_recall = None
        self._now_ms = self._stored_size = 0
        self.is_pending = self._is_open = False
        self.on_commit: Any = (
            None  # called with whether the pending messages are stored, before the replies
        )

    def refresh(self) -> None:
        """Reload everything that other code may have changed."""
        settings = self._settings
        self._now_ms = self._service.now_ms()
        if not self.is_pending:
            self.counts.iteration.begun_ms = self._service.listener.monotonic_ms()
        version = self._topics.data_version
        if version is not self._topics_version:
            self._topics_version = version
            self._known.clear()
            self._last = None
        seen = (settings.region_id, settings.trace_on, settings.broker_cluster_name)
        if seen != self._settings_seen:
            self._properties.more = properties.encode(self._service.added_properties())
            self._json, self._binary = (
                self._template(SerializeType.JSON, 4),
                self._template(SerializeType.ROCKETMQ, 4),
            )
            self._keyless_json, self._keyless_binary = (
                self._template(SerializeType.JSON, 3),
                self._template(SerializeType.ROCKETMQ, 3),
            )
            self._json_recall, self._binary_recall = (
                self._template(SerializeType.JSON, 5),
                self._template(SerializeType.ROCKETMQ, 5),
            )
            self._settings_seen = seen
        self._waits = self._store.waits
        self._is_open = (
            self._service.busy() is None
            and settings.broker_permission & PERM_WRITE != 0
            and self._now_ms >= settings.start_accept_send_request_time_stamp
            and self._store.refusal is None
            and self._store.replicas.refusal is None
            and not self._store.config.record_crc
        )

    def _template(self, kind: SerializeType, value_count: int) -> ReplyTemplate:
        """Return the template of a reply with the values of `_answer`; the fourth is the unique
        key, which a batch may lack, the fifth a recall handle.
        """
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
        return ReplyTemplate(
            RemotingCommand(0, serialize_type=kind).reply(ResponseCode.SUCCESS, header=header),
            marked,
        )

    def send(
        self,
        link: Any,
        p: cython.p_const_uchar,
        header: HeaderView,
        born_host: bytes,
        body_at: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        is_binary: cython.bint,
    ) -> cython.bint:
        """Store the message or batch in p[body_at:stop]. Returns False if the request must take the
        general path; then nothing was done.
        """
        kind: cython.int
        if not self._is_open or not read_send(header, p):
            return False
        topic: FastTopic | None = _topic(self, p, header.topic_at, header.topic_size)
        if topic is None or header.queue_id < 0 or header.queue_id >= topic.queue_count:
            return False
        if not read(
            self._properties,
            p,
            header.properties_at,
            max(header.properties_size, 0),
            header.is_escaped,
        ):
            return False
        kind = self._properties.kind
        if self._properties.key_size == 0 and not header.is_batch:
            return False
        if header.sys_flag & ODD_FLAGS and (
            kind != HALF or header.sys_flag & ODD_FLAGS != PREPARED
        ):
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
                return _store_deferred(self, link, p, header, topic, body_at, stop, is_binary)
            if not _store_one(
                self, link, p, header, body_at, stop, complete(self._properties), is_binary, b""
            ):
                return False
            return _count(self, header, topic, 1, self._stored_size)
        except _FOR_THE_GENERAL_PATH:
            return False

    def commit(self) -> Any:
        """Write the pending messages, and acknowledge them now or when they are durable."""
        if not self.is_pending:
            return None
        self.is_pending = False
        end_offset: cython.longlong = self._log.end
        counts: SendCounters = self.counts
        listener = self._service.listener
        message_count: cython.longlong = pending_count(counts)
        try:
            self._service.committed(list, message_count)  # appends nothing beyond what is pending
        except Exception as problem:
            if self.on_commit is not None:
                self.on_commit(False)
            failed = [*self._now.take(), *self._safe.take()]
            fields = self._service.place_fields()
            counts.failed(fail_all(failed, problem, fields), listener.monotonic_ms())
            return None
        counts.stored()
        if self.on_commit is not None:
            self.on_commit(True)
        for link, data in self._now.take():
            link.write(data)
        if self._safe.used:
            settle = partial(
                send_all, self._store, self._safe.take(), partial(self._settle, counts.put_off())
            )
            self._store.when_durable(end_offset, settle, message_count)
        else:
            counts.settle(listener.monotonic_ms())
        return None

    def _settle(self, iteration: Any, response: int) -> None:
        """Report that an iteration's messages were acknowledged with this code."""
        self.counts.settle_late(iteration, response, self._service.listener.monotonic_ms())


@cython.cfunc
def _topic(
    sends: SendHandler, p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> Any:
    """Return the topic of that name, or None if the send must take the general path."""
    topic: FastTopic | None = sends._last
    if topic is not None and topic.raw_size == size and same(p, at, topic.raw, size):
        return topic
    raw: bytes = text_bytes(p, at, size)
    topic = sends._known.get(raw)
    if topic is None:
        topic = _known_topic(sends, raw)
    if topic is not None:
        sends._last = topic
    return topic


def _known_topic(sends: SendHandler, raw: bytes) -> FastTopic | None:
    """Look up a topic in the broker's table, and cache it."""
    name = raw.decode()
    config = sends._topics.find_saved(
        name
    )  # the general path delays replies until a new topic is saved
    if config is None or name in FORBIDDEN_TO_SEND or name.startswith(RETRY_PREFIX):
        return None
    if (
        config.attributes.get("queue.type") == "BatchCQ"
        or config.attributes.get("cleanup.policy") == "COMPACTION"
    ):
        return None
    topic: FastTopic = FastTopic.__new__(FastTopic)
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
    sends: SendHandler,
    link: Any,
    p: cython.p_const_uchar,
    header: HeaderView,
    body_at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    properties_size: cython.Py_ssize_t,
    is_binary: cython.bint,
    recall_handle: bytes,
) -> cython.bint:
    """Append the message, whose properties are complete. Returns False if it breaks a limit."""
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
        _answer(
            sends,
            link,
            header,
            queue_offset,
            len(sends._host_digits) + OFFSET_DIGITS,
            is_binary,
            recall_handle,
        )
    sends._stored_size = size
    return True


@cython.cfunc
def _store_deferred(
    sends: SendHandler,
    link: Any,
    p: cython.p_const_uchar,
    header: HeaderView,
    topic: FastTopic,
    body_at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    is_binary: cython.bint,
) -> cython.bint:
    """Append a delayed or half message to its holding topic. Returns False if it must take the
    general path.
    """
    found: PropertyBuffer = sends._properties
    parts: RecordParts = sends._parts
    rewrite = sends._service.quick_rewriters.get(found.kind)
    if rewrite is None:
        return False
    holding = rewrite(
        topic.name, header.queue_id, text(found.p, found.key_at, found.key_size), found.number
    )
    if holding is None:
        return False
    parts.topic = holding.topic
    parts.queue_id = holding.queue_id
    size: cython.Py_ssize_t = complete_deferred(found, holding.more)
    if found.kind == HALF and size > PROPERTIES_SIZE_MAX - PROPERTIES_ROOM:
        return False
    if not _store_one(
        sends, link, p, header, body_at, stop, size, is_binary, holding.recall_handle
    ):
        return False
    kind = TRANSACTION if found.kind == HALF else FIFO if found.is_sharded else DELAY
    tally, queue = sends.counts.deferred(holding.topic, holding.queue_id, kind)
    count_send(sends.counts, tally, queue, 1, sends._stored_size, False, header.flag & ONEWAY)
    return commit_if_full(sends)


@cython.cfunc
def _store_batch(
    sends: SendHandler,
    link: Any,
    p: cython.p_const_uchar,
    header: HeaderView,
    topic: FastTopic,
    body_at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    is_binary: cython.bint,
) -> cython.bint:
    """Append the messages of a batch in order. Returns False if it is malformed or one of them
    breaks a limit.
    """
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
        if messages > ITEMS_MAX:  # the general path refuses it
            return False
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
def _item(
    sends: SendHandler, p: cython.p_const_uchar, at: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Fill the record parts from the batch's item at p[at:stop]. Return the size of its record, or
    0 if the item is truncated or breaks a limit.
    """
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
    sends: SendHandler,
    link: Any,
    header: HeaderView,
    queue_offset: cython.longlong,
    ids_size: cython.Py_ssize_t,
    is_binary: cython.bint,
    recall_handle: bytes,
) -> cython.int:
    """Queue the reply. The message ids are in their buffer; the properties locate the unique
    key.
    """
    found: PropertyBuffer = sends._properties
    answers: ReplyBuffer = sends._safe if sends._waits and found.waits else sends._now
    template: ReplyTemplate
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
def _count(
    sends: SendHandler,
    header: HeaderView,
    topic: FastTopic,
    messages: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.bint:
    """Count a send of messages that are not deferred; returns True."""
    queue = topic.queues[header.queue_id]
    if queue is None:
        queue = topic.queues[header.queue_id] = FastQueue(topic.name, header.queue_id)
    tally: SendTally = topic.sharded if sends._properties.is_sharded else topic.plain
    count_send(sends.counts, tally, queue, messages, size, header.is_batch, header.flag & ONEWAY)
    return commit_if_full(sends)


@cython.cfunc
def commit_if_full(sends: SendHandler) -> cython.bint:
    """Have the appended messages committed, at once if the batch is large enough; returns True."""
    log: LogBatch = sends._log
    sends.is_pending = True
    if log.used >= log._batch_size_max:
        sends.commit()
        sends.refresh()
    return True
