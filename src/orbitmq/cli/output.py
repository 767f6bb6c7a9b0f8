"""What a command found, as a table that lines up, as JSON or as YAML; each library is loaded when its output is asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

Row = Mapping[str, object]
F = TypeVar("F", bound=Callable[..., Any])

PIPE_WIDTH = 10_000  # whoever reads a pipe wants lines that do not wrap
CELL_SIZE_MAX = 60


def output_option(command: F) -> F:
    """The `-o` of every command that lists something."""
    choice = click.Choice(["table", "json", "yaml"])
    return click.option("-o", "--output", type=choice, default="table", show_default=True, help="How to print what was found.")(command)


def emit(rows: Sequence[Row], columns: Sequence[str], output: str) -> None:
    """Print `rows`; a table shows `columns`, the others show every field."""
    if output == "json":
        click.echo(json.dumps([dict(row) for row in rows], indent=2, ensure_ascii=False))
    elif output == "yaml":
        import yaml

        click.echo(yaml.safe_dump([dict(row) for row in rows], sort_keys=False, allow_unicode=True), nl=False)
    else:
        _table(rows, columns)


def _table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numeric = bool(rows) and all(type(row[column]) is int for row in rows)
        table.add_column(column.upper().replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row[column])) for column in columns))
    if sys.stdout.isatty():
        Console(highlight=False).print(table)
        return
    console = Console(width=PIPE_WIDTH, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return str(value)


def moment(time_ms: object) -> str | None:
    """A time, in local time; None for none."""
    from datetime import datetime

    if not isinstance(time_ms, int) or time_ms <= 0:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def shortened(text: str) -> str:
    """What fits a cell of a table: one line."""
    printable = "".join(char if char.isprintable() else "·" for char in text[: CELL_SIZE_MAX + 1])
    return printable if len(text) <= CELL_SIZE_MAX else f"{printable[:CELL_SIZE_MAX]}…"


def show_unreachable(brokers: Mapping[str, str]) -> None:
    """Say which brokers could not be asked, beside what the others said, and end as a command that reached nobody there."""
    for name, why in brokers.items():
        click.echo(f"orbitmq: nothing is known of {name}: {why}", err=True)
    if brokers:
        click.get_current_context().exit(3)
