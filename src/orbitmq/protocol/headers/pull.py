"""Headers of pull requests and responses."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final

from orbitmq.protocol.headers.base import Header, Int32, Int64, TopicRequestHeader, Wire

# Bits of `sys_flag`.
COMMITS_OFFSET: Final = 1
SUSPENDS: Final = 2
HAS_SUBSCRIPTION: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessageRequestHeader(TopicRequestHeader):
    """Request header of PULL_MESSAGE and LITE_PULL_MESSAGE: pull messages of one queue from
    `queue_offset` on.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    lite_topic: str | None = None
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_forward_client_id: Annotated[str | None, Wire("proxyFrowardClientId")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessageResponseHeader(Header):
    """Response header of PULL_MESSAGE and LITE_PULL_MESSAGE."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class ForbiddenBy(IntEnum):
    """The rule that forbids a pull."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4
    SUBSCRIPTION = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PullForbiddenResponseHeader(Header):
    """Response header of a forbidden pull: the only field it has."""

    forbidden_type: Int32
