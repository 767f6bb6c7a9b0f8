"""`orbitmq tx`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from orbitmq.cli.connection import administered, name_server_options
from orbitmq.cli.output import emit, moment, output_option, say, shortened, show_unreachable

if TYPE_CHECKING:
    from orbitmq.admin import Admin
    from orbitmq.admin.transactions import HalfMessage

_COLUMNS = ["msg_id", "topic", "group", "came", "age_s", "checks", "broker", "keys", "body"]
_ENDS = {"commit": "COMMIT", "rollback": "ROLLBACK"}


@click.group("tx")
def group() -> None:
    """Transactions that have not ended, and how they are ended by hand.

    A message of a transaction is kept back until its producer says how the transaction ended. A producer that says nothing is asked, again
    and again (transactionCheckMax times); then the message is given up, and kept in TRANS_CHECK_MAX_TIME_TOPIC.
    """


def broker_option(command: click.decorators.FC) -> click.decorators.FC:
    return click.option("--broker", metavar="NAME", help="Only this broker, by name or address.  [default: all]")(command)


@group.command("ls")
@click.option("--given-up", is_flag=True, help="Those that nobody is asked about any more.")
@click.option("--group", "producer_group", metavar="NAME", help="Only those of this producer group.")
@broker_option
@name_server_options
@output_option
def ls(name_servers: str, timeout_ms: int, output: str, broker: str | None, producer_group: str | None, given_up: bool) -> None:
    """List the messages that wait for the end of their transactions, the oldest first.

    \b
    Examples:
      orbitmq tx ls
      orbitmq tx ls --given-up --group order-service -o json
    """
    gathered = administered(name_servers, timeout_ms, lambda admin: admin.transactions.open(broker=broker, given_up=given_up))
    halves = [half for found in gathered.found.values() for half in found if producer_group in (None, half.half.group)]
    emit([_row(half) for half in halves], _COLUMNS, output)
    show_unreachable(gathered.unreachable)


@group.command("show")
@click.argument("message_id")
@broker_option
@name_server_options
@output_option
def show(name_servers: str, timeout_ms: int, output: str, broker: str | None, message_id: str) -> None:
    """Show one message that waits, or was given up, by its MESSAGE_ID, and which producers can be asked about it now.

    \b
    Example:
      orbitmq tx show 7F0000010BDF5FFD2B274D39B986014B
    """

    async def look(admin: Admin) -> tuple[HalfMessage, list[str]]:
        half = await admin.transactions.find(message_id, broker=broker)
        return half, [f"{each.client_id} ({each.client_addr})" for each in await admin.transactions.producers(half)]

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
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@name_server_options
def resolve(name_servers: str, timeout_ms: int, broker: str | None, message_id: str, end: str, yes: bool) -> None:
    """End the transaction of the message MESSAGE_ID: commit delivers it, rollback drops it for good.

    It is what its producer would say who is asked; do so only when you know how the local transaction ended. The first word counts: one
    that has ended meanwhile is left as it is. One that was given up is brought back for it.

    \b
    Example:
      orbitmq tx resolve 7F0000010BDF5FFD2B274D39B986014B commit
    """

    async def act(admin: Admin) -> HalfMessage:
        from orbitmq.client.messages import TransactionState

        half = await admin.transactions.find(message_id, broker=broker)
        if not yes:
            click.confirm(f"{end} the message {half.unique_key} to {half.half.topic}, sent by {half.half.group}?", abort=True, err=True)
        await admin.transactions.resolve(half, TransactionState[_ENDS[end]])
        return half

    half = administered(name_servers, timeout_ms, act)
    done = f"committed: it is in {half.half.topic} now" if end == "commit" else f"rolled back: {half.half.topic} will not see it"
    say(f"{half.unique_key} is {done}")


@group.command("resume")
@click.argument("message_id")
@broker_option
@name_server_options
def resume(name_servers: str, timeout_ms: int, broker: str | None, message_id: str) -> None:
    """Have the producers of the message MESSAGE_ID asked again, as if they never had been.

    \b
    Example:
      orbitmq tx resume 7F0000010BDF5FFD2B274D39B986014B
    """

    async def act(admin: Admin) -> HalfMessage:
        half = await admin.transactions.find(message_id, broker=broker)
        await admin.transactions.resume(half)
        return half

    half = administered(name_servers, timeout_ms, act)
    say(f"producers of {half.half.group} will be asked about {half.unique_key} again, by {half.broker}")


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
