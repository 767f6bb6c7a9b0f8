"""`orbitmq spark dlq`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitmq.cli.arguments import time_options, to_rate
from orbitmq.cli.output import emit, moment, output_option, say, shortened
from orbitmq.cli.spark_running import (
    SparkWanted,
    cluster_options,
    format_options,
    job,
    same_cluster,
    spark_options,
)
from orbitmq.common.errors import NotFoundError

if TYPE_CHECKING:
    from orbitmq.spark.jobs.dlq import Analysis, Redrive

_BAR_SIZE = 40


@click.command("dlq")
@click.argument("name", metavar="GROUP")
@click.argument("action", type=click.Choice(["analyse", "redrive"]), default="analyse")
@time_options("Only letters that died")
@click.option(
    "--filter",
    "condition",
    metavar="SQL",
    help="Only letters for which it holds; also originTopic, originId, attempts, reason.",
)
@click.option(
    "--keys", multiple=True, metavar="KEY", help="Only letters with this key; repeatable."
)
@click.option(
    "--sample",
    type=click.IntRange(0, 1000),
    default=5,
    show_default=True,
    help="Number of letters to show.",
)
@click.option(
    "--to",
    metavar="TOPIC",
    help="Redrive: target topic for all letters.  [default: the topic of each]",
)
@click.option(
    "--rate",
    metavar="N[/s]",
    callback=to_rate,
    help="Redrive: maximum messages per second.  [default: no limit]",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Redrive: write what was done, as JSON.",
)
@click.option(
    "--after",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Only letters behind those of this report.",
)
@click.option("--dry-run", is_flag=True, help="Redrive: show what would be sent; send nothing.")
@spark_options
@cluster_options
@output_option
def dlq(
    name_servers: str,
    timeout_ms: int,
    options: tuple[str, ...],
    wanted: SparkWanted,
    output: str,
    name: str,
    action: str,
    since: int | None,
    until: int | None,
    condition: str | None,
    keys: tuple[str, ...],
    sample: int,
    to: str | None,
    rate: int | None,
    report: Path | None,
    after: Path | None,
    dry_run: bool,
) -> None:
    """Show the dead letters of GROUP, or send them back to their original topics.

    Letters stay where they are: a second redrive sends them again, unless --after says where the
    first ended.

    \b
    Examples:
      orbitmq spark dlq billing
      orbitmq spark dlq billing redrive --filter "originTopic = 'orders' and attempts < 16"
      --dry-run
      orbitmq spark dlq billing redrive --rate 100/s --report monday.json
      orbitmq spark dlq billing redrive --after monday.json --report tuesday.json
    """
    if since is not None and after is not None:
        raise click.UsageError("--since and --after exclude each other")
    shared = format_options(options, timeout_ms)
    from orbitmq.admin.dead_letters import topic_of
    from orbitmq.spark.jobs import dlq as letters
    from orbitmq.spark.jobs.replay import MessageSelection
    from orbitmq.spark.jobs.topic_snapshot import take_snapshot, topic_options

    behind = {} if after is None else {"startingOffsets": letters.after(after, name)}
    topic = topic_of(name)
    try:
        reading = take_snapshot(
            topic_options(
                name_servers, [topic], {**shared, **behind}, since_ms=since, until_ms=until
            )
        )
    except NotFoundError as problem:
        raise NotFoundError(f"there are no dead letters of group {name}: {problem}") from problem
    attempts_max = letters.attempts_max({"nameServer": name_servers, **shared}, name)
    choice = MessageSelection(keys=keys, condition=condition)
    with job("dlq", wanted) as steps:
        if action == "analyse":
            rows = choice.of(letters.letters(steps, reading, attempts_max))
            found = letters.analyse(steps, rows, now_ms=time.time_ns() // 1_000_000, sample=sample)
        else:
            sink = {"nameServer": name_servers, **same_cluster(shared)}
            done = letters.redrive(
                steps,
                name,
                reading,
                choice,
                sink,
                attempts_max=attempts_max,
                rate=rate,
                to=to,
                is_dry_run=dry_run,
            )
    if action == "analyse":
        _show_analysis(name, found, output)
        return
    _show_redrive(done, output)
    if report is not None:
        done.write(report)


def _show_analysis(group: str, found: Analysis, output: str) -> None:
    if output != "table":
        emit(
            [
                {
                    "group": group,
                    "messages": found.messages,
                    "by_topic": list(found.by_topic),
                    "ages": dict(found.ages),
                    "sample": list(found.sample),
                }
            ],
            [],
            output,
        )
        return
    say(f"{group}: {found.messages} dead letters\n")
    if not found.messages:
        return
    kinds = [
        {
            **row,
            "first_died": moment(row["first_died_ms"]),
            "last_died": moment(row["last_died_ms"]),
        }
        for row in found.by_topic
    ]
    emit(
        kinds, ["origin_topic", "attempts", "reason", "messages", "first_died", "last_died"], output
    )
    say()
    most = max(found.ages.values())
    ages = [
        {"died_within": age, "messages": count, "": "█" * -(-_BAR_SIZE * count // most)}
        for age, count in found.ages.items()
    ]
    emit(ages, ["died_within", "messages", ""], output)
    if found.sample:
        say("\nthe last ones")
        some = [
            {**row, "died": moment(row["died_ms"]), "body": shortened(row["body"])}
            for row in found.sample
        ]
        emit(
            some, ["died", "origin_topic", "origin_id", "keys", "tags", "attempts", "body"], output
        )


def _show_redrive(done: Redrive, output: str) -> None:
    if output != "table":
        emit([done.to_json()], [], output)
        return
    rows = [
        {"topic": topic, "would_send" if done.is_dry_run else "sent": count}
        for topic, count in done.topics.items()
    ]
    emit(rows, ["topic", "would_send" if done.is_dry_run else "sent"], output)
    if done.without_topic:
        say(
            f"{done.without_topic} letters do not say where they came from, and stay; send them"
            " with --to TOPIC",
            err=True,
        )
