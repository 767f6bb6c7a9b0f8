"""Calls the validators and hooks of other packages, in order, and contains their exceptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

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
from orbitmq.common.installed import Installed
from orbitmq.message import properties
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.pull import PullMessageRequestHeader
from orbitmq.protocol.headers.send import (
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    send_header,
)
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import failure
from orbitmq.remoting.hooks import RpcHook, installed_hooks, logging_failures, naming
from orbitmq.store.reads import GetResult

_SENDS: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
_PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)

Heard: TypeAlias = Callable[[RemotingCommand], None]  # is called with the reply to a send


class Hooks:
    """All validators and hooks that are installed; they do not change while the broker runs."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self.around_requests: list[RpcHook] = [
            _Validation(validator) for validator in ACCESS_VALIDATORS.installed()
        ]
        self.around_requests += installed_hooks()
        self._send_hooks = SEND_HOOKS.installed()
        self._consume_hooks = CONSUME_HOOKS.installed()
        self._send_back_hooks = SEND_BACK_HOOKS.installed()

    def unheard(
        self, is_direct: Callable[[int], bool], *, hears_sends: bool = False
    ) -> Callable[[int], bool]:
        """Return `is_direct` without the codes whose requests hooks, or other parts, have to
        observe: only their handlers may serve those.
        """
        heard = {
            *(_SENDS if self._send_hooks or hears_sends else ()),
            *(_PULLS if self._consume_hooks else ()),
        }
        return (lambda code: code not in heard and is_direct(code)) if heard else is_direct

    @property
    def sends(self) -> SendHooks | None:
        """Return the hooks around sends and replies, or None."""
        return SendHooks(self._send_hooks, self._monotonic_ms) if self._send_hooks else None

    @property
    def found(self) -> Found | None:
        """Return the observer of pulls that found messages, or None."""
        return partial(_tell_found, self._consume_hooks) if self._consume_hooks else None

    @property
    def sent_back(self) -> Callable[[SentBack], None] | None:
        """Return the observer of messages that are sent back, or None."""
        return partial(_tell_sent_back, self._send_back_hooks) if self._send_back_hooks else None


class _Validation:
    """A validator as a hook around requests."""

    def __init__(self, validator: Installed[AccessValidator]) -> None:
        self._validator = validator

    def before(self, remote_address: str, request: RemotingCommand) -> None:
        with naming(self._validator.label):
            self._validator.part.validate(remote_address, request)

    def after(
        self, remote_address: str, request: RemotingCommand, response: RemotingCommand | None
    ) -> None: ...


class SendHooks:
    """Hooks around sends and replies, whether they are answered at once, later or not at all.

    Invariant: a send that all hooks let pass is reported to each of them once more, with its reply.
    """

    def __init__(
        self, hooks: Sequence[Installed[SendHook]], monotonic_ms: Callable[[], int]
    ) -> None:
        self._hooks = hooks
        self._monotonic_ms = monotonic_ms

    def around(
        self,
        channel: Channel,
        request: RemotingCommand,
        handle: Callable[[Channel, RemotingCommand, Heard], RemotingCommand | None],
    ) -> RemotingCommand | None:
        """Handle a send between the hooks; `handle` reports every reply but a failure."""
        heard = self._begun(channel, request)
        try:
            return handle(channel, request, heard)
        except Exception as problem:
            return _failed(request, problem, heard)

    async def around_waiting(
        self,
        channel: Channel,
        request: RemotingCommand,
        handle: Callable[[Channel, RemotingCommand, Heard], Awaitable[RemotingCommand | None]],
    ) -> RemotingCommand | None:
        """Do as `around` for a handler that waits."""
        heard = self._begun(channel, request)
        try:
            return await handle(channel, request, heard)
        except Exception as problem:
            return _failed(request, problem, heard)

    def _begun(self, channel: Channel, request: RemotingCommand) -> Heard:
        """Call the hooks before a send; return how to report its reply to them."""
        begin_ms = self._monotonic_ms()
        header = send_header(request.code, request.ext_fields)
        attempt = _attempt(channel, request, header)
        for hook in self._hooks:
            with naming(hook.label):
                hook.part.before(attempt)

        def heard(answer: RemotingCommand) -> None:
            result = _result(answer, self._monotonic_ms() - begin_ms)
            for hook in self._hooks:
                with logging_failures(hook.label):
                    hook.part.after(attempt, result)

        return heard


def _failed(request: RemotingCommand, problem: Exception, heard: Heard) -> RemotingCommand:
    answer = failure(request, problem)
    heard(answer)
    return answer


def _attempt(
    channel: Channel, request: RemotingCommand, header: SendMessageRequestHeader
) -> SendAttempt:
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


def _tell_found(
    hooks: Sequence[Installed[ConsumeHook]],
    channel: Channel,
    header: PullMessageRequestHeader,
    result: GetResult,
) -> None:
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
