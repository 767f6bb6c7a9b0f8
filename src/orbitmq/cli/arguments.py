"""Parses arguments of commands: times, offsets, queues, key=value pairs; and groups of options."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from orbitmq.admin.positions import Position
    from orbitmq.protocol.bodies.clients import MessageQueue

F = TypeVar("F", bound=Callable[..., Any])

_AGO: Final = re.compile(r"-(\d+)(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ORIGINAL: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})"
)  # as mqadmin writes times
_RATE: Final = re.compile(r"(\d{1,9})(?:/s)?")
TIME_FORMS: Final = (
    "now, -15m (ago: ms, s, m, h, d), 2026-01-31, 2026-01-31T12:00:00, or @ and milliseconds since"
    " 1970"
)


def time_ms(text: str, now_ms: int) -> int:
    """The time that a text names, in local time where it names no zone; ValueError when it names
    none.
    """
    from datetime import datetime

    if text == "now":
        return now_ms
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _UNITS_MS[ago[2]]
    if text.startswith("@"):
        return int(text[1:])
    if original := _ORIGINAL.fullmatch(text):
        text = f"{original[1]}T{original[2]}.{original[3]}"
    found = datetime.fromisoformat(text)
    return int(found.timestamp() * 1000)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def to_time(_ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """The callback of an option that is a time."""
    try:
        return None if value is None else time_ms(value, _now_ms())
    except ValueError:
        raise click.BadParameter(f"{value!r} is no time; write {TIME_FORMS}", param=param) from None


def to_place(
    _ctx: click.Context, param: click.Parameter, value: str, *, takes_offset: bool = False
) -> Position:
    """The callback of an option that is a place in queues."""
    from orbitmq.admin.positions import AtOffset, AtStoreTime, QueueEdge

    if value in ("first", "last"):
        return QueueEdge(value)
    if takes_offset and value.isdecimal():
        return AtOffset(int(value))
    try:
        return AtStoreTime(time_ms(value, _now_ms()))
    except ValueError:
        offset = ", an offset" if takes_offset else ""
        text = (
            f"{value!r} is no place in a queue; write first, last{offset}, or a time: {TIME_FORMS}"
        )
        raise click.BadParameter(text, param=param) from None


def time_options(what: str) -> Callable[[F], F]:
    """`--since` and `--until`."""

    def decorate(command: F) -> F:
        command = click.option(
            "--until", metavar="TIME", callback=to_time, help=f"{what} before this time."
        )(command)
        return click.option(
            "--since",
            metavar="TIME",
            callback=to_time,
            help=f"{what} at this time or later: {TIME_FORMS}.",
        )(command)

    return decorate


def to_rate(_ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """The callback of an option that is a number of messages a second."""
    if value is None:
        return None
    found = _RATE.fullmatch(value)
    if found is None or int(found[1]) == 0:
        raise click.BadParameter(
            f"{value!r} is no rate; write 500 or 500/s, at least 1", param=param
        )
    return int(found[1])


def chosen_queue(queues: list[MessageQueue], text: str, option: str) -> MessageQueue:
    """The queue that `BROKER:ID` names, or `ID` alone where one broker only has it."""
    broker, _, number = text.rpartition(":")
    found = [
        queue
        for queue in queues
        if str(queue.queue_id) == number and broker in ("", queue.broker_name)
    ]
    if len(found) == 1:
        return found[0]
    topic = queues[0].topic if queues else "the topic"
    if found:
        brokers = ", ".join(f"{queue.broker_name}:{number}" for queue in found)
        raise click.BadParameter(f"{text!r} may be any of {brokers}: say which", param_hint=option)
    known = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues) or "none"
    raise click.BadParameter(f"{topic} has no queue {text!r}; there are {known}", param_hint=option)


def key_values(pairs: Sequence[str], option: str = "--set") -> dict[str, str]:
    """`KEY=VALUE` texts as a table."""
    for pair in pairs:
        if "=" not in pair:
            raise click.BadParameter(f"{pair!r} is not of the form KEY=VALUE", param_hint=option)
    return {name.strip(): text for name, _, text in (pair.partition("=") for pair in pairs)}


def together(
    kind: type[Any], *options: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """Options that a command gets as one value of a dataclass, its `wanted`."""

    def decorate(command: Callable[..., None]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gathered(**given: Any) -> None:
            command(
                wanted=kind(**{field.name: given.pop(field.name) for field in fields(kind)}),
                **given,
            )

        decorated: Callable[..., Any] = gathered
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate
