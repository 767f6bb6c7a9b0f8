"""SEND_MESSAGE in both spellings and SEND_BATCH_MESSAGE: from headers to `SendService` and back."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.processors.plugin_hooks import SendHooks
from orbitmq.broker.processors.refusals import with_fields
from orbitmq.broker.processors.write_replies import WriteReplies
from orbitmq.broker.produce.service import SendRequest, SendService, StoredSend
from orbitmq.message.message_id import offset_id
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import (
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    send_header,
)
from orbitmq.protocol.versions import V3_4_9
from orbitmq.remoting.born_host import born_host_of
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler


class SendProcessor:
    """Serves SEND_MESSAGE in both spellings and SEND_BATCH_MESSAGE."""

    def __init__(
        self, service: SendService, *, replies: WriteReplies, hooks: SendHooks | None
    ) -> None:
        self._service = service
        self._replies = replies
        self._hooks = hooks

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Store one message, or a batch if the header says so: the code alone does not."""
        if self._hooks is None:
            return self._send(channel, request, None)
        return self._hooks.around(channel, request, self._send)

    def _send(
        self,
        channel: Channel,
        request: RemotingCommand,
        heard: Callable[[RemotingCommand], object] | None,
    ) -> RemotingCommand | None:
        self._service.admit()
        header = send_header(request.code, request.ext_fields)
        with with_fields(self._service.place_fields):
            stored = self._service.append(send_values(channel, request, header))
        response = request.reply(ResponseCode.SUCCESS, header=self._header(stored))
        return self._replies.reply(channel, request, response, stored.write, heard)

    def _header(self, stored: StoredSend) -> SendMessageResponseHeader:
        service = self._service
        return SendMessageResponseHeader(
            msg_id=",".join(offset_id(service.store_host, each.offset) for each in stored.places),
            queue_id=stored.queue_id,
            queue_offset=stored.places[0].queue_offset,
            transaction_id=stored.unique_key,
            msg_region=service.settings.region_id,
            trace_on=service.settings.trace_on,
            recall_handle=stored.recall_handle,
        )


def send_values(
    channel: Channel, request: RemotingCommand, header: SendMessageRequestHeader
) -> SendRequest:
    """Return a send, or a reply, as the service takes it."""
    return SendRequest(
        topic=header.topic,
        queue_id=header.queue_id,
        body=request.body or b"",
        properties=header.properties or "",
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_time_ms=header.born_timestamp,
        born_host=born_host_of(channel),
        reconsume_times=header.reconsume_times or 0,
        max_reconsume_times=max_reconsume_times(request, header.max_reconsume_times),
        is_batch=bool(header.batch),
        default_topic=header.default_topic,
        default_topic_queue_nums=header.default_topic_queue_nums,
        unit_mode=bool(header.unit_mode),
    )


def max_reconsume_times(request: RemotingCommand, wanted: int | None) -> int | None:
    """Return the maximum that a consumer asks for; versions before 3.4.9 send none that counts."""
    return wanted if request.version >= V3_4_9 else None
