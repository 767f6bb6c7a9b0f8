"""`orbitmq timer`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.connection import administered, name_server_options
from orbitmq.cli.output import emit, moment, output_option, say, shortened, show_unreachable

if TYPE_CHECKING:
    from orbitmq.admin import Admin
    from orbitmq.admin.timers import TimedMessage

_COLUMNS = ["due", "in_s", "topic", "msg_id", "broker", "tags", "keys", "body"]


@click.group("timer", cls=CommandGroup, old_names={"ls": "list"})
def group() -> None:
    """List and cancel scheduled messages.

    A scheduled message has a delay or a delivery time, and is pending at its broker until then.
    Messages with delay levels are not listed: see `orbitmq topic` for SCHEDULE_TOPIC_XXXX.
    """


def broker_option(command: click.decorators.FC) -> click.decorators.FC:
    return click.option(
        "--broker", metavar="NAME", help="Only this broker, by name or address.  [default: all]"
    )(command)


@group.command("list")
@click.option("--topic", metavar="NAME", help="Only messages to this topic.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    metavar="N",
    help="Maximum count.",
)
@broker_option
@name_server_options
@output_option
def list_(
    name_servers: str,
    timeout_ms: int,
    output: str,
    broker: str | None,
    topic: str | None,
    limit: int,
) -> None:
    """List scheduled messages, the next delivery first.

    \b
    Examples:
      orbitmq timer list
      orbitmq timer list --topic reminders --limit 10 -o json
    """
    gathered = administered(
        name_servers,
        timeout_ms,
        lambda admin: admin.timers.waiting(broker=broker, topic=topic, limit=limit + 1),
    )
    waiting = sorted(
        (each for found in gathered.found.values() for each in found),
        key=lambda each: each.deliver_at_ms,
    )
    emit([_row(each) for each in waiting[:limit]], _COLUMNS, output)
    if len(waiting) > limit:
        say(f"more wait; see them with --limit {10 * limit}", err=True)
    show_unreachable(gathered.unreachable)


@group.command("cancel")
@click.argument("message")
@broker_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@name_server_options
def cancel(name_servers: str, timeout_ms: int, broker: str | None, message: str, yes: bool) -> None:
    """Cancel a scheduled message, by its id or its recall handle.

    Needs recallMessageEnable=true at the broker, and works until the second in which the message is
    due begins.

    \b
    Examples:
      orbitmq timer cancel 7F0000010BDF5FFD2B274D39B986014B
      orbitmq broker config broker-a --set recallMessageEnable=true
    """

    async def act(admin: Admin) -> str:
        from orbitmq.admin.timers import is_handle

        if is_handle(message):
            return (await admin.timers.cancel(message)).msg_id
        found = await admin.timers.find(message, broker=broker)
        if not yes:
            when = moment(found.deliver_at_ms)
            click.confirm(
                f"take back the message {found.unique_key} to {found.topic}, which is due at"
                f" {when}?",
                abort=True,
                err=True,
            )
        return (await admin.timers.cancel(found.recall_handle)).msg_id

    say(f"{administered(name_servers, timeout_ms, act)} is taken back: it will not come")


def _row(message: TimedMessage) -> dict[str, object]:
    found = message.stored.properties()
    return {
        "due": moment(message.deliver_at_ms),
        "in_s": max(message.deliver_at_ms - time.time_ns() // 1_000_000, 0) // 1000,
        "topic": message.topic,
        "msg_id": message.unique_key,
        "offset_msg_id": message.stored.msg_id,
        "recall_handle": message.recall_handle,
        "broker": message.broker,
        "tags": found.get("TAGS"),
        "keys": found.get("KEYS"),
        "body": shortened(message.stored.body.decode("utf-8", "replace")),
    }
