"""`orbitmq spark report`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orbitmq.cli.arguments import time_options
from orbitmq.cli.output import emit, moment, output_option, say
from orbitmq.cli.spark_running import (
    SparkWanted,
    cluster_options,
    format_options,
    job,
    spark_options,
)
from orbitmq.common.errors import ConfigurationError, file_cause

if TYPE_CHECKING:
    from orbitmq.spark.jobs.report import TopicReport

_COLUMNS = {  # of a table, and what they are in a report
    "messages": "messages",
    "per_s": "per_s",
    "bytes": "bytes",
    "size": "size_p50",
    "largest": "size_max",
    "ms_p50": "latency_p50_ms",
    "p99": "latency_p99_ms",
    "max": "latency_max_ms",
}
_BUSIEST = 5


@click.command("report")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@time_options("Only messages that were stored")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a self-contained HTML page with plots.",
)
@click.option("--tags", metavar="'A || B'", help="Only messages with one of these tags.")
@spark_options
@cluster_options
@output_option
def report(
    name_servers: str,
    timeout_ms: int,
    options: tuple[str, ...],
    wanted: SparkWanted,
    output: str,
    topics: tuple[str, ...],
    since: int | None,
    until: int | None,
    html: Path | None,
    tags: str | None,
) -> None:
    """Report throughput, sizes and latency of TOPICs by queue and tag, and the lag of groups.

    In tables, "size" is the median of bodies, and "ms" is the time from producer to store.

    \b
    Examples:
      orbitmq spark report orders --since -1h
      orbitmq spark report orders payments --since 2026-01-31 --until 2026-02-01 --html january.html
      orbitmq spark report orders -o json
    """
    chosen = format_options(options, timeout_ms) | ({} if tags is None else {"tags": tags})
    from orbitmq.spark.jobs.report import lags, measure
    from orbitmq.spark.jobs.topic_snapshot import take_snapshot, topic_options

    reading = take_snapshot(
        topic_options(name_servers, topics, chosen, since_ms=since, until_ms=until)
    )
    groups = lags(reading.options, topics)
    with job("report", wanted) as steps:
        found = measure(steps, reading, groups)
    if output == "table":
        _show(found)
    else:
        emit(
            [
                {
                    name: list(value) if isinstance(value, tuple) else value
                    for name, value in asdict(found).items()
                }
            ],
            [],
            output,
        )
    if html is not None:  # last: what Spark worked for is printed, whatever becomes of the page
        _write(html, found, topics)


def _write(file: Path, found: TopicReport, topics: tuple[str, ...]) -> None:
    from orbitmq.spark.jobs.report_page import page

    try:
        file.write_text(
            page(found, f"Report of {', '.join(topics)}", time.time_ns() // 1_000_000),
            encoding="utf-8",
        )
    except OSError as problem:
        raise ConfigurationError(
            f"--html {file} cannot be written: {file_cause(problem)}"
        ) from problem
    say(f"page: {file}", err=True)


def _show(found: TopicReport) -> None:
    say(
        f"{moment(found.since_ms) or '-'} to {moment(found.until_ms) or '-'}, intervals of"
        f" {found.interval_ms // 1000} s\n"
    )
    _table([_figures(row["topic"], row) for row in found.topics], "topic")
    _table(
        [_figures(f"{row['topic']} {row['broker']}/{row['queue']}", row) for row in found.queues],
        "queue",
    )
    _table([_figures(f"{row['topic']} {row['tag'] or '(none)'}", row) for row in found.tags], "tag")
    busiest = sorted(found.timeline, key=lambda each: -each["messages"])[:_BUSIEST]
    shown = [
        {"busiest": moment(row["at_ms"]), **row, "per_s": _figure(row["per_s"])}
        for row in busiest
        if row["messages"]
    ]
    _table(shown, "busiest", ["topic", "messages", "per_s", "bytes"])
    _table(
        [{**row, "consumed_per_s": _figure(row["consumed_per_s"])} for row in found.groups],
        "group",
        ["topic", "lag", "consumed_per_s"],
    )


def _figures(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """A line that fits a terminal; all figures are in the page, and in JSON."""
    shown = {column: row[key] for column, key in _COLUMNS.items()}
    return {
        "name": name,
        **{
            key: _figure(value) if isinstance(value, float) else value
            for key, value in shown.items()
        },
    }


def _table(rows: list[dict[str, Any]], name: str, columns: list[str] | None = None) -> None:
    if rows:
        emit(
            [{name: row.get("name"), **row} for row in rows],
            [name, *(columns or _COLUMNS)],
            "table",
        )
        say()


def _figure(value: float) -> str:
    """Four digits, and more only of large numbers."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
