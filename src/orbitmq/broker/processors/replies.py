"""SEND_REPLY_MESSAGE in both spellings: pushes a reply to the client that asked, by
PUSH_REPLY_MESSAGE_TO_CLIENT, and stores it.

The client is found by its id among those that sent a heartbeat as producers. The sender of the
reply learns whether it arrived; the copy in the cluster's topic of replies is for later look-ups.
Invariant: a reply that was pushed is not refused, even if it could not be stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from orbitmq.broker.clients.producers import Producers
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.processors.plugin_hooks import Heard, SendHooks
from orbitmq.broker.processors.refusals import with_fields
from orbitmq.broker.processors.send import send_values
from orbitmq.broker.processors.write_replies import WriteReplies
from orbitmq.broker.produce.durable_replies import Write
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.broker.produce.service import SendService
from orbitmq.common.errors import InvalidMessageError, RemoteError, RequestRefusedError, StoreError
from orbitmq.message import hosts, properties
from orbitmq.message.message_id import offset_id
from orbitmq.message.record_write import MessageRecord
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    send_header,
)
from orbitmq.remoting.channel import Channel, channel_of
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.log_batch import Appended

PUSH_TIMEOUT_MS: Final = 10_000
_NOT_STORED: Final = "0"  # the id of a reply that was pushed but not stored

log = logging.getLogger(__name__)


class ReplyProcessor:
    """Serves SEND_REPLY_MESSAGE in both spellings."""

    def __init__(
        self,
        settings: BrokerConfig,
        *,
        sends: SendService,
        producers: Producers,
        own: InternalMessageWriter,
        replies: WriteReplies,
        now_ms: Callable[[], int],
        hooks: SendHooks | None,
    ) -> None:
        self._settings = settings
        self._sends = sends
        self._producers = producers
        self._own = own
        self._replies = replies
        self._now_ms = now_ms
        self._hooks = hooks

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    async def reply(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Push a reply to the client that waits for it, then store it."""
        if self._hooks is None:
            return await self._reply(channel, request, None)
        return await self._hooks.around_waiting(channel, request, self._reply)

    async def _reply(
        self, channel: Channel, request: RemotingCommand, heard: Heard | None
    ) -> RemotingCommand | None:
        header = send_header(request.code, request.ext_fields)
        sent = send_values(channel, request, header)
        with with_fields(self._sends.place_fields):
            topic, queue_id = self._sends.place_of(sent)
        raw = properties.extended(
            sent.properties.encode("utf-8", "replace"), self._sends.place_fields()
        )
        found = properties.parse(raw)
        problem = await self._push(header, sent.body, hosts.text_of(sent.born_host), found)
        stored = None
        if self._settings.store_reply_message_enable:
            stored = self._stored(
                MessageRecord(
                    topic.name.encode(),
                    sent.body,
                    born_host=sent.born_host,
                    born_time_ms=sent.born_time_ms,
                    queue_id=queue_id,
                    flag=sent.flag,
                    sys_flag=sent.sys_flag,
                    reconsume_times=sent.reconsume_times,
                    properties=raw,
                )
            )
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        if stored is None:
            if problem is not None:
                raise RequestRefusedError(code, problem, self._sends.place_fields())
            response = request.reply(code, header=self._header(_NOT_STORED, queue_id, 0))
            if heard is not None:
                heard(response)
            return response
        msg_id = offset_id(self._sends.store_host, stored.offset)
        response = request.reply(
            code, problem, header=self._header(msg_id, queue_id, stored.queue_offset)
        )
        write = Write(
            end=stored.end,
            topic=topic.name,
            waits=found.get(properties.WAIT) != "false",
        )
        return self._replies.reply(channel, request, response, write, heard)

    async def _push(
        self, header: SendMessageRequestHeader, body: bytes, born_host: str, found: dict[str, str]
    ) -> str | None:
        """Push a reply to its client; return why it did not arrive, or None."""
        client_id = found.get(properties.REPLY_TO_CLIENT)
        if client_id is None:
            return (
                f"reply message properties[{properties.REPLY_TO_CLIENT}] is null: it has to name"
                " the client that asked"
            )
        channel = self._producers.channel_of_client(client_id)
        if channel is None:
            return (
                f"push reply message fail, channel of <{client_id}> not found. It has left, or is"
                " no producer that this broker heard of"
            )
        now_ms = self._now_ms()
        pushed = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=born_host,
            store_host=hosts.text_of(self._sends.store_host),
            store_timestamp=now_ms,
            properties=properties.write({**found, properties.PUSH_REPLY_TIME: str(now_ms)}),
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
        )
        command = RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, body)
        try:
            answer = await channel_of(channel).invoke(command, PUSH_TIMEOUT_MS)
            why = (
                None
                if answer.code == ResponseCode.SUCCESS
                else f"it answered {answer.code} {answer.remark or ''}"
            )
        except RemoteError as problem:
            why = str(problem)
        if why is None:
            return None
        log.warning(
            "reply_not_brought client=%s peer=%s why='%s'", client_id, channel.remote_address, why
        )
        return f"push reply message to {client_id}fail. {why}; reply again as long as it waits"

    def _stored(self, message: MessageRecord) -> Appended | None:
        try:
            (appended,) = self._own.put(message)
        except (InvalidMessageError, StoreError) as problem:
            log.warning(
                "reply_not_stored topic=%s why='%s'", bytes(message.topic).decode(), problem
            )
            return None
        return appended

    def _header(self, msg_id: str, queue_id: int, queue_offset: int) -> SendMessageResponseHeader:
        return SendMessageResponseHeader(
            msg_id=msg_id,
            queue_id=queue_id,
            queue_offset=queue_offset,
            msg_region=self._settings.region_id,
            trace_on=self._settings.trace_on,
        )
