"""Headers of consumer group administration."""

from dataclasses import dataclass

from orbitmq.protocol.headers.base import Header, Int32, RpcRequestHeader, TopicRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSubscriptionGroupConfigRequestHeader(RpcRequestHeader):
    """Request header of GET_SUBSCRIPTIONGROUP_CONFIG: return a group's configuration."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllSubscriptionGroupRequestHeader(Header):
    """Request header of GET_ALL_SUBSCRIPTIONGROUP_CONFIG: list all groups, by pages since 5.x; 4.9
    slaves send no fields.
    """

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllSubscriptionGroupResponseHeader(Header):
    """Response header of GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    total_group_num: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSubscriptionGroupRequestHeader(RpcRequestHeader):
    """Request header of DELETE_SUBSCRIPTIONGROUP: delete a group. 4.9 tools send `remove_offset`
    for `clean_offset`; a 5.5.0 broker ignores it.
    """

    group_name: str
    clean_offset: bool | None = None
    remove_offset: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGroupForbiddenRequestHeader(TopicRequestHeader):
    """Request header of UPDATE_AND_GET_GROUP_FORBIDDEN: forbid or allow a group to read a topic."""

    group: str
    topic: str
    readable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumeStatsRequestHeader(TopicRequestHeader):
    """Request header of GET_CONSUME_STATS: return the lag of a group."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumeStatsInBrokerHeader(Header):
    """Request header of GET_BROKER_CONSUME_STATS: return the lag of all groups."""

    is_order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeTimeSpanRequestHeader(TopicRequestHeader):
    """Request header of QUERY_CONSUME_TIME_SPAN: return the times of the first, the last and the
    next message to consume.
    """

    topic: str
    group: str
