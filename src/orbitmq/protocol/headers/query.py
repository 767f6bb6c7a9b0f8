"""Headers of the requests that look up single messages and queue entries."""

from dataclasses import dataclass
from typing import Annotated

from orbitmq.protocol.headers.base import Header, Int32, Int64, TopicRequestHeader, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessageRequestHeader(TopicRequestHeader):
    """Request header of QUERY_MESSAGE: return messages by key."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None
    last_key: str | None = None
    unique_key_query: Annotated[bool | None, Wire("_UNIQUE_KEY_QUERY")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessageResponseHeader(Header):
    """Response header of QUERY_MESSAGE: the progress of the index."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewMessageRequestHeader(Header):
    """Request header of VIEW_MESSAGE_BY_ID: return the message at a commit log offset."""

    offset: Int64
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeQueueRequestHeader(TopicRequestHeader):
    """Request header of QUERY_CONSUME_QUEUE: return entries of a consume queue."""

    topic: str | None = None
    queue_id: Int32 | None = None
    index: Int64 | None = None
    count: Int32 | None = None
    consumer_group: str | None = None
