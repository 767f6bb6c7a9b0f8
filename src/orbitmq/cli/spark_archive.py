"""`orbitmq spark archive`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orbitmq.cli.arguments import TIME_FORMS, to_place
from orbitmq.cli.output import emit
from orbitmq.cli.spark_running import SparkWanted, cluster_options, format_options, spark_options

if TYPE_CHECKING:
    from orbitmq.admin.positions import Position


_OF_STREAMS = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay")


@click.command("archive")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--to",
    "folder",
    required=True,
    metavar="DIR",
    help="The folder for the files, or an address that Spark knows (s3a://…).",
)
@click.option(
    "--once",
    is_flag=True,
    help="Archive what is there now, then exit.  [default: go on until Ctrl-C]",
)
@click.option(
    "--every",
    default="1m",
    show_default=True,
    metavar="TIME",
    help="How often files are written, as 30s or 10m.",
)
@click.option(
    "--from",
    "begin",
    default="first",
    show_default=True,
    metavar="first|last|TIME",
    callback=to_place,
    help=f"Where to begin at the first start. A time is {TIME_FORMS}.",
)
@click.option(
    "--consumer-group",
    "group",
    metavar="GROUP",
    help="Commit the progress as this consumer group, so that its lag is visible.",
)
@click.option(
    "--partition-by",
    type=click.Choice(["date", "hour", "none"]),
    default="date",
    show_default=True,
    help="Partition folders by store time (UTC).",
)
@click.option("--tags", metavar="'A || B'", help="Only messages with one of these tags.")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Directory of the checkpoint.  [default: _checkpoint in DIR]",
)
@click.option("--dry-run", is_flag=True, help="Show what would be archived; write nothing.")
@spark_options
@cluster_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print what happens.",
)
def archive(
    name_servers: str,
    timeout_ms: int,
    options: tuple[str, ...],
    wanted: SparkWanted,
    output: str,
    topics: tuple[str, ...],
    folder: str,
    once: bool,
    every: str,
    begin: Position,
    group: str | None,
    partition_by: str,
    tags: str | None,
    checkpoint: str | None,
    dry_run: bool,
) -> None:
    """Archive TOPICs to Parquet files, each message exactly once.

    Started again, it continues where it stopped.

    Ctrl-C lets it finish the files it is at. Read the folder with Spark: its log says which files
    count.

    \b
    Examples:
      orbitmq spark archive orders --to /data/orders --once
      orbitmq spark archive orders payments --to /data/shop --every 5m --consumer-group archive
      orbitmq spark archive orders --to /data/orders --from -7d --partition-by hour --dry-run
    """
    from orbitmq.spark.jobs.archive import PartitionBy, pipeline
    from orbitmq.spark.option_reader import OptionReader

    reading = {"nameServer": name_servers, **_start(begin), **format_options(options, timeout_ms)}
    reading |= {
        name: text for name, text in (("consumerGroup", group), ("tags", tags)) if text is not None
    }
    interval_ms = None if once else OptionReader({"--every": every}).duration_ms("--every", 0)
    wanted_pipeline = pipeline(
        topics,
        folder,
        reading,
        partition_by=PartitionBy(partition_by),
        checkpoint=checkpoint,
        interval_ms=interval_ms,
    )
    if dry_run:
        _show_waiting(
            topics,
            {
                name: text
                for name, text in wanted_pipeline.source.options.items()
                if name.lower() not in _OF_STREAMS
            },
            output,
        )
        return
    from orbitmq.cli.pipeline_progress import display
    from orbitmq.cli.spark_running import ended_after
    from orbitmq.spark.jobs.topic_snapshot import check_topics
    from orbitmq.spark.pipeline.runner import run

    check_topics(wanted_pipeline.source.options)
    with display(output) as shown, ended_after():
        run(wanted_pipeline, wanted.settings(), shown)


def _start(begin: Position) -> dict[str, str]:
    from orbitmq.admin.positions import AtStoreTime, QueueEdge

    if isinstance(begin, AtStoreTime):
        return {"startingTimestamp": str(begin.time_ms)}
    return {"startingOffsets": "earliest" if begin is QueueEdge.FIRST else "latest"}


def _show_waiting(topics: tuple[str, ...], options: dict[str, str], output: str) -> None:
    from orbitmq.spark.jobs.topic_snapshot import take_snapshot

    reading = take_snapshot(options)
    rows = [
        {
            "topic": topic,
            "queues": sum(queue.topic == topic for queue in reading.start),
            "messages": sum(
                reading.end[queue] - offset
                for queue, offset in reading.start.items()
                if queue.topic == topic
            ),
        }
        for topic in topics
    ]
    emit(rows, ["topic", "queues", "messages"], "json" if output == "json" else "table")
