"""Answers to sends that a turn has made, as frames, before it is known whether their messages are safe: they go out as they are, or with
what went wrong. Those that need not wait do not come here (`hot_send`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orbitmq.broker.processors.send import OUTCOMES
from orbitmq.common.errors import RequestRefused
from orbitmq.protocol import frame
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.dispatch import failure
from orbitmq.store.group_commit import Outcome


def tell(store: Any, answers: list[tuple[Any, bytes]], told: Callable[[int], object], outcome: Outcome) -> None:
    """Answer what waited for the disk; `told` hears with which code."""
    code, remark = OUTCOMES.get(outcome, (ResponseCode.SERVICE_NOT_AVAILABLE, store.refusal))
    told(code)
    if outcome is Outcome.DONE:
        for link, data in answers:
            link.write(data)
        return
    for channel, answer in _commands(answers):
        answer.code = code
        answer.remark = remark
        channel.send(answer)


def tell_failure(answers: list[tuple[Any, bytes]], problem: Exception) -> int:
    """Answer what was not stored; with which code."""
    for channel, answer in _commands(answers):
        channel.send(failure(answer, problem))
    return problem.code if isinstance(problem, RequestRefused) else ResponseCode.SYSTEM_ERROR


def _commands(answers: list[tuple[Any, bytes]]) -> list[tuple[Any, RemotingCommand]]:
    """The answers one by one, and the channels they go to."""
    commands = []
    limits = frame.FrameLimits()
    for link, data in answers:
        at = 0
        while at < len(data):
            stop = frame.frame_end(data, at, len(data), limits)
            commands.append((link.channel, frame.decode(data, at, stop)))
            at = stop
    return commands
