"""Requests about the progress of consumer groups: offsets of consumers (`OffsetService`), and what
operators ask: lag, times, subscriptions, copies from group to group.

Invariant: a request that is refused changes nothing. Differences from Apache RocketMQ:
QUERY_CORRECTION_OFFSET leaves the groups to skip as they are (there their offsets are deleted);
CLONE_GROUP_OFFSET without a topic copies all topics (there none).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from orbitmq.broker.clients.consumers import Consumers
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.consume.offset_service import OffsetService
from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.groups import Groups
from orbitmq.broker.metadata.topic_names import check_group
from orbitmq.broker.metadata.topics import Topics
from orbitmq.broker.processors.admin_replies import QUEUES_PER_SLICE
from orbitmq.common.clock import Clock
from orbitmq.common.errors import RefusedError, RequestRefusedError
from orbitmq.common.slices import Slices, slices_of, sorted_in_slices, to_be_finished
from orbitmq.protocol.bodies.admin_groups import encode_group_list, encode_group_subscription
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.consume_stats import (
    AllConsumeStats,
    ConsumedQueue,
    ConsumeStats,
    QueueTimeSpan,
    encode_correction_offsets,
    encode_time_spans,
)
from orbitmq.protocol.bodies.nameserver import TopicConfig, TopicList
from orbitmq.protocol.bodies.subscriptions import SubscriptionData
from orbitmq.protocol.codes import REFUSAL_CODES, RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import groups as group_headers
from orbitmq.protocol.headers import offsets as headers
from orbitmq.protocol.headers import topics as topic_headers
from orbitmq.protocol.headers.base import Header
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import QueueKey, QueueOffset

_NO_FIELDS: Final = Header()  # Apache RocketMQ replies to some requests with an empty header
SPANS_MAX: Final = 16_384  # of a reply, 300 bytes each: clients take 16 MiB
_SPANS_PER_SLICE: Final = 25  # each looks up four times
_COMPARED_PER_SLICE: Final = 10_000
_NO_OFFSET: Final = (1 << 63) - 1


class ConsumerOffsetProcessor:
    """Serves requests about offsets and consumption.

    `address` returns the advertised address; `get_tps` the messages of a topic per second that a
    group gets.
    """

    def __init__(
        self,
        settings: BrokerConfig,
        service: OffsetService,
        *,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        consumers: Consumers,
        store: MessageStore,
        clock: Clock,
        address: Callable[[], str],
        get_tps: Callable[[str, str], float],
    ) -> None:
        self._settings = settings
        self._service = service
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._store = store
        self._clock = clock
        self._address = address
        self._get_tps = get_tps

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all_offsets,
            RequestCode.GET_CONSUME_STATS: self.get_consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.get_all_consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.query_time_span,
            RequestCode.QUERY_CORRECTION_OFFSET: self.query_correction,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_offsets,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.query_groups,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.query_topics,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.query_subscription,
        }

    # -- of consumers

    def query_offset(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = headers.QueryConsumerOffsetRequestHeader.from_fields(request.ext_fields)
        try:
            offset = self._service.query(
                header.consumer_group,
                header.topic,
                header.queue_id,
                is_zero_if_new=header.set_zero_if_not_found is not False,
            )
        except RefusedError as refused:
            code = REFUSAL_CODES[refused.refusal]
            return request.reply(code, refused.remark, header=_NO_FIELDS)
        return request.reply(
            ResponseCode.SUCCESS, header=headers.QueryConsumerOffsetResponseHeader(offset=offset)
        )

    def update_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = headers.UpdateConsumerOffsetRequestHeader.from_fields(request.ext_fields)
        is_committed = self._service.commit(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.commit_offset,
            client=channel.remote_address,
        )
        remark = None if is_committed else "Offset has been previously reset"
        return request.reply(ResponseCode.SUCCESS, remark, header=_NO_FIELDS)

    # -- of slaves

    def get_all_offsets(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        """Return all offsets. Those committed meanwhile may be missing, and belong to a later
        version.
        """
        return request.reply(
            ResponseCode.SUCCESS, body=(yield from self._offsets.encode_in_slices())
        )

    # -- of operators: lag

    def get_consume_stats(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        header = group_headers.GetConsumeStatsRequestHeader.from_fields(request.ext_fields)
        group, stats = header.consumer_group, ConsumeStats()
        named = [topic for topic in (header.topic_list or "").split(";") if topic.strip()]
        subscribed = [] if named else (yield from self._subscribed(group, header.topic))
        queues = (
            (config, queue_id)
            for config in self._known(named or subscribed)
            for queue_id in range(config.read_queue_nums)
        )
        for part in slices_of(queues, QUEUES_PER_SLICE):
            for config, queue_id in part:
                consumed = self._consumed(group, config.name, queue_id)
                pulled = self._offsets.query_pull(group, config.name, queue_id)
                stats.queues[self._queue(config.name, queue_id)] = consumed._replace(
                    pull_offset=max(consumed.consumer_offset, -1 if pulled is None else pulled)
                )
            if len(part) == QUEUES_PER_SLICE:
                yield
        for configs in slices_of(self._known(named or subscribed), QUEUES_PER_SLICE):
            stats.consume_tps += sum(self._get_tps(config.name, group) for config in configs)
            if len(configs) == QUEUES_PER_SLICE:
                yield
        return request.reply(ResponseCode.SUCCESS, body=(yield from stats.encode()))

    def get_all_consume_stats(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        """Return the progress of each group in each topic; each queue is read once, at some time
        between request and reply.
        """
        is_order = group_headers.GetConsumeStatsInBrokerHeader.from_fields(
            request.ext_fields
        ).is_order
        all_stats = AllConsumeStats()
        looked_at = 0
        for config in list(self._groups):
            stats: list[ConsumeStats] = []
            for topic in self._known((yield from self._subscribed(config.name))):
                if is_order and not topic.order:
                    continue
                one = ConsumeStats({}, self._get_tps(topic.name, config.name))
                stats.append(one)
                looked_at += 1
                for queue_id in range(topic.write_queue_nums):
                    one.queues[self._queue(topic.name, queue_id)] = self._consumed(
                        config.name, topic.name, queue_id
                    )
                    looked_at += 1
                    if looked_at >= QUEUES_PER_SLICE:
                        looked_at = 0
                        yield
            yield from all_stats.add(config.name, stats)
            looked_at += 1
            if looked_at >= QUEUES_PER_SLICE:
                looked_at = 0
                yield
        return request.reply(ResponseCode.SUCCESS, body=all_stats.encode(self._address()))

    def query_time_span(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        header = group_headers.QueryConsumeTimeSpanRequestHeader.from_fields(request.ext_fields)
        config = self._topics.find(header.topic)
        if config is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist; send to it, or create it",
            )
        if config.write_queue_nums > SPANS_MAX:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"topic[{header.topic}] has {config.write_queue_nums} queues; the times of at most"
                f" {SPANS_MAX} fit a reply: request the group's statistics (GET_CONSUME_STATS)",
            )
        spans: list[QueueTimeSpan] = []
        for part in slices_of(range(config.write_queue_nums), _SPANS_PER_SLICE):
            spans += [self._time_span(header.group, header.topic, queue_id) for queue_id in part]
            if len(part) == _SPANS_PER_SLICE:
                yield
        return request.reply(ResponseCode.SUCCESS, body=(yield from encode_time_spans(spans)))

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        """Return the times of a queue. As in Apache RocketMQ, the delay of a group that consumed
        nothing yet counts from the epoch.
        """
        first_ms = self._store.reads.earliest_time(QueueKey(topic, queue_id))
        end = self._store.queues.max_offset(topic, queue_id)
        committed = self._offsets.query(group, topic, queue_id)
        consumed = -1 if committed is None else committed
        return QueueTimeSpan(
            self._queue(topic, queue_id),
            min_ms=first_ms,
            max_ms=self._time_of(topic, queue_id, end - 1),
            consumed_ms=self._time_of(topic, queue_id, consumed - 1) if consumed > 0 else first_ms,
            delay_ms=(
                max(self._clock.now_ms() - self._time_of(topic, queue_id, consumed), 0)
                if consumed < end
                else 0
            ),
        )

    def query_correction(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        """Return the smallest offset of the groups by queue; none (the largest number) where the
        compared group is behind it.
        """
        header = headers.QueryCorrectionOffsetHeader.from_fields(request.ext_fields)
        topic, skipped = header.topic, set((header.filter_groups or "").split(","))
        least: dict[int, int] = {}
        offsets = (
            item
            for group in self._offsets.groups_of(topic) - skipped
            for item in list(self._offsets.of(group, topic).items())
        )
        for part in slices_of(offsets, QUEUES_PER_SLICE):
            for queue_id, offset in part:
                if offset >= self._store.queues.min_offset(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
            if len(part) == QUEUES_PER_SLICE:
                yield
        compared = list(self._offsets.of(header.compare_group, topic).items())
        for part in slices_of(compared, _COMPARED_PER_SLICE):
            for queue_id, offset in part:
                if least.get(queue_id, offset) > offset:
                    least[queue_id] = _NO_OFFSET
            if len(part) == _COMPARED_PER_SLICE:
                yield
        return request.reply(
            ResponseCode.SUCCESS, body=(yield from encode_correction_offsets(least))
        )

    # -- of operators: groups and topics

    def query_groups(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        topic = topic_headers.QueryTopicConsumeByWhoRequestHeader.from_fields(
            request.ext_fields
        ).topic
        groups = self._offsets.groups_of(topic).union(self._consumers.groups_of_topic(topic))
        return request.reply(
            ResponseCode.SUCCESS,
            body=(yield from encode_group_list((yield from sorted_in_slices(groups)))),
        )

    def query_topics(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        group = topic_headers.QueryTopicsByConsumerRequestHeader.from_fields(
            request.ext_fields
        ).group
        topics = TopicList(
            (yield from sorted_in_slices(self._offsets.topics_of(group))), self._address()
        )
        return request.reply(ResponseCode.SUCCESS, body=(yield from topics.encode_in_slices()))

    def query_subscription(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = topic_headers.QuerySubscriptionByConsumerRequestHeader.from_fields(
            request.ext_fields
        )
        subscription = (
            None if header.topic is None else self._subscriptions(header.group).get(header.topic)
        )
        return request.reply(
            ResponseCode.SUCCESS,
            body=encode_group_subscription(header.group, header.topic, subscription),
        )

    @to_be_finished
    def clone_offsets(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        """Copy the offsets of a group to another, topic by topic; others may see only some of them
        copied meanwhile.
        """
        header = headers.CloneGroupOffsetRequestHeader.from_fields(request.ext_fields)
        check_group(header.dest_group)
        if header.offline:
            topics = (
                [header.topic] if header.topic else list(self._offsets.topics_of(header.src_group))
            )
        else:
            topics = yield from self._subscribed(header.src_group, header.topic)
        for part in slices_of(self._known(topics), QUEUES_PER_SLICE):
            for config in part:
                yield from self._offsets.clone_in_slices(
                    header.src_group, header.dest_group, config.name
                )
            if len(part) == QUEUES_PER_SLICE:
                yield
        return request.reply(ResponseCode.SUCCESS)

    # -- shared

    def _subscriptions(self, group: str) -> dict[str, SubscriptionData]:
        """Return the subscriptions of a group by topic; none if it is not online."""
        online = self._consumers.find(group)
        return {} if online is None else online.subscriptions

    def _subscribed(self, group: str, topic: str | None = None) -> Slices[list[str]]:
        """Return the topics in which a group has offsets, or the named one; of a group that is
        online, only those it subscribes to.
        """
        subscriptions = self._subscriptions(group)
        is_named = topic is not None and topic != "" and not topic.isspace()
        topics = (
            [topic or ""]
            if is_named
            else (yield from sorted_in_slices(self._offsets.topics_of(group)))
        )
        return [each for each in topics if not subscriptions or each in subscriptions]

    def _known(self, topics: Iterable[str]) -> Iterable[TopicConfig]:
        return filter(None, map(self._topics.find, dict.fromkeys(topics)))

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._settings.broker_name, queue_id)

    def _consumed(self, group: str, topic: str, queue_id: int) -> ConsumedQueue:
        offset = self._offsets.query(group, topic, queue_id) or 0
        last_ms = self._time_of(topic, queue_id, offset - 1) if offset else 0
        return ConsumedQueue(
            self._store.queues.max_offset(topic, queue_id), offset, last_timestamp=max(last_ms, 0)
        )

    def _time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message of a queue was stored; -1 if it does not exist."""
        return (
            self._store.reads.store_time_of(QueueKey(topic, queue_id), QueueOffset(offset))
            if offset >= 0
            else -1
        )
