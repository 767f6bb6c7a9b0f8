"""`orbitmq spark replay`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitmq.cli.arguments import time_options, to_rate
from orbitmq.cli.output import emit, moment, output_option
from orbitmq.cli.spark_running import (
    SparkWanted,
    cluster_options,
    format_options,
    job,
    place,
    same_cluster,
    spark_options,
)

if TYPE_CHECKING:
    from orbitmq.spark.jobs.replay import Archive
    from orbitmq.spark.jobs.topic_snapshot import TopicSnapshot


@click.command("replay")
@click.option(
    "--from",
    "source",
    required=True,
    metavar="DIR|[HOST:PORT/]TOPIC",
    help="Archive or topic to read.",
)
@click.option("--to", "target", required=True, metavar="[HOST:PORT/]TOPIC", help="Target topic.")
@time_options("Only messages that were stored")
@click.option(
    "--keys", multiple=True, metavar="KEY", help="Only messages with this key; repeatable."
)
@click.option(
    "--filter",
    "condition",
    metavar="SQL",
    help="Only messages matching this condition, such as \"tags = 'paid'\"; any column.",
)
@click.option(
    "--rate",
    metavar="N[/s]",
    callback=to_rate,
    help="Maximum messages per second.  [default: no limit]",
)
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
@click.option(
    "--to-option",
    "to_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="As --option, for writing.  [default: the same]",
)
@spark_options
@cluster_options
@output_option
def replay(
    name_servers: str,
    timeout_ms: int,
    options: tuple[str, ...],
    to_options: tuple[str, ...],
    wanted: SparkWanted,
    output: str,
    source: str,
    target: str,
    since: int | None,
    until: int | None,
    keys: tuple[str, ...],
    condition: str | None,
    rate: int | None,
    dry_run: bool,
) -> None:
    """Replay messages of an archive or a topic, with their keys, tags and properties.

    They get new ids and times. Messages of a queue go out in their order. What fails in the middle
    has sent a part.

    \b
    Examples:
      orbitmq spark replay --from /data/orders --to orders-again --since 2026-01-31 --rate 500/s
      orbitmq spark replay --from orders --to 10.0.0.9:9876/orders --since -2h --dry-run
      orbitmq spark replay --from orders --to orders --keys 4711 --keys 4712
    """
    shared = format_options(options, timeout_ms)
    from orbitmq.spark.jobs.replay import MessageSelection, preview
    from orbitmq.spark.jobs.replay import replay as send_again
    from orbitmq.spark.sink.options import SinkOptions

    to_servers, to_topic = place(target, name_servers, "--to")
    is_elsewhere = to_options and to_servers != name_servers
    sink = format_options(
        to_options, timeout_ms, "--to-option", None if is_elsewhere else same_cluster(shared)
    )
    sink = {"nameServer": to_servers, **sink}
    SinkOptions.of(sink)
    choice = MessageSelection(keys=keys, condition=condition)
    reading = _source(source, name_servers, shared, since, until)
    with job("replay", wanted) as steps:
        if dry_run:
            rows = preview(steps, reading, choice)
        else:
            sent = send_again(steps, reading, choice, to_topic, sink, rate=rate)
    if dry_run:
        shown = [{**row, "to": to_topic} for row in rows]
        if output == "table":
            shown = [
                {
                    **row,
                    "first": moment(row["first_stored_ms"]),
                    "last": moment(row["last_stored_ms"]),
                }
                for row in shown
            ]
        emit(shown, ["topic", "to", "messages", "body_bytes", "first", "last"], output)
        return
    emit(
        [{"from": source, "to": to_topic, "sent": sent.messages, "body_bytes": sent.body_bytes}],
        ["from", "to", "sent", "body_bytes"],
        output,
    )


def _source(
    text: str,
    name_servers: str,
    options: dict[str, str],
    since_ms: int | None,
    until_ms: int | None,
) -> TopicSnapshot | Archive:
    """No topic has a slash in its name, but a name server may stand before one."""
    from orbitmq.spark.jobs.replay import Archive
    from orbitmq.spark.jobs.topic_snapshot import take_snapshot, topic_options

    if "://" in text or text.startswith(("/", ".", "~")) or Path(text).is_dir():
        return Archive(folder=text, since_ms=since_ms, until_ms=until_ms)
    servers, topic = place(text, name_servers, "--from")
    return take_snapshot(
        topic_options(servers, [topic], options, since_ms=since_ms, until_ms=until_ms)
    )
