"""PULL_MESSAGE and LITE_PULL_MESSAGE: from headers to `PullService` and back.

Invariant: a pull gets one reply, also when it was held meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.broker.consume.pending_pulls import PendingPull
from orbitmq.broker.consume.service import (
    Forbidder,
    Holder,
    PullForbiddenError,
    PullOutcome,
    PullReply,
    PullRequest,
    PullService,
    Subscription,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.frame import decode_one
from orbitmq.protocol.headers.pull import (
    COMMITS_OFFSET,
    HAS_SUBSCRIPTION,
    SUSPENDS,
    ForbiddenBy,
    PullForbiddenResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from orbitmq.protocol.in_flight import kept_bytes
from orbitmq.remoting.channel import Channel, channel_of
from orbitmq.remoting.dispatch import Handler, failure
from orbitmq.store.reads import GetResult

_CODES: Final = {
    PullOutcome.FOUND: ResponseCode.SUCCESS,
    PullOutcome.NOT_FOUND: ResponseCode.PULL_NOT_FOUND,
    PullOutcome.RETRY: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullOutcome.MOVED: ResponseCode.PULL_OFFSET_MOVED,
}
_FORBIDDEN_BY: Final = {
    Forbidder.BROKER: ForbiddenBy.BROKER,
    Forbidder.GROUP: ForbiddenBy.GROUP,
    Forbidder.TOPIC: ForbiddenBy.TOPIC,
    Forbidder.BROADCASTING: ForbiddenBy.BROADCASTING,
    Forbidder.SUBSCRIPTION: ForbiddenBy.SUBSCRIPTION,
}

# Called for each pull that found messages, before its reply is sent.
Found = Callable[[Channel, PullMessageRequestHeader, GetResult], None]


class PullProcessor:
    """Serves PULL_MESSAGE and LITE_PULL_MESSAGE."""

    def __init__(self, service: PullService, *, found: Found | None) -> None:
        self._service = service
        self._found = found

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Reply to a pull, or hold it: then None."""
        header = PullMessageRequestHeader.from_fields(request.ext_fields)
        holder = None
        if header.sys_flag & SUSPENDS and not request.is_oneway:
            holder = Holder(
                connection=channel,
                request=request,
                size=kept_bytes(request),
                suspend_ms=header.suspend_timeout_millis,
                resume=self.resume,
            )
        try:
            reply = self._service.pull(_values(channel, request, header), holder)
        except PullForbiddenError as forbidden:
            return _forbidden(request, forbidden)
        return None if reply is None else self._encoded(channel, request, header, reply)

    def resume(self, pull: PendingPull) -> None:
        """Reply to a pull that was held, of which the request or its frame was kept."""
        channel, kept = channel_of(pull.connection), pull.request
        if not channel.is_open:
            return
        request = decode_one(kept) if isinstance(kept, bytes) else kept
        assert isinstance(request, RemotingCommand)
        response = self._resumed(channel, request)
        took_ms = self._service.monotonic_ms() - pull.held_ms
        self._service.listener.answered(request.code, response.code, took_ms, is_long_polling=True)
        channel.send(response)

    def _resumed(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = PullMessageRequestHeader.from_fields(request.ext_fields)
        values, is_reading = _values(channel, request, header), channel.link.reading
        try:
            try:
                reply = self._service.resumed(values, is_reading=is_reading)
            except PullForbiddenError as forbidden:
                return _forbidden(request, forbidden)
            return self._encoded(channel, request, header, reply)
        except Exception as problem:  # the topic may be gone meanwhile
            return failure(request, problem)

    def _encoded(
        self,
        channel: Channel,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        reply: PullReply,
    ) -> RemotingCommand:
        result = reply.result
        if reply.status is PullOutcome.FOUND and self._found is not None:
            self._found(channel, header, result)
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=reply.suggested_broker_id,
            next_begin_offset=reply.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            topic_sys_flag=reply.topic_sys_flag,
            group_sys_flag=reply.group_sys_flag,
        )
        body = bytes(result.records) if reply.status is PullOutcome.FOUND else None
        return request.reply(_CODES[reply.status], reply.remark, header=fields, body=body)


def _values(
    channel: Channel, request: RemotingCommand, header: PullMessageRequestHeader
) -> PullRequest:
    flags = header.sys_flag
    return PullRequest(
        group=header.consumer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        offset=header.queue_offset,
        count_max=header.max_msg_nums,
        commit_offset=header.commit_offset if flags & COMMITS_OFFSET else None,
        subscription=(
            Subscription(header.subscription, header.expression_type)
            if flags & HAS_SUBSCRIPTION
            else None
        ),
        sub_version=header.sub_version,
        client=channel.remote_address,
        is_lite=request.code == RequestCode.LITE_PULL_MESSAGE,
    )


def _forbidden(request: RemotingCommand, forbidden: PullForbiddenError) -> RemotingCommand:
    return request.reply(
        ResponseCode.NO_PERMISSION,
        forbidden.remark,
        header=PullForbiddenResponseHeader(forbidden_type=_FORBIDDEN_BY[forbidden.by]),
    )
