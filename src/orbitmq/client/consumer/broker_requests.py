"""Handles requests that brokers send to a consumer: rebalance, reset offsets, report its state, and
consume one message now.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.namespace import Namespace
from orbitmq.client.session.client_session import MemberHandler
from orbitmq.client.unwrapping import unwrap_one
from orbitmq.common.errors import RequestRefusedError
from orbitmq.protocol.bodies.admin_groups import decode_reset_offsets, encode_client_offsets
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.running_info import ConsumerRunningInfo, DirectResult
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from orbitmq.protocol.headers.offsets import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from orbitmq.remoting.channel import Channel


class ManagedConsumer(Protocol):
    """A consumer that brokers can query and control."""

    @property
    def wire_group(self) -> str: ...

    def rebalance_soon(self) -> None: ...

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets; ignore queues of other members."""
        ...

    def committed_offsets(self, topic: str) -> Mapping[MessageQueue, int]: ...

    def running_info(self) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: ReceivedMessage) -> DirectResult: ...


class BrokerRequestHandler:
    """Handles the broker requests for one consumer."""

    def __init__(self, consumer: ManagedConsumer, names: Namespace) -> None:
        self._consumer = consumer
        self._names = names

    def handlers(self) -> Mapping[int, MemberHandler]:
        """Return the handlers by request code."""
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._offsets,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    async def _members_changed(
        self, _: Channel, request: RemotingCommand
    ) -> RemotingCommand | None:
        if (
            NotifyConsumerIdsChangedRequestHeader.from_fields(request.ext_fields).consumer_group
            != self._consumer.wire_group
        ):
            return None
        self._consumer.rebalance_soon()
        return request.reply(ResponseCode.SUCCESS)

    async def _reset(self, _: Channel, request: RemotingCommand) -> RemotingCommand | None:
        if (
            ResetOffsetRequestHeader.from_fields(request.ext_fields).group
            != self._consumer.wire_group
        ):
            return None
        await self._consumer.reset_offsets(decode_reset_offsets(request.body or b"{}"))
        return request.reply(ResponseCode.SUCCESS)

    async def _offsets(self, _: Channel, request: RemotingCommand) -> RemotingCommand | None:
        header = GetConsumerStatusRequestHeader.from_fields(request.ext_fields)
        if header.group != self._consumer.wire_group:
            return None
        return request.reply(
            ResponseCode.SUCCESS,
            body=encode_client_offsets(self._consumer.committed_offsets(header.topic)),
        )

    async def _running_info(self, _: Channel, request: RemotingCommand) -> RemotingCommand | None:
        header = GetConsumerRunningInfoRequestHeader.from_fields(request.ext_fields)
        if header.consumer_group != self._consumer.wire_group:
            return None
        info = self._consumer.running_info()
        if header.jstack_enable:
            info = replace(info, stacks=_stacks())
        return request.reply(ResponseCode.SUCCESS, body=info.encode())

    async def _consume_directly(
        self, _: Channel, request: RemotingCommand
    ) -> RemotingCommand | None:
        header = ConsumeMessageDirectlyResultRequestHeader.from_fields(request.ext_fields)
        if header.consumer_group != self._consumer.wire_group:
            return None
        message = unwrap_one(request.body or b"", header.broker_name or "")
        message.topic = self._names.own(message.topic)
        result = await self._consumer.consume_directly(message)
        return request.reply(ResponseCode.SUCCESS, body=result.encode())


def no_listener(group: str, message: ReceivedMessage) -> RequestRefusedError:
    """Return the refusal of a pull consumer to consume a message directly."""
    text = (
        f"group {group} pulls its messages and has no listener for {message.msg_id}: choose a push"
        " consumer"
    )
    return RequestRefusedError(ResponseCode.SYSTEM_ERROR, text)


def _stacks() -> str:
    """Return the stack of every thread of this process."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in frames.items()
    )
