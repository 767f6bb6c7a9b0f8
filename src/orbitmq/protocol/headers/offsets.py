"""Headers of the requests about consumer offsets and queue positions."""

from dataclasses import dataclass
from typing import ClassVar

from orbitmq.protocol.headers.base import (
    BoundaryType,
    Header,
    Int32,
    Int64,
    RpcRequestHeader,
    TopicRequestHeader,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumerOffsetRequestHeader(TopicRequestHeader):
    """Request header of QUERY_CONSUMER_OFFSET: return a group's offset in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumerOffsetResponseHeader(Header):
    """Response header of QUERY_CONSUMER_OFFSET."""

    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateConsumerOffsetRequestHeader(TopicRequestHeader):
    """Request header of UPDATE_CONSUMER_OFFSET: commit `commit_offset` for a group and a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMaxOffsetRequestHeader(TopicRequestHeader):
    """Request header of GET_MAX_OFFSET: return the end of a queue; unless `committed` is False, of
    its consumable messages.
    """

    topic: str
    queue_id: Int32
    committed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMaxOffsetResponseHeader(Header):
    """Response header of GET_MAX_OFFSET."""

    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMinOffsetRequestHeader(TopicRequestHeader):
    """Request header of GET_MIN_OFFSET: return the beginning of a queue."""

    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMinOffsetResponseHeader(Header):
    """Response header of GET_MIN_OFFSET."""

    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffsetRequestHeader(TopicRequestHeader):
    """Request header of SEARCH_OFFSET_BY_TIMESTAMP: return the offset of the message stored at
    `timestamp`.
    """

    topic: str
    queue_id: Int32
    timestamp: Int64
    lite_topic: str | None = None
    boundary_type: BoundaryType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffsetResponseHeader(Header):
    """Response header of SEARCH_OFFSET_BY_TIMESTAMP."""

    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEarliestMsgStoretimeRequestHeader(TopicRequestHeader):
    """Request header of GET_EARLIEST_MSG_STORETIME: return when the first message of a queue was
    stored.
    """

    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEarliestMsgStoretimeResponseHeader(Header):
    """Response header of GET_EARLIEST_MSG_STORETIME."""

    timestamp: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetRequestHeader(TopicRequestHeader):
    """Request header of INVOKE_BROKER_TO_RESET_OFFSET, and of RESET_CONSUMER_CLIENT_OFFSET broker
    to client: consume again from `timestamp`, or from `offset` of one queue; all queues if none is
    named.
    """

    IS_STRICT: ClassVar[bool] = True
    group: str
    topic: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 | None = None
    offset: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerStatusRequestHeader(TopicRequestHeader):
    """Request header of INVOKE_BROKER_TO_GET_CONSUMER_STATUS, and of
    GET_CONSUMER_STATUS_FROM_CLIENT broker to client: return the offsets as the consumers see them.
    """

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCorrectionOffsetHeader(TopicRequestHeader):
    """Request header of QUERY_CORRECTION_OFFSET: return the smallest offsets of the groups,
    compared with those of `compare_group`.
    """

    compare_group: str
    topic: str
    filter_groups: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneGroupOffsetRequestHeader(RpcRequestHeader):
    """Request header of CLONE_GROUP_OFFSET: copy a group's offsets to another group."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None
