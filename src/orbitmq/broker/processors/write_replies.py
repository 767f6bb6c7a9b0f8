"""Replies to requests that write messages: sent when the messages are durable."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.produce.durable_replies import Durability, DurableReplies, Write
from orbitmq.broker.produce.send_listener import ReplyListener
from orbitmq.protocol.codes import REFUSAL_CODES
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel


class WriteReplies:
    """Sends the replies to requests that write.

    Invariant: a reply is sent once, or not at all for a one-way request.
    """

    def __init__(self, durable: DurableReplies, listener: ReplyListener) -> None:
        self._durable = durable
        self._listener = listener

    def reply(
        self,
        channel: Channel,
        request: RemotingCommand,
        response: RemotingCommand,
        write: Write,
        heard: Callable[[RemotingCommand], object] | None = None,
    ) -> RemotingCommand | None:
        """Return the reply to a request; None if it is sent through the channel later.

        `heard` is called with the reply in any case, also if a one-way request gets none.
        """
        if request.is_oneway and heard is None:
            if write.settled is not None:
                write.settled()
            return response if self._durable.is_durable(write) else None
        begun_ms = self._listener.monotonic_ms()

        def send(durability: Durability) -> None:
            if durability.refusal is not None:
                response.code = REFUSAL_CODES[durability.refusal]
                response.remark = durability.remark
            if heard is not None:
                heard(response)
            if request.is_oneway:
                return
            took_ms = self._listener.monotonic_ms() - begun_ms
            self._listener.answered(request.code, response.code, took_ms)
            channel.send(response)

        if not self._durable.reply_when_durable(write, send):
            return None
        if heard is not None:
            heard(response)
        return response
