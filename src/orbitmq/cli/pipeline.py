"""`orbitmq pipeline`. What is done is in `spark.pipeline`; Spark is loaded by the verbs that need
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orbitmq.cli.arguments import key_values, together
from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.output import emit, moment, output_option, say
from orbitmq.common.errors import ConfigurationError

if TYPE_CHECKING:
    from orbitmq.spark.pipeline.model import Pipeline
    from orbitmq.spark.pipeline.plan import SinkPlan
    from orbitmq.spark.pipeline.status import Status

EXIT_INVALID = 1
_MASTER = "local[*]"
_file = click.argument("file", metavar="FILE.yaml", type=click.Path(path_type=Path))
_settings = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a value of the file; repeatable.",
)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Where and how Spark runs."""

    master: str
    conf: tuple[str, ...]
    archive: Path | None


_spark_options = together(
    _Wanted,
    click.option(
        "--master", metavar="URL", default=_MASTER, show_default=True, help="Spark master."
    ),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark setting; repeatable."),
    click.option(
        "--archive",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help=(
            "Packed Python environment for the executors of a cluster.  [default: OrbitMQ's code"
            " only]"
        ),
    ),
)


@click.group("pipeline", cls=CommandGroup, old_names={"status": "show"})
def group() -> None:
    """Run and check Spark pipelines that YAML files describe."""


@group.command("run")
@_file
@click.option("--once", is_flag=True, help="Process what is there now, then exit.")
@_settings
@_spark_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format of the progress.",
)
def run(file: Path, once: bool, settings: tuple[str, ...], wanted: _Wanted, output: str) -> None:
    """Run the pipeline of FILE.yaml until SIGTERM or Ctrl-C.

    Either lets it finish the batch it is at; given twice, it stops at once. Started again, it goes
    on where it was.

    \b
    Examples:
      orbitmq pipeline run orders.yaml
      orbitmq pipeline run orders.yaml --once --set source.options.nameServer=10.0.0.1:9876
      orbitmq pipeline run orders.yaml --master spark://10.0.0.5:7077
    """
    from dataclasses import replace

    from orbitmq.cli.pipeline_progress import display
    from orbitmq.spark.pipeline.cluster_session import close_session
    from orbitmq.spark.pipeline.runner import run as run_pipeline

    pipeline = _loaded(file, settings)
    if once:
        pipeline = replace(pipeline, interval_ms=None)
    with display(output) as shown:
        try:
            run_pipeline(pipeline, _session_settings(wanted), shown)
        finally:
            close_session()


