"""Headers of topic administration."""

from dataclasses import dataclass

from orbitmq.protocol.headers.base import Header, Int32, RpcRequestHeader, TopicRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicRequestHeader(TopicRequestHeader):
    """17, 513: create or change a topic."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    order: bool
    topic_sys_flag: Int32 | None = None
    attributes: str | None = None
    force: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicRequestHeader(TopicRequestHeader):
    """215: delete a topic on this broker."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicConfigRequestHeader(TopicRequestHeader):
    """351: a topic's configuration."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllTopicConfigRequestHeader(Header):
    """21: all topics, since 5.x page by page; 4.9 slaves send no fields."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllTopicConfigResponseHeader(Header):
    """Answer to 21."""

    total_topic_num: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicStatsInfoRequestHeader(TopicRequestHeader):
    """202: the queues of a topic and their ends."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTopicConsumeByWhoRequestHeader(TopicRequestHeader):
    """300: the groups that consume a topic."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTopicsByConsumerRequestHeader(RpcRequestHeader):
    """343: the topics that a group consumes."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySubscriptionByConsumerRequestHeader(TopicRequestHeader):
    """345: how a group subscribes a topic."""

    group: str
    topic: str | None = None
