"""Headers of consumer group administration."""

from dataclasses import dataclass

from orbitmq.protocol.headers.base import Header, Int32, RpcRequestHeader, TopicRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSubscriptionGroupConfigRequestHeader(RpcRequestHeader):
    """352: a group's configuration."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllSubscriptionGroupRequestHeader(Header):
    """201: all groups, since 5.x page by page; 4.9 slaves send no fields."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllSubscriptionGroupResponseHeader(Header):
    """Answer to 201."""

    total_group_num: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSubscriptionGroupRequestHeader(RpcRequestHeader):
    """207: delete a group; `remove_offset` is the name that 4.9 tools give `clean_offset`, and a 5.5.0 broker does not look at it."""

    group_name: str
    clean_offset: bool | None = None
    remove_offset: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGroupForbiddenRequestHeader(TopicRequestHeader):
    """353: forbid or allow a group to read a topic."""

    group: str
    topic: str
    readable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumeStatsRequestHeader(TopicRequestHeader):
    """208: how far a group is behind."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumeStatsInBrokerHeader(Header):
    """317: how far all groups are behind."""

    is_order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeTimeSpanRequestHeader(TopicRequestHeader):
    """303: the times of the first, the last and the next message to consume."""

    topic: str
    group: str
