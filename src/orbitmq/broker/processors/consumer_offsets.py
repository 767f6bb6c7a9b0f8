"""How far consumer groups are: committed, asked for, compared with the ends of queues, copied from group to group.

Rules live in `Offsets`. Invariant: a request that is refused changes nothing. Against the original: an offset below zero is not committed
(there it would wipe out how far the group was), nor one of a queue that is not there; QUERY_CORRECTION_OFFSET leaves the groups that it is
told to pass over as they are (there their offsets are deleted); CLONE_GROUP_OFFSET without a topic copies all topics (there none); a new
group begins at 0 in a queue that never had a message (docs/decisions/0016-first-message.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from orbitmq.broker.consumers import Consumers
from orbitmq.broker.groups import Groups
from orbitmq.broker.offsets import Offsets
from orbitmq.broker.processors.admin_answers import QUEUES_PER_SLICE, check_queue
from orbitmq.broker.topic_names import check_group
from orbitmq.broker.topics import Topics
from orbitmq.common.clock import Clock
from orbitmq.common.errors import RequestRefused
from orbitmq.common.slices import Slices, slices_of, sorted_in_slices
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
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import groups as group_headers
from orbitmq.protocol.headers import offsets as headers
from orbitmq.protocol.headers import topics as topic_headers
from orbitmq.protocol.headers.base import Header
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reads import GetStatus
from orbitmq.store.types import QueueKey, QueueOffset

_NO_FIELDS: Final = Header()  # the original answers some requests with an empty header
_SPANS_PER_SLICE: Final = 25  # each looks up four times
_NO_OFFSET: Final = (1 << 63) - 1


class ConsumerOffsetSettings(Protocol):
    """What of the configuration requests about offsets look at."""

    @property
    def broker_name(self) -> str: ...


class ConsumerOffsetProcessor:
    """14, 15, 43, 208, 300, 303, 308, 314, 317, 343 and 345.

    `address` is where clients reach this broker; `get_tps` says how many messages of a topic a group gets a second.
    """

    def __init__(
        self,
        settings: ConsumerOffsetSettings,
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

    # -- what consumers ask and say

    def query_offset(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = headers.QueryConsumerOffsetRequestHeader.from_fields(request.ext_fields)
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            if header.set_zero_if_not_found is False:
                remark = "Not found, do not set to zero, maybe this group boot first"
                return request.answer(ResponseCode.QUERY_NOT_FOUND, remark, header=_NO_FIELDS)
            if not self._is_unused(header.topic, header.queue_id) and not self._is_young(header.topic, header.queue_id):
                remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                return request.answer(ResponseCode.QUERY_NOT_FOUND, remark, header=_NO_FIELDS)
            offset = 0
        return request.answer(ResponseCode.SUCCESS, header=headers.QueryConsumerOffsetResponseHeader(offset=offset))

    def _is_unused(self, topic: str, queue_id: int) -> bool:
        """Whether a topic has that queue, and nothing was ever stored in it.

        A consumer that is told of no offset asks for the end of the queue next, and would begin behind what comes in between.
        """
        config = self._topics.find(topic)
        if config is None or not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            return False
        return self._store.queues.max_offset(topic, queue_id) == 0

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Whether the queue still has its first message, and memory has it too: then a new group begins with it."""
        found = self._store.reads.get(QueueKey(topic, queue_id), QueueOffset(0), count_max=1)
        return found.min_offset <= 0 and found.status is GetStatus.FOUND and not found.suggest_slave

    def update_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = headers.UpdateConsumerOffsetRequestHeader.from_fields(request.ext_fields)
        group, topic, queue_id, offset = header.consumer_group, header.topic, header.queue_id, header.commit_offset
        if group not in self._groups:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist! Pull or send a heartbeat first, or create it"
            )
        config = self._topics.find(topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist! Send to it, or create it")
        if queue_id < 0 or offset < 0:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"offset {offset} of queue {queue_id} of {topic} cannot be committed for {group}: both begin with 0",
            )
        check_queue(config, queue_id, self._store.queues)
        if self._offsets.server_side_reset and self._offsets.has_reset(group, topic, queue_id):
            return request.answer(ResponseCode.SUCCESS, "Offset has been previously reset", header=_NO_FIELDS)
        self._offsets.commit(group, topic, queue_id, offset, client=channel.remote_address)
        return request.answer(ResponseCode.SUCCESS, header=_NO_FIELDS)

    # -- what slaves ask

    def get_all_offsets(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        """Tell all offsets; those that are committed meanwhile may be in it or not, and are news of a later version."""
        return request.answer(ResponseCode.SUCCESS, body=(yield from self._offsets.encode_in_slices()))

    # -- what operators ask: how far behind

    def get_consume_stats(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        header = group_headers.GetConsumeStatsRequestHeader.from_fields(request.ext_fields)
        group, stats = header.consumer_group, ConsumeStats()
        named = [topic for topic in (header.topic_list or "").split(";") if topic.strip()]
        subscribed = [] if named else (yield from self._subscribed(group, header.topic))
        queues = ((config, queue_id) for config in self._known(named or subscribed) for queue_id in range(config.read_queue_nums))
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
        return request.answer(ResponseCode.SUCCESS, body=(yield from stats.encode()))

    def get_all_consume_stats(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        """Tell how far each group is in each topic; each queue is looked at once, at some time between request and answer."""
        is_order = group_headers.GetConsumeStatsInBrokerHeader.from_fields(request.ext_fields).is_order
        told = AllConsumeStats()
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
                    one.queues[self._queue(topic.name, queue_id)] = self._consumed(config.name, topic.name, queue_id)
                    looked_at += 1
                    if looked_at >= QUEUES_PER_SLICE:
                        looked_at = 0
                        yield
            yield from told.add(config.name, stats)
            looked_at += 1
            if looked_at >= QUEUES_PER_SLICE:
                looked_at = 0
                yield
        return request.answer(ResponseCode.SUCCESS, body=told.encode(self._address()))

    def query_time_span(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        header = group_headers.QueryConsumeTimeSpanRequestHeader.from_fields(request.ext_fields)
        config = self._topics.find(header.topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist; send to it, or create it")
        spans: list[QueueTimeSpan] = []
        for part in slices_of(range(config.write_queue_nums), _SPANS_PER_SLICE):
            spans += [self._time_span(header.group, header.topic, queue_id) for queue_id in part]
            if len(part) == _SPANS_PER_SLICE:
                yield
        return request.answer(ResponseCode.SUCCESS, body=(yield from encode_time_spans(spans)))

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        """The times of a queue; the delay of a group that consumed nothing yet is as long as time is, as the original has it."""
        first_ms = self._store.reads.earliest_time(QueueKey(topic, queue_id))
        end = self._store.queues.max_offset(topic, queue_id)
        committed = self._offsets.query(group, topic, queue_id)
        consumed = -1 if committed is None else committed
        return QueueTimeSpan(
            self._queue(topic, queue_id),
            min_ms=first_ms,
            max_ms=self._time_of(topic, queue_id, end - 1),
            consumed_ms=self._time_of(topic, queue_id, consumed - 1) if consumed > 0 else first_ms,
            delay_ms=max(self._clock.now_ms() - self._time_of(topic, queue_id, consumed), 0) if consumed < end else 0,
        )

    def query_correction(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        """Tell, by queue, the smallest offset of the groups; none (the largest number) where the compared group is behind it."""
        header = headers.QueryCorrectionOffsetHeader.from_fields(request.ext_fields)
        topic, passed_over = header.topic, set((header.filter_groups or "").split(","))
        least: dict[int, int] = {}
        offsets = (item for group in self._offsets.groups_of(topic) - passed_over for item in list(self._offsets.of(group, topic).items()))
        for part in slices_of(offsets, QUEUES_PER_SLICE):
            for queue_id, offset in part:
                if offset >= self._store.queues.min_offset(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
            if len(part) == QUEUES_PER_SLICE:
                yield
        for queue_id, offset in self._offsets.of(header.compare_group, topic).items():
            if least.get(queue_id, offset) > offset:
                least[queue_id] = _NO_OFFSET
        return request.answer(ResponseCode.SUCCESS, body=(yield from encode_correction_offsets(least)))

    # -- what operators ask: who consumes what

    def query_groups(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        topic = topic_headers.QueryTopicConsumeByWhoRequestHeader.from_fields(request.ext_fields).topic
        groups = self._offsets.groups_of(topic).union(self._consumers.groups_of_topic(topic))
        return request.answer(ResponseCode.SUCCESS, body=(yield from encode_group_list((yield from sorted_in_slices(groups)))))

    def query_topics(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        group = topic_headers.QueryTopicsByConsumerRequestHeader.from_fields(request.ext_fields).group
        topics = TopicList((yield from sorted_in_slices(self._offsets.topics_of(group))), self._address())
        return request.answer(ResponseCode.SUCCESS, body=(yield from topics.encode_in_slices()))

    def query_subscription(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = topic_headers.QuerySubscriptionByConsumerRequestHeader.from_fields(request.ext_fields)
        subscription = None if header.topic is None else self._subscriptions(header.group).get(header.topic)
        return request.answer(ResponseCode.SUCCESS, body=encode_group_subscription(header.group, header.topic, subscription))

    def clone_offsets(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        """Copy the offsets of a group to another, topic by topic: others, and a requester who leaves before the answer, see some copied."""
        header = headers.CloneGroupOffsetRequestHeader.from_fields(request.ext_fields)
        check_group(header.dest_group)
        if header.offline:
            topics = [header.topic] if header.topic else list(self._offsets.topics_of(header.src_group))
        else:
            topics = yield from self._subscribed(header.src_group, header.topic)
        for part in slices_of(self._known(topics), QUEUES_PER_SLICE):
            for config in part:
                self._offsets.clone(header.src_group, header.dest_group, config.name)
            if len(part) == QUEUES_PER_SLICE:
                yield
        return request.answer(ResponseCode.SUCCESS)

    # -- shared

    def _subscriptions(self, group: str) -> dict[str, SubscriptionData]:
        """What a group subscribes, by topic; nothing when it is not online."""
        online = self._consumers.find(group)
        return {} if online is None else online.subscriptions

    def _subscribed(self, group: str, topic: str | None = None) -> Slices[list[str]]:
        """The topics of which a group has offsets, or the one that is named; of a group that is online, those that it subscribes."""
        subscriptions = self._subscriptions(group)
        is_named = topic is not None and topic != "" and not topic.isspace()
        topics = [topic or ""] if is_named else (yield from sorted_in_slices(self._offsets.topics_of(group)))
        return [each for each in topics if not subscriptions or each in subscriptions]

    def _known(self, topics: Iterable[str]) -> Iterable[TopicConfig]:
        return filter(None, map(self._topics.find, dict.fromkeys(topics)))

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._settings.broker_name, queue_id)

    def _consumed(self, group: str, topic: str, queue_id: int) -> ConsumedQueue:
        offset = self._offsets.query(group, topic, queue_id) or 0
        last_ms = self._time_of(topic, queue_id, offset - 1) if offset else 0
        return ConsumedQueue(self._store.queues.max_offset(topic, queue_id), offset, last_timestamp=max(last_ms, 0))

    def _time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """When a message of a queue was stored; -1 when there is no such one."""
        return self._store.reads.store_time_of(QueueKey(topic, queue_id), QueueOffset(offset)) if offset >= 0 else -1