@group.command("validate")
@click.argument(
    "files", metavar="FILE.yaml...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@_settings
@output_option
def validate(files: tuple[Path, ...], settings: tuple[str, ...], output: str) -> None:
    """Check pipeline files without Spark: missing, misspelt and mistyped entries.

    Schemas, conditions and queries are checked by `explain`. The exit code is 1 when a file is not
    good.

    \b
    Examples:
      orbitmq pipeline validate orders.yaml
      orbitmq pipeline validate pipelines/*.yaml -o json
    """
    rows = []
    for file in files:
        try:
            rows.append(
                {
                    "file": str(file),
                    "valid": True,
                    **_summary(_loaded(file, settings)),
                    "problem": None,
                }
            )
        except ConfigurationError as problem:
            rows.append(
                {
                    "file": str(file),
                    "valid": False,
                    "name": None,
                    "source": None,
                    "steps": [],
                    "sinks": [],
                    "problem": str(problem),
                }
            )
    bad = [row for row in rows if not row["valid"]]
    if output != "table":
        emit(rows, [], output)
    else:
        if good := [row for row in rows if row["valid"]]:
            emit(good, ["file", "name", "source", "steps", "sinks"], output)
        for row in bad:
            say(f"orbitmq: {row['problem']}", err=True)
    if bad:
        click.get_current_context().exit(EXIT_INVALID)


@group.command("explain")
@_file
@_settings
@_spark_options
@output_option
def explain(file: Path, settings: tuple[str, ...], wanted: _Wanted, output: str) -> None:
    """Explain with Spark what FILE.yaml reads and writes, and how; process nothing.

    \b
    Examples:
      orbitmq pipeline explain orders.yaml
      orbitmq pipeline explain orders.yaml -o json
    """
    from orbitmq.spark.pipeline.cluster_session import close_session, open_session
    from orbitmq.spark.pipeline.plan import planned

    pipeline = _loaded(file, settings)
    try:
        spark = open_session(pipeline, _session_settings(wanted))
        rows = [_explained(pipeline, plan) for plan in planned(spark, pipeline)]
    finally:
        close_session()
    if output != "table":
        emit(rows, [], output)
        return
    for row in rows:
        for name, value in row.items():
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            say(f"\n{text}\n" if name == "plan" else f"{name.replace('_', ' '):13} {text}")


@group.command("list")
@click.argument(
    "folder", default=".", type=click.Path(path_type=Path, file_okay=False, exists=True)
)
@output_option
def list_(folder: Path, output: str) -> None:
    """List the pipelines in FOLDER with their state.

    \b
    Examples:
      orbitmq pipeline list
      orbitmq pipeline list /etc/orbitmq/pipelines -o json
    """
    from orbitmq.spark.pipeline.definition import is_pipeline

    files = sorted(file for pattern in ("*.yaml", "*.yml") for file in folder.glob(pattern))
    rows = [_listed(file) for file in files if is_pipeline(file)]
    emit(
        rows, ["name", "file", "state", "batches", "rows_in", "rows_out", "lag", "updated"], output
    )
    for row in rows:
        if row["problem"] and output == "table":
            say(f"orbitmq: {row['problem']}", err=True)


@group.command("show")
@_file
@_settings
@output_option
def show(file: Path, settings: tuple[str, ...], output: str) -> None:
    """Show the state of the pipeline of FILE.yaml, running or not.

    \b
    Examples:
      orbitmq pipeline show orders.yaml
      orbitmq pipeline show orders.yaml -o json
    """
    from orbitmq.cli.pipeline_progress import sink_row, status_row

    pipeline = _loaded(file, settings)
    found = _status(pipeline)
    if output != "table":
        emit(
            [
                (
                    status_row(found)
                    if found is not None
                    else {"name": pipeline.name, "state": "never ran"}
                )
            ],
            [],
            output,
        )
        return
    if found is None:
        say(f"{pipeline.name} never ran here: there is no {pipeline.status_file}")
        return
    place = f"process {found.pid} on {found.host}, Spark {found.master}" + (
        f", {found.ui}" if found.ui else ""
    )
    say(
        f"{found.name}: {found.state} ({place}); started {moment(found.started_ms)}, last heard of"
        f" {moment(found.updated_ms)}"
    )
    if found.problem:
        say(f"problem: {found.problem}")
    say()
    rows = [sink_row(sink) for sink in found.sinks]
    emit(rows, list(rows[0]), output)


def _loaded(file: Path, settings: tuple[str, ...]) -> Pipeline:
    from orbitmq.spark.pipeline.definition import load

    return load(file, settings)


def _session_settings(wanted: _Wanted) -> Any:
    from orbitmq.spark.pipeline.cluster_session import SessionSettings

    return SessionSettings(
        master=wanted.master, conf=key_values(wanted.conf, "--conf"), archive=wanted.archive
    )


def _status(pipeline: Pipeline) -> Status | None:
    from orbitmq.spark.pipeline.status import StatusFile

    return StatusFile(pipeline.status_file).read()


def _summary(pipeline: Pipeline) -> dict[str, object]:
    from orbitmq.spark.pipeline.model import STEP_NAMES

    return {
        "name": pipeline.name,
        "source": pipeline.source.format,
        "steps": [STEP_NAMES[type(step)] for step in pipeline.steps],
        "sinks": [f"{sink.format}:{sink.name}" for sink in pipeline.sinks],
    }


def _listed(file: Path) -> dict[str, object]:
    try:
        pipeline = _loaded(file, ())
        found = _status(pipeline)
    except ConfigurationError as problem:
        return {**_no_status(file.stem, file, "invalid"), "problem": str(problem)}
    if found is None:
        return _no_status(pipeline.name, file, "never ran")
    lags = [
        sink.last.lag for sink in found.sinks if sink.last is not None and sink.last.lag is not None
    ]
    return {
        "name": pipeline.name,
        "file": str(file),
        "state": str(found.state),
        "batches": sum(sink.batches for sink in found.sinks),
        "rows_in": sum(sink.rows_in for sink in found.sinks),
        "rows_out": sum(sink.rows_out for sink in found.sinks),
        "lag": max(lags) if lags else None,
        "updated": moment(found.updated_ms),
        "problem": found.problem,
    }


def _no_status(name: str, file: Path, state: str) -> dict[str, object]:
    return {
        "name": name,
        "file": str(file),
        "state": state,
        **dict.fromkeys(("batches", "rows_in", "rows_out", "lag", "updated", "problem")),
    }


def _explained(pipeline: Pipeline, plan: SinkPlan) -> dict[str, object]:
    from orbitmq.spark.pipeline.plan import plan_text, shown_options

    sink, source = plan.sink, pipeline.source_of(plan.sink)
    return {
        "pipeline": pipeline.name,
        "reads": f"{source.format} {_options_text(shown_options(source))}",
        "columns_read": list(plan.columns_read),
        "steps": _summary(pipeline)["steps"],
        "writes": f"{sink.format} {sink.path or _options_text(shown_options(sink))}".strip(),
        "mode": sink.mode,
        "partitioned_by": list(sink.partition_by),
        "columns": [
            f"{field.name} {field.dataType.simpleString()}" for field in plan.rows.schema.fields
        ],
        "checkpoint": pipeline.checkpoint_of(sink) if pipeline.is_stream else None,
        "plan": plan_text(plan),
    }


def _options_text(options: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())
