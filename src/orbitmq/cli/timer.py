"""`orbitmq timer`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from orbitmq.cli.connection import administered, name_server_options
from orbitmq.cli.output import emit, moment, output_option, say, shortened, show_unreachable

if TYPE_CHECKING:
    from orbitmq.admin import Admin
    from orbitmq.admin.timers import TimedMessage

_COLUMNS = ["due", "in_s", "topic", "msg_id", "broker", "tags", "keys", "body"]


@click.group("timer")
def group() -> None:
    """Messages that wait for their time, and taking them back.

    A message that is sent with a delay or a time of its own waits at its broker until then. (Messages of delay levels are not among these:
    see `orbitmq topic` for SCHEDULE_TOPIC_XXXX.)
    """


def broker_option(command: click.decorators.FC) -> click.decorators.FC:
    return click.option("--broker", metavar="NAME", help="Only this broker, by name or address.  [default: all]")(command)


@group.command("ls")
@click.option("--topic", metavar="NAME", help="Only messages to this topic.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="Show so many, the next to come first.")
@broker_option
@name_server_options
@output_option
def ls(name_servers: str, timeout_ms: int, output: str, broker: str | None, topic: str | None, limit: int) -> None:
    """List the messages that wait for their time, the next to come first.

    \b
    Examples:
      orbitmq timer ls
      orbitmq timer ls --topic reminders --limit 10 -o json
    """
    gathered = administered(name_servers, timeout_ms, lambda admin: admin.timers.waiting(broker=broker, topic=topic, limit=limit + 1))
    waiting = sorted((each for found in gathered.found.values() for each in found), key=lambda each: each.deliver_at_ms)
    emit([_row(each) for each in waiting[:limit]], _COLUMNS, output)
    if len(waiting) > limit:
        say(f"more wait; see them with --limit {10 * limit}", err=True)
    show_unreachable(gathered.unreachable)


@group.command("cancel")
@click.argument("message")
@broker_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@name_server_options
def cancel(name_servers: str, timeout_ms: int, broker: str | None, message: str, yes: bool) -> None:
    """Take the message MESSAGE back before it comes: its id, or the recall handle that its producer got.

    Brokers do so only when they are told that producers may (recallMessageEnable=true), and until the second begins in which it is due.

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
            click.confirm(f"take back the message {found.unique_key} to {found.topic}, which is due at {when}?", abort=True, err=True)
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
