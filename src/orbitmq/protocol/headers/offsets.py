"""Headers of consumer offsets and of positions in queues."""

from dataclasses import dataclass
from typing import ClassVar

from orbitmq.protocol.headers.base import BoundaryType, Header, Int32, Int64, RpcRequestHeader, TopicRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumerOffsetRequestHeader(TopicRequestHeader):
    """14: how far a group has consumed a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumerOffsetResponseHeader(Header):
    """Answer to 14."""

    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateConsumerOffsetRequestHeader(TopicRequestHeader):
    """15: a group has consumed a queue up to `commit_offset`."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMaxOffsetRequestHeader(TopicRequestHeader):
    """30: the end of a queue; unless `committed` is False, of what may be consumed."""

    topic: str
    queue_id: Int32
    committed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMaxOffsetResponseHeader(Header):
    """Answer to 30."""

    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMinOffsetRequestHeader(TopicRequestHeader):
    """31: the beginning of a queue."""

    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMinOffsetResponseHeader(Header):
    """Answer to 31."""

    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffsetRequestHeader(TopicRequestHeader):
    """29: the offset of the message that was stored at `timestamp`."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    lite_topic: str | None = None
    boundary_type: BoundaryType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffsetResponseHeader(Header):
    """Answer to 29."""

    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEarliestMsgStoretimeRequestHeader(TopicRequestHeader):
    """32: when the first message of a queue was stored."""

    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEarliestMsgStoretimeResponseHeader(Header):
    """Answer to 32."""

    timestamp: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetRequestHeader(TopicRequestHeader):
    """222, and 220 broker to client: consume again from `timestamp`, or from `offset` of one queue; all queues when none is named."""

    IS_STRICT: ClassVar[bool] = True
    group: str
    topic: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 | None = None
    offset: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerStatusRequestHeader(TopicRequestHeader):
    """223, and 221 broker to client: the offsets as the consumers see them."""

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCorrectionOffsetHeader(TopicRequestHeader):
    """308: the smallest offsets of the groups, compared with those of `compare_group`."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneGroupOffsetRequestHeader(RpcRequestHeader):
    """314: copy a group's offsets to another group."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None
