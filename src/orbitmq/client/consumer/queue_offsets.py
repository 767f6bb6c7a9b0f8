"""Offset requests to the broker of a queue: its ends, search by time, and a group's committed
offset.

Each raises OrbitError if the broker refuses or is unreachable.
"""

from __future__ import annotations

from typing import Final

from orbitmq.client.session.client_session import ClientSession
from orbitmq.common.errors import RequestRefusedError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

_READ_TIMEOUT_MS: Final = 5_000


async def min_offset(session: ClientSession, queue: MessageQueue) -> int:
    """Return the offset of the first message that a queue still has."""
    header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    response = await session.ask(
        await session.broker_of(queue), RemotingCommand.request(RequestCode.GET_MIN_OFFSET, header)
    )
    return GetMinOffsetResponseHeader.from_fields(response.ext_fields).offset


async def max_offset(session: ClientSession, queue: MessageQueue) -> int:
    """Return the offset that the next message of a queue will have."""
    header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    response = await session.ask(
        await session.broker_of(queue), RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header)
    )
    return GetMaxOffsetResponseHeader.from_fields(response.ext_fields).offset


async def offset_at(session: ClientSession, queue: MessageQueue, time_ms: int) -> int:
    """Return the offset of the first message stored at `time_ms` or later."""
    header = SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms
    )
    response = await session.ask(
        await session.broker_of(queue),
        RemotingCommand.request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header),
    )
    return SearchOffsetResponseHeader.from_fields(response.ext_fields).offset


async def group_offset(session: ClientSession, group: str, queue: MessageQueue) -> int | None:
    """Return a group's committed offset of a queue, or None if it has none."""
    return await _ask_offset(session, group, queue, set_zero_if_not_found=False)


async def begin_offset(session: ClientSession, group: str, queue: MessageQueue) -> int | None:
    """Return where a group resumes in a queue; 0 also for an unconsumed queue that is so young that
    its first message is still available.

    Otherwise a group that starts at the end would miss messages that arrived in a new queue before
    its consumers knew of it.
    """
    return await _ask_offset(session, group, queue, set_zero_if_not_found=None)


async def _ask_offset(
    session: ClientSession, group: str, queue: MessageQueue, *, set_zero_if_not_found: bool | None
) -> int | None:
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=set_zero_if_not_found,
    )
    request = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
    try:
        response = await session.ask(await session.broker_of(queue), request, _READ_TIMEOUT_MS)
    except RequestRefusedError as refused:
        if refused.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    return QueryConsumerOffsetResponseHeader.from_fields(response.ext_fields).offset


async def set_group_offset(
    session: ClientSession, group: str, queue: MessageQueue, offset: int
) -> None:
    """Commit a group's offset of a queue."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    await session.ask(
        await session.broker_of(queue),
        RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header),
    )
