"""`orbitmq tx`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.connection import administered, name_server_options
from orbitmq.cli.output import emit, moment, output_option, say, shortened, show_unreachable

if TYPE_CHECKING:
    from orbitmq.admin import Admin
    from orbitmq.admin.transactions import HalfMessage

_COLUMNS = ["msg_id", "topic", "group", "came", "age_s", "checks", "broker", "keys", "body"]
_ENDS = {"commit": "COMMIT", "rollback": "ROLLBACK"}


@click.group("tx", cls=CommandGroup, old_names={"ls": "list"})
def group() -> None:
    """List open transactions and end them by hand.

    A half message is invisible until its producer commits or rolls back. The broker checks with a
    silent producer up to transactionCheckMax times; then it gives up and moves the message to
    TRANS_CHECK_MAX_TIME_TOPIC.
    """


def broker_option(command: click.decorators.FC) -> click.decorators.FC:
    return click.option(
        "--broker", metavar="NAME", help="Only this broker, by name or address.  [default: all]"
    )(command)


@group.command("list")
@click.option("--given-up", is_flag=True, help="List those that the broker gave up.")
@click.option("--group", "producer_group", metavar="NAME", help="Only this producer group.")
@broker_option
@name_server_options
@output_option
def list_(
    name_servers: str,
    timeout_ms: int,
    output: str,
    broker: str | None,
    producer_group: str | None,
    given_up: bool,
) -> None:
    """List half messages of open transactions, the oldest first.

    \b
    Examples:
      orbitmq tx list
      orbitmq tx list --given-up --group order-service -o json
    """
    gathered = administered(
        name_servers,
        timeout_ms,
        lambda admin: admin.transactions.open(broker=broker, given_up=given_up),
    )
    halves = [
        half
        for found in gathered.found.values()
        for half in found
        if producer_group in (None, half.half.group)
    ]
    emit([_row(half) for half in halves], _COLUMNS, output)
    show_unreachable(gathered.unreachable)


@group.command("show")
@click.argument("message_id")
@broker_option
@name_server_options
@output_option
def show(
    name_servers: str, timeout_ms: int, output: str, broker: str | None, message_id: str
) -> None:
    """Show a half message by its MESSAGE_ID, and the producers that can be checked with.

    \b
    Example:
      orbitmq tx show 7F0000010BDF5FFD2B274D39B986014B
    """

    async def look(admin: Admin) -> tuple[HalfMessage, list[str]]:
        half = await admin.transactions.find(message_id, broker=broker)
        return half, [
            f"{each.client_id} ({each.client_addr})"
            for each in await admin.transactions.producers(half)
        ]

    half, producers = administered(name_servers, timeout_ms, look)
    row = {**_row(half), "producers": producers, "properties": half.stored.properties()}
    if output != "table":
        emit([row], list(row), output)
        return
    emit([{"what": name, "value": value} for name, value in row.items()], ["what", "value"], output)


@group.command("resolve")
@click.argument("message_id")
@click.argument("end", type=click.Choice(list(_ENDS)))
@broker_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@name_server_options
def resolve(
    name_servers: str, timeout_ms: int, broker: str | None, message_id: str, end: str, yes: bool
) -> None:
    """Commit or roll back the transaction of the half message MESSAGE_ID.

    commit delivers the message, rollback drops it for good. Do so only when you know how the local
    transaction ended. A transaction that has ended meanwhile stays as it is; one that was given up
    can still be resolved.

    \b
    Example:
      orbitmq tx resolve 7F0000010BDF5FFD2B274D39B986014B commit
    """

    async def act(admin: Admin) -> HalfMessage:
        from orbitmq.client.messages import TransactionState

        half = await admin.transactions.find(message_id, broker=broker)
        if not yes:
            click.confirm(
                f"{end} the message {half.unique_key} to {half.half.topic}, sent by"
                f" {half.half.group}?",
                abort=True,
                err=True,
            )
        await admin.transactions.resolve(half, TransactionState[_ENDS[end]])
        return half

    half = administered(name_servers, timeout_ms, act)
    done = (
        f"committed: it is in {half.half.topic} now"
        if end == "commit"
        else f"rolled back: {half.half.topic} will not see it"
    )
    say(f"{half.unique_key} is {done}")


@group.command("resume")
@click.argument("message_id")
@broker_option
@name_server_options
def resume(name_servers: str, timeout_ms: int, broker: str | None, message_id: str) -> None:
    """Restart the checks of the half message MESSAGE_ID from zero.

    \b
    Example:
      orbitmq tx resume 7F0000010BDF5FFD2B274D39B986014B
    """

    async def act(admin: Admin) -> HalfMessage:
        half = await admin.transactions.find(message_id, broker=broker)
        await admin.transactions.resume(half)
        return half

    half = administered(name_servers, timeout_ms, act)
    say(
        f"producers of {half.half.group} will be asked about {half.unique_key} again, by"
        f" {half.broker}"
    )


def _row(half: HalfMessage) -> dict[str, object]:
    found, known = half.stored.properties(), half.half
    return {
        "msg_id": half.unique_key,
        "offset_msg_id": half.stored.msg_id,
        "topic": known.topic,
        "group": known.group,
        "came": moment(half.stored.born_time_ms),
        "age_s": max(int(time.time() * 1000) - half.stored.born_time_ms, 0) // 1000,
        "checks": known.checks,
        "state": "given up" if half.is_given_up else "open",
        "broker": half.broker,
        "keys": found.get("KEYS"),
        "tags": found.get("TAGS"),
        "body": shortened(half.stored.body.decode("utf-8", "replace")),
    }
