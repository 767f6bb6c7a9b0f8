"""`orbitmq spark`. What a verb needs is imported when it runs: most machines have no Spark."""

from __future__ import annotations

import click

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.output import emit, output_option
from orbitmq.cli.spark_archive import archive
from orbitmq.cli.spark_audit import audit
from orbitmq.cli.spark_dlq import dlq
from orbitmq.cli.spark_replay import replay
from orbitmq.cli.spark_report import report

EXIT_CANNOT_RUN = 1


@click.group("spark", cls=CommandGroup)
def group() -> None:
    """Run Spark jobs on topics, and check the Spark installation."""


for _verb in (archive, replay, dlq, audit, report):
    group.add_command(_verb)


@group.command("doctor")
@output_option
def doctor(output: str) -> None:
    """Show which Java, Spark and Arrow are installed, what is missing, and the remedy.

    The exit code is 1 when Spark cannot run.

    \b
    Examples:
      orbitmq spark doctor
      orbitmq spark doctor -o json
    """
    from orbitmq.spark.runtime import check_requirements

    found = check_requirements()
    rows = [
        {"part": each.part, "good": each.is_good, "found": each.found, "remedy": each.remedy}
        for each in found
    ]
    emit(
        (
            [{**row, "good": "yes" if row["good"] else "NO"} for row in rows]
            if output == "table"
            else rows
        ),
        list(rows[0]),
        output,
    )
    if not all(each.is_good for each in found):
        click.get_current_context().exit(EXIT_CANNOT_RUN)
