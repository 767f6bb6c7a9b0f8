"""How a broker calls the validators and hooks of other packages: which are there, in which order, and what their mistakes cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Final, cast

from orbitmq.broker.plugins.interfaces import (
    ACCESS_VALIDATORS,
    CONSUME_HOOKS,
    SEND_BACK_HOOKS,
    SEND_HOOKS,
    AccessValidator,
    ConsumeHook,
    Delivery,
    SendAttempt,
    SendBackHook,
    SendHook,
    SendResult,
    SentBack,
)
from orbitmq.broker.processors.pull import Found
from orbitmq.broker.processors.send import send_header
from orbitmq.common.installed import Installed
from orbitmq.message import properties
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import FLAG_ONEWAY, RemotingCommand
from orbitmq.protocol.headers.pull import PullMessageRequestHeader
from orbitmq.protocol.headers.send import SendMessageRequestHeader, SendMessageResponseHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler, PlainHandler, Processor, failure
from orbitmq.remoting.hooks import RpcHook, installed_hooks, logging_failures, naming
from orbitmq.remoting.lanes import WaitingHandler
from orbitmq.store.reads import GetResult

_SENDS: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
_PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


class Hooks:
    """All validators and hooks that are installed; they do not change while the broker runs."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self.around_requests: list[RpcHook] = [_Validation(validator) for validator in ACCESS_VALIDATORS.installed()]
        self.around_requests += installed_hooks()
        self._send_hooks = SEND_HOOKS.installed()
        self._consume_hooks = CONSUME_HOOKS.installed()
        self._send_back_hooks = SEND_BACK_HOOKS.installed()

    def unheard(self, is_direct: Callable[[int], bool], *, hears_sends: bool = False) -> Callable[[int], bool]:
        """`is_direct`, but not of codes that hooks, or others, have to hear of: nobody may serve those but their handlers."""
        heard = {*(_SENDS if self._send_hooks or hears_sends else ()), *(_PULLS if self._consume_hooks else ())}
        return (lambda code: code not in heard and is_direct(code)) if heard else is_direct

    def around_sends(self, sends: Processor) -> Processor:
        """The processor of sends, or of replies, with hooks around it, itself when there are none."""
        return HookedSends(sends, self._send_hooks, self._monotonic_ms) if self._send_hooks else sends

    @property
    def found(self) -> Found | None:
        """Who hears what pulls found; None: nobody."""
        return partial(_tell_found, self._consume_hooks) if self._consume_hooks else None

    @property
    def sent_back(self) -> Callable[[SentBack], None] | None:
        """Who hears what consumers send back; None: nobody."""
        return partial(_tell_sent_back, self._send_back_hooks) if self._send_back_hooks else None


class _Validation:
    """A validator as the hook around requests that it is."""

    def __init__(self, validator: Installed[AccessValidator]) -> None:
        self._validator = validator

    def before(self, remote_address: str, request: RemotingCommand) -> None:
        with naming(self._validator.label):
            self._validator.part.validate(remote_address, request)

    def after(self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None) -> None: ...


class HookedSends:
    """Sends and replies with hooks around them, whether they are answered at once, later or not at all.

    Invariant: a send that all hooks let pass is told to each of them once more, with its answer.
    """

    def __init__(self, sends: Processor, hooks: Sequence[Installed[SendHook]], monotonic_ms: Callable[[], int]) -> None:
        self._sends = sends
        self._hooks = hooks
        self._monotonic_ms = monotonic_ms

    def handlers(self) -> dict[int, Handler]:
        return {
            code: partial(self._send_waiting, cast("WaitingHandler", handler))
            if iscoroutinefunction(handler)
            else partial(self._send, cast("PlainHandler", handler))
            for code, handler in self._sends.handlers().items()
        }

    def _send(self, handler: PlainHandler, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        tell = self._begun(channel, request)
        try:
            answer = handler(_Overheard(channel, tell, is_silent=request.is_oneway), _to_be_answered(request))
        except Exception as problem:
            answer = failure(request, problem)
        if answer is not None:
            tell(answer)
        return answer

    async def _send_waiting(self, handler: WaitingHandler, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        tell = self._begun(channel, request)
        try:
            answer = await handler(_Overheard(channel, tell, is_silent=request.is_oneway), _to_be_answered(request))
        except Exception as problem:
            answer = failure(request, problem)
        if answer is not None:
            tell(answer)
        return answer

    def _begun(self, channel: Channel, request: RemotingCommand) -> Callable[[RemotingCommand], None]:
        """Tell hooks of a send; gives back how to tell them of its answer."""
        begin_ms = self._monotonic_ms()
        attempt = _attempt(channel, request, send_header(request))
        for hook in self._hooks:
            with naming(hook.label):
                hook.part.before(attempt)

        def tell(answer: RemotingCommand) -> None:
            result = _result(answer, self._monotonic_ms() - begin_ms)
            for hook in self._hooks:
                with logging_failures(hook.label):
                    hook.part.after(attempt, result)

        return tell


class _Overheard(Channel):
    """A producer's channel; `heard` is told of the answer that leaves by it. One who asked one-way gets none."""

    __slots__ = ("_channel", "_heard", "_is_silent")

    def __init__(self, channel: Channel, heard: Callable[[RemotingCommand], None], *, is_silent: bool) -> None:
        super().__init__(
            channel.endpoint,
            channel.link,
            remote_address=channel.remote_address,
            local_address=channel.local_address,
            is_tls=channel.is_tls,
        )
        self.attributes = channel.attributes
        self._channel = channel
        self._heard = heard
        self._is_silent = is_silent

    def send(self, command: RemotingCommand) -> None:
        self._heard(command)
        if not self._is_silent:
            self._channel.send(command)


def _to_be_answered(request: RemotingCommand) -> RemotingCommand:
    """The same request as one that is answered: otherwise nobody would say what came of a one-way send."""
    if not request.is_oneway:
        return request
    return RemotingCommand(
        request.code,
        ext_fields=request.ext_fields,
        body=request.body,
        opaque=request.opaque,
        flag=request.flag & ~FLAG_ONEWAY,
        language=request.language,
        version=request.version,
        serialize_type=request.serialize_type,
    )


def _attempt(channel: Channel, request: RemotingCommand, header: SendMessageRequestHeader) -> SendAttempt:
    return SendAttempt(
        producer_group=header.producer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        born_host=channel.remote_address,
        properties=properties.parse(header.properties or ""),
        body_size=len(request.body or b""),
        is_batch=bool(header.batch),
    )


def _result(answer: RemotingCommand, cost_ms: int) -> SendResult:
    stored = SendMessageResponseHeader.of_stored(answer.ext_fields)
    return SendResult(
        code=answer.code,
        remark=answer.remark,
        message_ids=() if stored is None else tuple(stored.msg_id.split(",")),
        queue_id=None if stored is None else stored.queue_id,
        queue_offset=None if stored is None else stored.queue_offset,
        cost_ms=cost_ms,
    )


def _tell_found(hooks: Sequence[Installed[ConsumeHook]], channel: Channel, header: PullMessageRequestHeader, result: GetResult) -> None:
    delivery = Delivery(
        consumer_group=header.consumer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        offset=header.queue_offset,
        next_offset=result.next_offset,
        message_count=result.message_count,
        size=len(result.records),
        client_address=channel.remote_address,
    )
    for hook in hooks:
        with logging_failures(hook.label):
            hook.part.delivered(delivery)


def _tell_sent_back(hooks: Sequence[Installed[SendBackHook]], message: SentBack) -> None:
    for hook in hooks:
        with logging_failures(hook.label):
            hook.part.sent_back(message)
