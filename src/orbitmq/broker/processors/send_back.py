"""CONSUMER_SEND_MSG_BACK: from its header to `SendBackService` and back."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.plugins.interfaces import SentBack
from orbitmq.broker.processors.send import max_reconsume_times
from orbitmq.broker.processors.write_replies import WriteReplies
from orbitmq.broker.produce.send_back import SendBackRequest, SendBackService
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler


class SendBackProcessor:
    """Serves CONSUMER_SEND_MSG_BACK."""

    def __init__(
        self,
        service: SendBackService,
        *,
        replies: WriteReplies,
        sent_back: Callable[[SentBack], None] | None,
    ) -> None:
        self._service = service
        self._replies = replies
        self._sent_back = sent_back

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Store the message once more."""
        header = ConsumerSendMsgBackRequestHeader.from_fields(request.ext_fields)
        copy = self._service.send_back(
            SendBackRequest(
                group=header.group,
                log_offset=header.offset,
                delay_level=header.delay_level,
                max_reconsume_times=max_reconsume_times(request, header.max_reconsume_times),
                unit_mode=bool(header.unit_mode),
            )
        )
        done = request.reply(ResponseCode.SUCCESS)
        if copy is None:
            return done
        if self._sent_back is not None:
            self._sent_back(
                SentBack(
                    consumer_group=header.group,
                    topic=copy.origin,
                    message_id=copy.original.msg_id,
                    reconsume_times=copy.original.reconsume_times,
                    is_dead_letter=copy.is_dead_letter,
                    client_address=channel.remote_address,
                )
            )
        return self._replies.reply(channel, request, done, copy.write)
