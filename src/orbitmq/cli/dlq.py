"""`orbitmq dlq`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orbitmq.cli.arguments import time_options, to_rate
from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.connection import administered, name_server_options
from orbitmq.cli.output import emit, moment, output_option, say, shortened
from orbitmq.message.properties import decode_text

if TYPE_CHECKING:
    from orbitmq.admin import Admin
    from orbitmq.admin.dead_letters import DeadLetter, LetterFilter, RedriveResult

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS = ["died", "origin_topic", "origin_id", "keys", "tags", "attempts", "reason", "body"]


@click.group("dlq", cls=CommandGroup, old_names={"ls": "list", "peek": "show"})
def group() -> None:
    """List, inspect and redrive dead letters.

    For millions of dead letters use `orbitmq spark dlq`.
    """


@group.command("list")
@name_server_options
@output_option
def list_(name_servers: str, timeout_ms: int, output: str) -> None:
    """List the groups that have dead letters, with their counts.

    \b
    Examples:
      orbitmq dlq list
      orbitmq dlq list -o json
    """
    found = administered(name_servers, timeout_ms, lambda admin: admin.dead_letters.groups())
    rows = [
        {
            "group": each.group,
            "messages": each.messages,
            "first_died": moment(each.first_died_ms),
            "last_died": moment(each.last_died_ms),
            "brokers": list(each.brokers),
        }
        for each in found
    ]
    if not rows and output == "table":
        say("no group has dead letters")
        return
    emit(rows, ["group", "messages", "first_died", "last_died", "brokers"], output)


def choice_options(command: F) -> F:
    """Which letters."""
    command = click.option(
        "--keys",
        multiple=True,
        metavar="KEY",
        help="Only letters with this key; repeatable.",
    )(command)
    command = click.option(
        "--filter",
        "condition",
        metavar="SQL92",
        help="Only letters matching this expression; also originTopic, originId, attempts, reason.",
    )(command)
    return time_options("Only letters that died")(command)


@group.command("show")
@click.argument("name", metavar="GROUP")
@choice_options
@click.option(
    "-c", "--count", type=click.IntRange(1), default=10, show_default=True, help="Maximum count."
)
@click.option("--oldest", is_flag=True, help="Show the oldest first.  [default: the newest]")
@name_server_options
@output_option
def show(
    name_servers: str,
    timeout_ms: int,
    output: str,
    name: str,
    since: int | None,
    until: int | None,
    condition: str | None,
    keys: tuple[str, ...],
    count: int,
    oldest: bool,
) -> None:
    """Show dead letters of GROUP without removing them.

    \b
    Examples:
      orbitmq dlq show billing
      orbitmq dlq show billing --filter "attempts < 16" -o json
    """
    choice = _choice(since, until, condition, keys)

    async def look(admin: Admin) -> list[DeadLetter]:
        last: deque[DeadLetter] = deque(maxlen=count)
        async for letter in admin.dead_letters.letters(name, choice):
            if oldest and len(last) == count:
                break
            last.append(letter)
        return list(last)

    rows = list(map(_row, administered(name_servers, timeout_ms, look)))
    if output == "table":
        rows = [row | {"body": shortened(str(row["body"]))} for row in rows]
    emit(rows, _COLUMNS, output)


@group.command("redrive")
@click.argument("name", metavar="GROUP")
@choice_options
@click.option(
    "--to", metavar="TOPIC", help="Target topic for all letters.  [default: the topic of each]"
)
@click.option(
    "--rate",
    metavar="N[/s]",
    callback=to_rate,
    help="Maximum messages per second.  [default: no limit]",
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
@name_server_options
@output_option
def redrive(
    name_servers: str,
    timeout_ms: int,
    output: str,
    name: str,
    since: int | None,
    until: int | None,
    condition: str | None,
    keys: tuple[str, ...],
    to: str | None,
    rate: int | None,
    dry_run: bool,
) -> None:
    """Send dead letters of GROUP back to their original topics.

    Letters stay in the dead-letter queue: a second redrive sends them again, unless --since skips
    those of the first.

    \b
    Examples:
      orbitmq dlq redrive billing --dry-run
      orbitmq dlq redrive billing --keys 4711 --keys 4712
      orbitmq dlq redrive billing --filter "originTopic = 'orders'" --rate 100/s
    """
    choice = _choice(since, until, condition, keys)
    done = administered(
        name_servers,
        timeout_ms,
        lambda admin: admin.dead_letters.redrive(
            name, choice, to=to, rate=rate, is_dry_run=dry_run
        ),
    )
    _show_redriven(done, output)


def _choice(
    since: int | None, until: int | None, condition: str | None, keys: tuple[str, ...]
) -> LetterFilter:
    from orbitmq.admin.dead_letters import LetterFilter

    times = {"since_ms": since, "until_ms": None if until is None else until - 1}
    return LetterFilter(
        keys=keys, condition=condition, **{name: ms for name, ms in times.items() if ms is not None}
    )


def _row(letter: DeadLetter) -> dict[str, object]:
    message = letter.message
    return {
        "died": moment(message.stored_at_ms),
        "origin_topic": letter.origin_topic,
        "origin_id": letter.origin_id,
        "msg_id": message.msg_id,
        "keys": list(message.keys),
        "tags": message.tags,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "broker": message.queue.broker_name,
        "offset": message.queue_offset,
        "properties": dict(message.properties),
        "problem": message.problem,
        "body": decode_text(message.stored.body if message.problem is not None else message.body),
    }


def _show_redriven(done: RedriveResult, output: str) -> None:
    what = "would_send" if done.is_dry_run else "sent"
    topics = dict(sorted(done.topics.items()))
    if output != "table":
        summary = {
            "group": done.group,
            "is_dry_run": done.is_dry_run,
            "looked_at": done.looked_at,
            "without_topic": done.without_topic,
        }
        emit(
            [
                {
                    **summary,
                    "unreadable": done.unreadable,
                    "topics": topics,
                    "last_died_ms": done.last_died_ms,
                }
            ],
            [],
            output,
        )
        return
    emit(
        [{"topic": topic, what: count} for topic, count in topics.items()], ["topic", what], output
    )
    if done.without_topic:
        say(
            f"{done.without_topic} letters do not say where they came from, and stay; send them"
            " with --to TOPIC",
            err=True,
        )
    if done.unreadable:
        say(
            f"{done.unreadable} letters have a body that cannot be read, and stay; dlq show"
            " says why",
            err=True,
        )
    if done.looked_at and not done.is_dry_run:
        say(f"letters that die from now on are those --since @{done.last_died_ms + 1}", err=True)
