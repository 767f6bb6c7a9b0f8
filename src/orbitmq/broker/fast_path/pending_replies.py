"""Replies to sends that were encoded before their messages are durable: they leave unchanged, or
are replaced by the failure. Replies that need not wait never come here (`send`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orbitmq.broker.produce.durable_replies import durability
from orbitmq.common.errors import RefusedError, RequestRefusedError
from orbitmq.protocol import frame
from orbitmq.protocol.codes import REFUSAL_CODES, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.dispatch import failure
from orbitmq.store.flush.group_commit import Outcome


def send_all(
    store: Any, replies: list[tuple[Any, bytes]], settled: Callable[[int], object], outcome: Outcome
) -> None:
    """Send the replies that were held until the flush; `settled` gets the response code."""
    refusal, remark = durability(outcome, store)
    if refusal is None:
        settled(ResponseCode.SUCCESS)
        for link, data in replies:
            link.write(data)
        return
    code = REFUSAL_CODES[refusal]
    settled(code)
    for channel, reply in _commands(replies):
        reply.code = code
        reply.remark = remark
        channel.send(reply)


def fail_all(
    replies: list[tuple[Any, bytes]], problem: Exception, fields: Mapping[str, str]
) -> int:
    """Reply to sends that were not stored, with these header fields to a refusal; return the
    response code.
    """
    code: int = ResponseCode.SYSTEM_ERROR
    if isinstance(problem, RefusedError):
        code = REFUSAL_CODES[problem.refusal]
        problem = RequestRefusedError(code, problem.remark, fields)
    for channel, reply in _commands(replies):
        channel.send(failure(reply, problem))
    return code


def _commands(replies: list[tuple[Any, bytes]]) -> list[tuple[Any, RemotingCommand]]:
    """Decode the replies; return each with its channel."""
    commands = []
    limits = frame.FrameLimits()
    for link, data in replies:
        at = 0
        while at < len(data):
            stop = frame.frame_end(data, at, len(data), limits)
            commands.append((link.channel, frame.decode(data, at, stop)))
            at = stop
    return commands
