"""SEND_REPLY_MESSAGE in both spellings: a reply is brought straight to the client that asked, by PUSH_REPLY_MESSAGE_TO_CLIENT, and kept.

The client is found by its id among those that sent a heartbeat as producers. Whoever replies hears whether the reply arrived; that it is
also stored, in the topic that the cluster has for replies, is for those who look for it later. Invariant: a reply that was brought is not
refused, also if it could not be stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from orbitmq.broker.own_messages import OwnMessages
from orbitmq.broker.processors.safe_answers import SafeAnswers
from orbitmq.broker.processors.send import SendProcessor, born_host_of, send_header
from orbitmq.broker.producers import Producers
from orbitmq.common.errors import MessageIllegal, RemoteError, RequestRefused, StoreError
from orbitmq.message import hosts, properties
from orbitmq.message.message_id import offset_id
from orbitmq.message.record_write import Message
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import ReplyMessageRequestHeader, SendMessageRequestHeader, SendMessageResponseHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.log_batch import Appended

PUSH_TIMEOUT_MS: Final = 10_000
_NOT_STORED: Final = "0"  # the id of a reply that was brought and is stored nowhere

log = logging.getLogger(__name__)


class ReplySettings(Protocol):
    """What of the configuration replies look at."""

    @property
    def region_id(self) -> str: ...
    @property
    def trace_on(self) -> bool: ...
    @property
    def store_reply_message_enable(self) -> bool: ...


class ReplyProcessor:
    """324 and 325."""

    def __init__(
        self,
        settings: ReplySettings,
        *,
        sends: SendProcessor,
        producers: Producers,
        own: OwnMessages,
        answers: SafeAnswers,
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._sends = sends
        self._producers = producers
        self._own = own
        self._answers = answers
        self._now_ms = now_ms

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.SEND_REPLY_MESSAGE: self.reply, RequestCode.SEND_REPLY_MESSAGE_V2: self.reply}

    async def reply(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Bring a reply to whoever waits for it, then store it."""
        header = send_header(request)
        with self._sends.saying_where():
            topic, queue_id = self._sends.place_of(header)
        born_host = born_host_of(channel)
        told = properties.extended((header.properties or "").encode("utf-8", "replace"), self._sends.place_fields())
        problem = await self._push(header, request.body or b"", hosts.text_of(born_host), properties.parse(told))
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        stored = None
        if self._settings.store_reply_message_enable:
            stored = self._stored(
                Message(
                    topic.name.encode(),
                    request.body or b"",
                    born_host=born_host,
                    born_time_ms=header.born_timestamp,
                    queue_id=queue_id,
                    flag=header.flag,
                    sys_flag=header.sys_flag,
                    reconsume_times=header.reconsume_times or 0,
                    properties=told,
                )
            )
        if stored is None:
            if problem is not None:
                raise RequestRefused(code, problem, self._sends.place_fields())
            return request.answer(code, header=self._header(_NOT_STORED, queue_id, 0))
        answer = request.answer(
            code, problem, header=self._header(offset_id(self._sends.store_host, stored.offset), queue_id, stored.queue_offset)
        )
        waits = properties.parse(told).get(properties.WAIT) != "false"
        return self._answers.give(channel, request, answer, stored.end, topic.name, waits=waits)

    async def _push(self, header: SendMessageRequestHeader, body: bytes, born_host: str, found: dict[str, str]) -> str | None:
        """Bring a reply to its client; why not, if it did not arrive."""
        client_id = found.get(properties.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{properties.REPLY_TO_CLIENT}] is null: it has to name the client that asked"
        channel = self._producers.channel_of_client(client_id)
        if channel is None:
            return f"push reply message fail, channel of <{client_id}> not found. It has left, or is no producer that this broker heard of"
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
            answer = await channel.invoke(command, PUSH_TIMEOUT_MS)
            why = None if answer.code == ResponseCode.SUCCESS else f"it answered {answer.code} {answer.remark or ''}"
        except RemoteError as problem:
            why = str(problem)
        if why is None:
            return None
        log.warning("reply_not_brought client=%s peer=%s why='%s'", client_id, channel.remote_address, why)
        return f"push reply message to {client_id}fail. {why}; reply again as long as it waits"

    def _stored(self, message: Message) -> Appended | None:
        try:
            (appended,) = self._own.put(message)
        except (MessageIllegal, StoreError) as problem:
            log.warning("reply_not_stored topic=%s why='%s'", bytes(message.topic).decode(), problem)
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
