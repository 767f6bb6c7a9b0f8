"""`orbitmq message`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitmq.cli.arguments import TIME_FORMS, chosen_queue, key_values, to_place, to_time, together
from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.connection import administered, client_settings, name_server_options
from orbitmq.cli.output import emit, json_text, moment, output_option, say, shortened
from orbitmq.common.visible import visible

if TYPE_CHECKING:
    from orbitmq.admin import Admin
    from orbitmq.admin.positions import Position
    from orbitmq.client.messages import Message, ReceivedMessage, SendResult

_COLUMNS = ["stored", "broker", "queue", "offset", "msg_id", "tags", "keys", "body"]


@click.group("message", cls=CommandGroup, old_names={"get": "show"})
def group() -> None:
    """Send, follow and find messages."""


# -- send


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is said of a message beside topic and body."""

    tags: str | None
    keys: tuple[str, ...]
    properties: tuple[str, ...]
    sharding_key: str | None
    delay_level: int

    def message(self, topic: str, body: bytes) -> Message:
        from orbitmq.client.messages import Message

        return Message(
            topic,
            body,
            self.tags,
            self.keys,
            key_values(self.properties, "--property"),
            sharding_key=self.sharding_key,
            delay_level=self.delay_level,
        )


@group.command("send")
@click.argument("topic")
@click.argument("body", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Send the content of this file.",
)
@together(
    _Wanted,
    click.option("--tags", metavar="TAG", help="Tag, for consumers that filter by it."),
    click.option(
        "--keys",
        "keys",
        multiple=True,
        metavar="KEY",
        help="Lookup key; repeatable.",
    ),
    click.option(
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="User property; repeatable.",
    ),
    click.option(
        "--sharding-key", metavar="KEY", help="Send all messages with this key to the same queue."
    ),
    click.option(
        "--delay-level",
        type=click.IntRange(0),
        default=0,
        metavar="N",
        help="Deliver later: 1 = 1 s, 3 = 10 s, 5 = 1 min …",
    ),
)
@click.option("--queue", metavar="[BROKER:]ID", help="Send to this queue.")
@click.option(
    "-c",
    "--count",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Send this many copies.",
)
@name_server_options
@output_option
def send(
    name_servers: str,
    timeout_ms: int,
    output: str,
    topic: str,
    body: str | None,
    path: Path | None,
    wanted: _Wanted,
    queue: str | None,
    count: int,
) -> None:
    """Send a message to TOPIC: BODY, a file or standard input.

    Prints the ids of the message and its place.

    \b
    Examples:
      orbitmq message send orders 'hello' --tags new --keys 4711
      orbitmq message send orders --file order.json --queue broker-a:0
      date | orbitmq message send orders -o json
    """
    message = wanted.message(topic, _body(body, path))
    sent: list[SendResult] = []

    async def run() -> None:
        from orbitmq.client.producer.outbox import ProducerSettings
        from orbitmq.client.producer.producer import Producer

        settings = client_settings(name_servers, timeout_ms)
        async with Producer(settings, settings=ProducerSettings(timeout_ms=timeout_ms)) as producer:
            target = (
                None
                if queue is None
                else chosen_queue(list(await producer.queues(topic)), queue, "--queue")
            )
            for _ in range(count):
                sent.append(await producer.send(message, queue=target))  # noqa: PERF401 - when one fails, the others are shown

    try:
        asyncio.run(run())
    finally:
        if sent:
            emit(
                [_sent_row(result) for result in sent],
                ["msg_id", "offset_msg_id", "broker", "queue", "offset", "status"],
                output,
            )


def _body(body: str | None, path: Path | None) -> bytes:
    if body is not None and path is not None:
        raise click.UsageError("give a BODY or a --file, not both")
    if body is not None:
        return body.encode()
    if path is not None:
        return path.read_bytes()
    if sys.stdin.isatty():
        raise click.UsageError(
            "there is nothing to send: give a BODY or a --file, or pipe something in"
        )
    return sys.stdin.buffer.read()


def _sent_row(result: SendResult) -> dict[str, object]:
    return {
        "msg_id": result.msg_id,
        "offset_msg_id": result.offset_msg_id,
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
        "status": result.status.name,
    }


# -- look


@group.command("tail")
@click.argument("topic")
@click.option(
    "--from",
    "begin",
    default="last",
    show_default=True,
    metavar="first|last|TIME",
    callback=to_place,
    help=f"Where to begin. A time is {TIME_FORMS}.",
)
@click.option("--tags", metavar="'A || B'", help="Only messages with one of these tags.")
@click.option(
    "--sql92",
    metavar="EXPRESSION",
    help="Only messages matching this SQL92 expression; brokers need enablePropertyFilter.",
)
@click.option(
    "-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after this many messages."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format: one line per message.",
)
@name_server_options
def tail(
    name_servers: str,
    timeout_ms: int,
    topic: str,
    begin: Position,
    tags: str | None,
    sql92: str | None,
    count: int | None,
    output: str,
) -> None:
    """Print the messages of TOPIC as they arrive, until Ctrl-C.

    Consumers are not affected: no group, no offsets.

    \b
    Examples:
      orbitmq message tail orders
      orbitmq message tail orders --from -15m --tags 'new || paid' -c 10
      orbitmq message tail orders --sql92 "amount > 100 AND region = 'north'"
      orbitmq message tail orders --from first -o json | jq .body
    """
    from orbitmq.protocol.bodies.subscriptions import SQL92, SUBSCRIBE_ALL, TAG

    if tags is not None and sql92 is not None:
        raise click.UsageError(
            "--tags and --sql92 exclude each other: an expression may ask for TAGS = 'A'"
        )
    expression, kind = (tags or SUBSCRIBE_ALL, TAG) if sql92 is None else (sql92, SQL92)

    async def follow(admin: Admin) -> None:
        left = count
        async with admin.messages.follow(topic, begin, expression, kind) as messages:
            say(f"following {len(messages.queues)} queues of {topic}; Ctrl-C ends it", err=True)
            async for message in messages:
                row = _row(message)
                say(json_text(row) if output == "json" else _line(row))
                left = None if left is None else left - 1
                if left == 0:
                    return

    administered(name_servers, timeout_ms, follow)


