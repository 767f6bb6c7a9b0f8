"""Headers of topic administration."""

from dataclasses import dataclass

from orbitmq.protocol.headers.base import Header, Int32, RpcRequestHeader, TopicRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicRequestHeader(TopicRequestHeader):
    """Request header of UPDATE_AND_CREATE_TOPIC and UPDATE_AND_CREATE_STATIC_TOPIC: create or
    update a topic.
    """

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
    """Request header of DELETE_TOPIC_IN_BROKER: delete a topic on this broker."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicConfigRequestHeader(TopicRequestHeader):
    """Request header of GET_TOPIC_CONFIG: return a topic's configuration."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllTopicConfigRequestHeader(Header):
    """Request header of GET_ALL_TOPIC_CONFIG: list all topics, by pages since 5.x; 4.9 slaves send
    no fields.
    """

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllTopicConfigResponseHeader(Header):
    """Response header of GET_ALL_TOPIC_CONFIG."""

    total_topic_num: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicStatsInfoRequestHeader(TopicRequestHeader):
    """Request header of GET_TOPIC_STATS_INFO: return the queues of a topic and their ends."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTopicConsumeByWhoRequestHeader(TopicRequestHeader):
    """Request header of QUERY_TOPIC_CONSUME_BY_WHO: list the groups that consume a topic."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTopicsByConsumerRequestHeader(RpcRequestHeader):
    """Request header of QUERY_TOPICS_BY_CONSUMER: list the topics that a group consumes."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySubscriptionByConsumerRequestHeader(TopicRequestHeader):
    """Request header of QUERY_SUBSCRIPTION_BY_CONSUMER: return a group's subscription to
    a topic.
    """

    group: str
    topic: str | None = None
