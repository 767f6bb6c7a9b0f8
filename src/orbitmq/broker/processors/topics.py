"""Admin requests about topics: create, update, delete, list, and the ends of their queues.

Rules live in `Topics`. A change is confirmed once it is on disk. Invariant: a refused request
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.metadata.attributes import parse_changes
from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.topics import Topics
from orbitmq.broker.processors.admin_replies import (
    QUEUES_MAX,
    QUEUES_PER_SLICE,
    REMARK_LEFT,
    WhenSaved,
    read_body_in_slices,
    reply_when_saved,
    wanted_page,
)
from orbitmq.broker.produce.send_listener import ReplyListener
from orbitmq.common.errors import RefusedError, RequestRefusedError
from orbitmq.common.slices import Slices, slices_of, to_be_finished
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.admin_topics import TopicOffset, encode_topic_stats
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import (
    PERM_INHERIT,
    PERM_PRIORITY,
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    TopicConfig,
    TopicList,
)
from orbitmq.protocol.bodies.topics import decode_topic_list, encode_all_topics
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import topics as headers
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import QueueKey, QueueOffset

_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
_PERM_MAX: Final = PERM_PRIORITY | PERM_READ | PERM_WRITE | PERM_INHERIT
_CHECKED_PER_SLICE: Final = 1000
_LIGHT_QUEUE_PREFIX: Final = "%LMQ%"


class TopicListener(ReplyListener, Protocol):
    """Gets the duration and outcome of changes of topics."""

    def topic_made(self, took_ms: int, *, is_done: bool, is_system: bool) -> None: ...


class TopicProcessor:
    """Serves admin requests about topics.

    `when_saved` is that of topics.json; `put_tps` returns the messages per second stored in a
    topic; `deleted` is called with each deleted topic.
    """

    def __init__(
        self,
        settings: BrokerConfig,
        *,
        topics: Topics,
        offsets: Offsets,
        store: MessageStore,
        when_saved: WhenSaved,
        put_tps: Callable[[str], float],
        deleted: Callable[[str], object],
        listener: TopicListener,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._when_saved = when_saved
        self._put_tps = put_tps
        self._deleted = deleted
        self._mapping_version = DataVersion(
            timestamp=topics.data_version.timestamp
        )  # static topics are not supported

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all_topics,
            RequestCode.GET_TOPIC_CONFIG: self.get_topic,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topics,
            RequestCode.GET_TOPIC_STATS_INFO: self.get_topic_stats,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_log,
        }

    # -- changes

    def update_topic(self, channel: Channel, request: RemotingCommand) -> Slices[None]:
        header = headers.CreateTopicRequestHeader.from_fields(request.ext_fields)
        config = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            header.order,
            parse_changes(header.attributes),
        )
        yield from self._update(channel, request, [config])

    def update_topics(self, channel: Channel, request: RemotingCommand) -> Slices[None]:
        """Create or update topics, all or none: they become visible together, after all checks."""
        yield from self._update(
            channel, request, (yield from read_body_in_slices(decode_topic_list, request))
        )

    def _update(
        self, channel: Channel, request: RemotingCommand, wanted: list[TopicConfig]
    ) -> Slices[None]:
        is_system = any(self._topics.is_system(config.name) for config in wanted)
        made = partial(self._made, is_system)
        begun_ms = self._listener.monotonic_ms()
        try:
            for part in slices_of(wanted, _CHECKED_PER_SLICE):
                for config in part:
                    _check(config)
                if len(part) == _CHECKED_PER_SLICE:
                    yield
            yield from self._topics.update_in_slices(wanted)
        except (RefusedError, RequestRefusedError):
            made(self._listener.monotonic_ms() - begun_ms, False)
            raise
        done = request.reply(ResponseCode.SUCCESS, REMARK_LEFT)
        reply_when_saved(self._when_saved, channel, request, done, self._listener, made)

    def _made(self, is_system: bool, took_ms: int, is_done: bool) -> None:
        self._listener.topic_made(took_ms, is_done=is_done, is_system=is_system)

    @to_be_finished
    def delete_topic(self, channel: Channel, request: RemotingCommand) -> Slices[None]:
        """Delete a topic and its retry topics, one topic per slice."""
        topic = headers.DeleteTopicRequestHeader.from_fields(request.ext_fields).topic
        retry_topics = (
            self._pop_retry_topics(topic)
            if self._settings.clear_retry_topic_when_delete_topic
            else []
        )
        for number, name in enumerate((topic, *retry_topics)):
            if number:
                yield
            self._topics.delete(name)
            logged = self._offsets.delete_topic_in_slices(name)
            next(logged, None)  # drops the offsets even if the request is abandoned
            self._store.delete_topic(name)
            self._deleted(name)
            yield from logged
        reply_when_saved(
            self._when_saved, channel, request, request.reply(ResponseCode.SUCCESS), self._listener
        )

    def _pop_retry_topics(self, topic: str) -> list[str]:
        """Return the existing retry topics of groups that pop the topic."""
        names = [
            f"{RETRY_PREFIX}{group}{mark}{topic}"
            for group in sorted(self._offsets.groups_of(topic))
            for mark in "+_"
        ]
        return [name for name in names if self._topics.find(name) is not None]

    def clean_unused_topics(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        """Delete the queues of topics that no longer exist, one topic per slice."""
        known = {
            topic
            for folder in (self._store.queues.plain, self._store.queues.batch)
            for topic in folder.topics
        }
        for topic in known.difference(self._topics.table):
            if topic in self._topics.table:
                continue  # created meanwhile
            if not self._topics.is_system(topic) and not topic.startswith(_LIGHT_QUEUE_PREFIX):
                self._store.delete_topic(topic)
                self._deleted(topic)
                yield
        return request.reply(ResponseCode.SUCCESS)

    def clean_expired_queues(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        self._store.retention.clean_unused_queues()
        return request.reply(ResponseCode.SUCCESS)

    def delete_expired_log(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        self._store.retention.delete_expired_now()
        return request.reply(ResponseCode.SUCCESS)

    # -- queries

    def get_all_topics(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        """Return all topics, or a page of them, as of the first slice; the version tells whether
        they have changed since.
        """
        header = headers.GetAllTopicConfigRequestHeader.from_fields(request.ext_fields)
        version = self._topics.data_version
        page = wanted_page(
            self._settings, header.topic_seq, header.max_topic_num, header.data_version, version
        )
        response_header = headers.GetAllTopicConfigResponseHeader(total_topic_num=len(self._topics))
        topics = (
            dict(self._topics.table)
            if page is None
            else (yield from self._topics.page_in_slices(*page))
        )
        body = yield from encode_all_topics(topics, version, self._mapping_version)
        return request.reply(ResponseCode.SUCCESS, header=response_header, body=body)

    def get_topic(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        topic = headers.GetTopicConfigRequestHeader.from_fields(request.ext_fields).topic
        config = self._topics.find(topic)
        if config is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic in this broker. topic: {topic}; create it, or ask another broker",
            )
        return request.reply(ResponseCode.SUCCESS, body=fastjson.dumps(config.to_json()))

    def get_system_topics(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.reply(
            ResponseCode.SUCCESS, body=TopicList(sorted(self._topics.system_topics)).encode()
        )

    def get_topic_stats(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        topic = headers.GetTopicStatsInfoRequestHeader.from_fields(request.ext_fields).topic
        config = self._topics.find(topic)
        if config is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist; send to it, or create it"
            )
        offsets: dict[MessageQueue, TopicOffset] = {}
        for part in slices_of(
            range(max(config.read_queue_nums, config.write_queue_nums)), QUEUES_PER_SLICE
        ):
            for queue_id in part:
                offsets[MessageQueue(topic, self._settings.broker_name, queue_id)] = self._ends(
                    topic, queue_id
                )
            if len(part) == QUEUES_PER_SLICE:
                yield
        return request.reply(
            ResponseCode.SUCCESS,
            body=(yield from encode_topic_stats(offsets, self._put_tps(topic))),
        )

    def _ends(self, topic: str, queue_id: int) -> TopicOffset:
        queues = self._store.queues
        end = queues.max_offset(topic, queue_id)
        last_ms = (
            self._store.reads.store_time_of(QueueKey(topic, queue_id), QueueOffset(end - 1))
            if end > 0
            else 0
        )
        return TopicOffset(queues.min_offset(topic, queue_id), end, last_ms)


def _check(config: TopicConfig) -> None:
    """Refuse values that no topic can have; RocketMQ accepts any number."""
    if config.filter_type not in _FILTER_TYPES:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"topicFilterType = [{config.filter_type}] value invalid; it is one of"
            f" {', '.join(_FILTER_TYPES)}",
        )
    for name, count in (
        ("readQueueNums", config.read_queue_nums),
        ("writeQueueNums", config.write_queue_nums),
    ):
        if not 0 <= count <= QUEUES_MAX:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"{name}={count} of topic[{config.name}] is out of range; give 0 to {QUEUES_MAX}"
                " queues",
            )
    if not 0 <= config.perm <= _PERM_MAX:
        raise RequestRefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"perm={config.perm} of topic[{config.name}] is not a permission; it is the sum of"
            f" {PERM_READ} (read) and {PERM_WRITE} (write)",
        )
