"""Reads queues of system topics, which brokers maintain for themselves: one queue of one broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from orbitmq.admin.calls import Calls
from orbitmq.admin.following import TOOLS_GROUP
from orbitmq.client.consumer.pulling import BRINGS_SUBSCRIPTION
from orbitmq.message.record import decode_each
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.subscriptions import SUBSCRIBE_ALL
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers.offsets import GetMinOffsetRequestHeader, GetMinOffsetResponseHeader
from orbitmq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

_COUNT: Final = 1024  # brokers return fewer: see maxTransferCountOnMessageInMemory
_NOTHING_THERE: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


async def first_offset(calls: Calls, address: str, topic: str, queue_id: int = 0) -> int:
    """Return the first offset of a queue."""
    answer = await calls.ask(
        address,
        RequestCode.GET_MIN_OFFSET,
        GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id),
    )
    return max(GetMinOffsetResponseHeader.from_fields(answer.ext_fields).offset, 0)


async def read_messages(
    calls: Calls, address: str, topic: str, offset: int, queue_id: int = 0
) -> AsyncIterator[StoredMessage]:
    """Yield the messages of a queue from an offset on; none if the broker lacks the topic."""
    async for records in read_records(calls, address, topic, offset, queue_id):
        for stored, _ in decode_each(records):  # undecodable bodies do not matter here
            yield stored


async def read_records(
    calls: Calls, address: str, topic: str, offset: int, queue_id: int = 0
) -> AsyncIterator[bytes]:
    """Yield the records of a queue in chunks, as large as the broker returns them."""
    while True:
        header = PullMessageRequestHeader(
            consumer_group=TOOLS_GROUP,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=_COUNT,
            sys_flag=BRINGS_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=SUBSCRIBE_ALL,
            sub_version=0,
        )
        answer = await calls.ask(
            address,
            RequestCode.PULL_MESSAGE,
            header,
            accept=(*_NOTHING_THERE, ResponseCode.TOPIC_NOT_EXIST),
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return
        if answer.body:
            yield bytes(answer.body)
        next_offset = PullMessageResponseHeader.from_fields(answer.ext_fields).next_begin_offset
        if answer.code == ResponseCode.PULL_NOT_FOUND or next_offset <= offset:
            return
        offset = next_offset