@group.command("show")
@click.argument("message_id", metavar="ID")
@click.option("--topic", metavar="TOPIC", help="Search this topic only.  [default: all topics]")
@name_server_options
@output_option
def show(
    name_servers: str, timeout_ms: int, output: str, message_id: str, topic: str | None
) -> None:
    """Show the message with ID: its offset id, its unique id or a key.

    \b
    Examples:
      orbitmq message show 7F00000100002A9F0000000000000000
      orbitmq message show 4711 --topic orders -o json
    """
    found = administered(
        name_servers, timeout_ms, lambda admin: admin.messages.get(message_id, topic)
    )
    row: dict[str, object] = {
        "found_by": found.found_by,
        "looked": list(found.looked),
        **_row(found.message),
    }
    if output != "table":
        emit([row], [], output)
        return
    properties = row.pop("properties")
    assert isinstance(properties, dict)
    shown = {name.replace("_", " "): value for name, value in row.items() if value is not None}
    shown |= {f"property {name}": value for name, value in sorted(properties.items())}
    emit(
        [{"what": name, "value": value} for name, value in shown.items()], ["what", "value"], output
    )


@group.command("find")
@click.argument("topic")
@click.option("--key", metavar="KEY", help="Only messages with this key.")
@click.option(
    "--since",
    metavar="TIME",
    callback=to_time,
    help=f"Only messages stored at this time or later: {TIME_FORMS}.",
)
@click.option(
    "--until",
    metavar="TIME",
    callback=to_time,
    help="Only messages stored at this time or earlier.  [default: now]",
)
@click.option(
    "--tags", default="*", metavar="'A || B'", help="Only messages with one of these tags."
)
@click.option(
    "-c", "--count", type=click.IntRange(1), default=64, show_default=True, help="Maximum count."
)
@name_server_options
@output_option
def find(
    name_servers: str,
    timeout_ms: int,
    output: str,
    topic: str,
    key: str | None,
    since: int | None,
    until: int | None,
    tags: str,
    count: int,
) -> None:
    """Find messages of TOPIC by key, by store time, or both; oldest first.

    \b
    Examples:
      orbitmq message find orders --key 4711
      orbitmq message find orders --since -1h --until -30m --tags paid -o json
    """
    if key is None and since is None:
        raise click.UsageError("say what to look for: --key, or --since a time")
    begin_ms, end_ms = since or 0, (1 << 63) - 1 if until is None else until

    async def look(admin: Admin) -> list[ReceivedMessage]:
        if key is not None:
            found = await admin.messages.by_key(
                topic, key, begin_ms=begin_ms, end_ms=end_ms, count_max=count
            )
            wanted = [tag.strip() for tag in tags.split("||")]
            return [message for message in found if tags == "*" or message.tags in wanted][:count]
        messages: list[ReceivedMessage] = []
        async for message in admin.messages.between(topic, begin_ms, end_ms, tags):
            messages.append(message)
            if len(messages) == count:
                break
        return messages

    rows = [_row(message) for message in administered(name_servers, timeout_ms, look)]
    if output == "table":
        rows = [row | {"body": shortened(_text(row))} for row in rows]
    emit(rows, _COLUMNS, output)


# -- shown


def _row(message: ReceivedMessage) -> dict[str, object]:
    """Return all fields of a message; a body that is not text as Base64."""
    row: dict[str, object] = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "stored": moment(message.stored_at_ms),
        "born": moment(message.born_at_ms),
        "reconsume_times": message.reconsume_times,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": dict(message.properties),
    }
    from base64 import b64encode

    if message.problem is not None:
        return row | {
            "body": None,
            "body_base64": b64encode(message.stored.body).decode(),
            "problem": message.problem,
        }
    try:
        return row | {"body": message.body.decode()}
    except UnicodeDecodeError:
        return row | {"body": None, "body_base64": b64encode(message.body).decode()}


def _text(row: dict[str, object]) -> str:
    body = row["body"]
    return str(row["body_base64"] if body is None else body)


def _line(row: dict[str, object]) -> str:
    keys = row["keys"]
    assert isinstance(keys, list)
    marks = " ".join([*([f"[{row['tags']}]"] if row["tags"] else []), *keys])
    text = "".join(
        char if char.isprintable() else "·" for char in _text(row).rstrip("\n")
    )  # a line stays one
    return visible(
        f"{row['stored']}  {row['broker']}/{row['queue']}@{row['offset']} "
        f" {marks + '  ' if marks else ''}{text}"
    )
