"""Recalls a scheduled message before it is delivered (RocketMQ 5.3 and later).

The handle returned by the send names the broker that holds the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.client.observers import Recall, notify
from orbitmq.common.errors import InvalidMessageError, NotFoundError, RequestRefusedError
from orbitmq.message.recall_handle import RecallHandle
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader

if TYPE_CHECKING:
    from orbitmq.client.producer.producer import Producer

_WHY: Final[dict[int, str]] = {
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: (
        "it does not support recalls, which need RocketMQ 5.3 or later"
    ),
    ResponseCode.NO_PERMISSION: "recalls are disabled: set recallMessageEnable=true on the broker",
    ResponseCode.ILLEGAL_OPERATION: (
        "the handle is for another topic or broker, or the message is already delivered or due"
    ),
}


async def recall(producer: Producer, topic: str, handle: str | None, timeout_ms: int | None) -> str:
    """Ask the broker not to deliver a scheduled message; return the message's id."""
    session = producer.session
    if not handle:  # SendResult.recall_handle is empty for messages that are not scheduled
        raise InvalidMessageError(
            "the recall handle is empty: only messages with delay_ms or deliver_at_ms can be"
            " recalled, not those with a delay level"
        )
    parts = RecallHandle.parse(handle)
    wire_topic = session.names.wire(topic)
    address = (await session.route(wire_topic)).master(parts.broker_name)
    if address is None:
        raise NotFoundError(
            f"the broker {parts.broker_name}, which holds message {parts.msg_id}, has no master"
            f" with topic {topic} at the moment"
        )
    header = RecallMessageRequestHeader(
        topic=wire_topic,
        recall_handle=handle,
        producer_group=producer.producer_group,
        target_broker=parts.broker_name,
    )
    try:
        response = await session.ask(
            address, RemotingCommand.request(RequestCode.RECALL_MESSAGE, header), timeout_ms
        )
    except RequestRefusedError as problem:
        _notify(producer, Recall(topic, parts.msg_id, None, False))
        why = _WHY.get(problem.code, "it refused")
        raise RequestRefusedError(
            problem.code,
            f"broker {parts.broker_name} did not recall {parts.msg_id}: {why} ({problem.remark})",
        ) from problem
    reply = RecallMessageResponseHeader.from_fields(response.ext_fields)
    _notify(producer, Recall(topic, parts.msg_id, reply.msg_region, True))
    return reply.msg_id


def _notify(producer: Producer, end: Recall) -> None:
    notify(producer.observers, lambda observer: observer.recalled(producer.group, end))
