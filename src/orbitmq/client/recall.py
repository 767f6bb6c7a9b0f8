"""Recalls: a message that was to come later is taken back before its time (RocketMQ 5.3 and later).

The handle that a send of such a message brings back says which broker keeps it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.client.observers import Recall, tell
from orbitmq.common.errors import MessageIllegal, NotFound, RequestRefused
from orbitmq.message.recall_handle import RecallHandle
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader

if TYPE_CHECKING:
    from orbitmq.client.producer import Producer

_WHY: Final[dict[int, str]] = {
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "it cannot recall messages; brokers of RocketMQ 5.3 and later can",
    ResponseCode.NO_PERMISSION: "it does not recall messages; set recallMessageEnable=true there",
    ResponseCode.ILLEGAL_OPERATION: "the handle is not for this topic or broker, or the message has come, or is about to",
}


async def recall(producer: Producer, topic: str, handle: str | None, timeout_ms: int | None) -> str:
    """Have a broker not deliver a message; its id."""
    session = producer.session
    if not handle:  # as SendResult.recall_handle is for messages without a time of their own
        raise MessageIllegal(
            "there is no recall handle: only messages with delay_ms or deliver_at_ms can be recalled, not those by delay level"
        )
    parts = RecallHandle.parse(handle)
    wire_topic = session.names.wire(topic)
    address = (await session.route(wire_topic)).master(parts.broker_name)
    if address is None:
        raise NotFound(f"the broker {parts.broker_name}, which keeps message {parts.msg_id}, has no master with topic {topic} now")
    header = RecallMessageRequestHeader(
        topic=wire_topic, recall_handle=handle, producer_group=producer.producer_group, target_broker=parts.broker_name
    )
    try:
        response = await session.ask(address, RemotingCommand.request(RequestCode.RECALL_MESSAGE, header), timeout_ms)
    except RequestRefused as problem:
        _tell(producer, Recall(topic, parts.msg_id, None, False))
        why = _WHY.get(problem.code, "it refused")
        raise RequestRefused(
            problem.code, f"broker {parts.broker_name} did not recall {parts.msg_id}: {why} ({problem.remark})"
        ) from problem
    answer = RecallMessageResponseHeader.from_fields(response.ext_fields)
    _tell(producer, Recall(topic, parts.msg_id, answer.msg_region, True))
    return answer.msg_id


def _tell(producer: Producer, end: Recall) -> None:
    tell(producer.observers, lambda observer: observer.recalled(producer.group, end))
