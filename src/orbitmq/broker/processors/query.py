"""Store look-ups: messages by key or offset, ends of queues, offsets by time, queue entries.

Read-only. A topic or queue that does not exist counts as empty, as in RocketMQ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orbitmq.broker.clients.consumers import Consumers
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.consume.filters.message_filters import ExpressionFilter
from orbitmq.broker.metadata.consumer_filters import ConsumerFilter, ConsumerFilters
from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.broker.processors.admin_replies import REMARK_LEFT
from orbitmq.common.errors import RequestRefusedError
from orbitmq.common.slices import Slices
from orbitmq.protocol.bodies.admin_topics import ConsumeQueueEntries, QueueEntry, encode_entry_unit
from orbitmq.protocol.bodies.consumer_filters import encode_filter
from orbitmq.protocol.bodies.subscriptions import SubscriptionData, is_tag_type
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import offsets as offset_headers
from orbitmq.protocol.headers import query as headers
from orbitmq.protocol.headers.base import BoundaryType
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.batch_consume_queue import BatchConsumeQueue
from orbitmq.store.consume_queue import Boundary, ConsumeQueue, Entry
from orbitmq.store.consume_queue_ext import is_ext_address
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reads import MessageFilter, TagsFilter
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs

_BY_TAGS: Final = "T"  # indexType: the key is the tags string of a message
# per reply: RocketMQ returns the rest of a file, which blocks its thread
_ENTRIES_MAX: Final = 10_000


class QueryProcessor:
    """Serves look-ups of messages, offsets and consume queue entries."""

    def __init__(
        self,
        settings: BrokerConfig,
        store: MessageStore,
        reads: PluggableReads,
        consumers: Consumers,
        filters: ConsumerFilters,
    ) -> None:
        self._settings = settings
        self._store = store
        self._reads = reads  # the store's, or a plug-in's
        self._consumers = consumers
        self._filters = filters

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.get_max_offset,
            RequestCode.GET_MIN_OFFSET: self.get_min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_time,
            RequestCode.QUERY_CONSUME_QUEUE: self.query_consume_queue,
        }

    # -- messages

    def query_message(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        header = headers.QueryMessageRequestHeader.from_fields(request.ext_fields)
        count = self._settings.default_query_max_num if header.unique_key_query else header.max_num
        if count < 0:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"maxNum={count} is below 0; ask for at least 1 message",
            )
        limits = {
            "count_max": min(count, self._settings.max_msgs_num_batch),
            "begin_ms": header.begin_timestamp,
            "end_ms": header.end_timestamp,
        }
        by_tags = header.index_type == _BY_TAGS
        if self._reads is self._store.reads:
            found = yield from self._store.reads.query_records_in_slices(
                header.topic, header.key, **limits, by_tags=by_tags
            )
        else:  # a plug-in's look-up has no slices
            found = self._reads.query_records(header.topic, header.key, **limits, by_tags=by_tags)
        response_header = headers.QueryMessageResponseHeader(
            index_last_update_timestamp=found.last_time_ms,
            index_last_update_phyoffset=found.last_offset,
        )
        if not found.record_count:
            remark = "can not find message, maybe time range not correct"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, header=response_header)
        return request.reply(ResponseCode.SUCCESS, header=response_header, body=found.records)

    def view_message(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        offset = headers.ViewMessageRequestHeader.from_fields(request.ext_fields).offset
        record = self._reads.record_at(LogOffset(offset)) if offset >= 0 else None
        if record is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {offset}; no message begins there, or it was"
                " deleted",
            )
        return request.reply(ResponseCode.SUCCESS, body=record)

    # -- offsets

    def search_offset(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = offset_headers.SearchOffsetRequestHeader.from_fields(request.ext_fields)
        boundary = Boundary.UPPER if header.boundary_type is BoundaryType.UPPER else Boundary.LOWER
        offset = self._store.reads.offset_by_time(
            QueueKey(header.topic, header.queue_id), StoreTimeMs(header.timestamp), boundary
        )
        return request.reply(
            ResponseCode.SUCCESS, header=offset_headers.SearchOffsetResponseHeader(offset=offset)
        )

    def get_max_offset(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = offset_headers.GetMaxOffsetRequestHeader.from_fields(request.ext_fields)
        offset = self._store.queues.max_offset(header.topic, header.queue_id)
        return request.reply(
            ResponseCode.SUCCESS, header=offset_headers.GetMaxOffsetResponseHeader(offset=offset)
        )

    def get_min_offset(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = offset_headers.GetMinOffsetRequestHeader.from_fields(request.ext_fields)
        offset = self._store.queues.min_offset(header.topic, header.queue_id)
        return request.reply(
            ResponseCode.SUCCESS,
            "",
            header=offset_headers.GetMinOffsetResponseHeader(offset=offset),
        )

    def get_earliest_time(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = offset_headers.GetEarliestMsgStoretimeRequestHeader.from_fields(request.ext_fields)
        time_ms = self._store.reads.earliest_time(QueueKey(header.topic, header.queue_id))
        return request.reply(
            ResponseCode.SUCCESS,
            header=offset_headers.GetEarliestMsgStoretimeResponseHeader(timestamp=time_ms),
        )

    # -- consume queue entries

    def query_consume_queue(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        header = headers.QueryConsumeQueueRequestHeader.from_fields(request.ext_fields)
        topic, queue_id, index = header.topic, header.queue_id or 0, header.index or 0
        if topic is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, "the field topic is missing; name the topic of the queue"
            )
        queues = self._store.queues
        queue = queues.plain.find(topic, queue_id) or queues.batch.find(topic, queue_id)
        if queue is None or not queue.min_offset <= index < queue.max_offset:
            return request.reply(
                ResponseCode.SUCCESS, f"Index {index} of {queue_id}@{topic} is not exist!"
            )
        subscription = filter_data = wanted = None
        if header.consumer_group is not None:
            group = self._consumers.find(header.consumer_group)
            subscription = None if group is None else group.subscriptions.get(topic)
            filter_data = f"{header.consumer_group}@{topic} is not online!"
            if subscription is not None:
                known = self._filters.find(topic, header.consumer_group)
                filter_data = "null" if known is None else encode_filter(known.data)
                wanted = _filter_of(subscription, known)
        body = ConsumeQueueEntries(
            min_offset=queue.min_offset,
            max_offset=queue.max_offset,
            entries=_entries(queue, index, index + min(header.count or 0, _ENTRIES_MAX), wanted),
            subscription=subscription,
            filter_data=filter_data,
        )
        return request.reply(ResponseCode.SUCCESS, REMARK_LEFT, body=(yield from body.encode()))


def _filter_of(subscription: SubscriptionData, known: ConsumerFilter | None) -> MessageFilter:
    """Return the filter that pulls of this subscription use."""
    if is_tag_type(subscription.expression_type) or known is None:
        return TagsFilter(subscription.wanted_codes)
    return ExpressionFilter(known.expression, known.data)


def _entries(
    queue: ConsumeQueue | BatchConsumeQueue, begin: int, end: int, wanted: MessageFilter | None
) -> Iterator[QueueEntry]:
    """Yield the entries in a range, up to the end of the queue; in a batch queue one per batch."""
    while begin < end:
        if isinstance(queue, BatchConsumeQueue):
            batch = queue.get(QueueOffset(begin))
            if batch is None:
                return
            begin = batch.next_offset
            yield QueueEntry(batch.log_offset, batch.size, batch.tags_code)
        else:
            entry = queue.get(QueueOffset(begin))
            if entry is None:
                return
            begin += 1
            yield _with_unit(queue, entry, wanted)


def _with_unit(queue: ConsumeQueue, entry: Entry, wanted: MessageFilter | None) -> QueueEntry:
    """Resolve an entry whose tags code lives in the ext file; `matches` says whether a pull would
    read its message.
    """
    if not is_ext_address(entry.tags_code):
        return QueueEntry(*entry)
    unit = queue.ext_unit(entry.tags_code)
    if unit is None:
        return QueueEntry(*entry, problem=f"Cq extend not exist!addr: {entry.tags_code}")
    codes = None if wanted is None else wanted.tags_codes
    is_of_tags = codes is None or unit.tags_code in codes
    return QueueEntry(
        entry.log_offset,
        entry.size,
        unit.tags_code,
        unit=encode_entry_unit(unit.tags_code, unit.store_time_ms, unit.size, unit.bits),
        matches=wanted is not None and is_of_tags and wanted.matches_entry(unit.tags_code, unit),
        bits=unit.bits,
    )
