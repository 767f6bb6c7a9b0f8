"""`orbitmq spark audit`."""

from __future__ import annotations

from pathlib import Path

import click

from orbitmq.cli.arguments import time_options
from orbitmq.cli.output import emit, moment, output_option, say, shortened
from orbitmq.cli.spark_running import (
    SparkWanted,
    cluster_options,
    format_options,
    job,
    place,
    spark_options,
)
from orbitmq.common.errors import ConfigurationError

EXIT_DIFFERENT = 1
_CLOCKS_MS = 3_600_000  # how far the clocks of producers and brokers may be apart


@click.command("audit")
@click.option("--left", required=True, metavar="[HOST:PORT/]TOPIC", help="Expected topic.")
@click.option("--right", required=True, metavar="[HOST:PORT/]TOPIC", help="Actual topic.")
@click.option(
    "--by",
    type=click.Choice(["unique", "keys", "body"]),
    default="unique",
    show_default=True,
    help=("Identity of a message: its unique id, its keys or its body."),
)
@time_options("Only messages that were born")
@click.option(
    "--sample",
    type=click.IntRange(0, 1000),
    default=10,
    show_default=True,
    help="Number of differences of each kind to show.",
)
@click.option("--out", metavar="DIR", help="A new folder for all differences, as Parquet.")
@click.option(
    "--left-option",
    "left_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="As --option, for the left side.",
)
@click.option(
    "--right-option",
    "right_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="As --option, for the right side.",
)
@spark_options
@cluster_options
@output_option
def audit(
    name_servers: str,
    timeout_ms: int,
    options: tuple[str, ...],
    left_options: tuple[str, ...],
    right_options: tuple[str, ...],
    wanted: SparkWanted,
    output: str,
    left: str,
    right: str,
    by: str,
    since: int | None,
    until: int | None,
    sample: int,
    out: str | None,
) -> None:
    """Compare two topics for lost, duplicated and changed messages.

    They may be of one cluster or of two. The exit code is 1 when they differ.

    Body, tags, keys, sharding key and the application's properties count; what RocketMQ adds does
    not. Messages that a bridge or a replay has sent have other ids: compare those by keys or body.

    \b
    Examples:
      orbitmq spark audit --left 10.0.0.1:9876/orders --right 10.0.0.9:9876/orders
      orbitmq spark audit --left orders --right orders-again --by keys --out /data/differences
      orbitmq spark audit --left 10.0.0.1:9876/orders --right 10.0.0.9:9876/orders --since -1d
      --until -10m -o json
    """
    if out is not None and "://" not in out and Path(out).exists():
        raise ConfigurationError(f"--out {out} already exists; name a new folder")
    shared = format_options(options, timeout_ms)
    from orbitmq.spark.jobs.audit import MatchBy, compare
    from orbitmq.spark.jobs.topic_snapshot import TopicSnapshot, take_snapshot, topic_options

    def side(text: str, own: tuple[str, ...], option: str) -> TopicSnapshot:
        servers, topic = place(text, name_servers, option)
        more = format_options(own, timeout_ms, f"{option}-option", shared)
        return take_snapshot(
            topic_options(
                servers, [topic], more, since_ms=None if since is None else since - _CLOCKS_MS
            )
        )

    readings = side(left, left_options, "--left"), side(right, right_options, "--right")
    with job("audit", wanted) as steps:
        found = compare(
            steps,
            *readings,
            by=MatchBy(by),
            born_since_ms=since,
            born_until_ms=until,
            sample=sample,
            out=out,
        )
    if output != "table":
        told_all = {
            "same": found.is_same,
            "messages": dict(found.messages),
            "identities": dict(found.identities),
        }
        emit(
            [{**told_all, "differences": dict(found.differences), "sample": list(found.sample)}],
            [],
            output,
        )
    else:
        emit(
            [
                {"what": "messages", **found.messages},
                {"what": "different ones", **found.identities},
            ],
            ["what", "left", "right"],
            output,
        )
        say()
        emit(
            [{"difference": kind, "messages": count} for kind, count in found.differences.items()],
            ["difference", "messages"],
            output,
        )
        if found.sample:
            say()
            rows = [
                {
                    **row,
                    "identity": shortened(row["identity"]),
                    "stored": moment(row["left_stored_ms"] or row["right_stored_ms"]),
                }
                for row in found.sample
            ]
            emit(
                rows,
                ["kind", "identity", "what", "left", "right", "stored", "left_at", "right_at"],
                output,
            )
    if not found.is_same:
        click.get_current_context().exit(EXIT_DIFFERENT)
