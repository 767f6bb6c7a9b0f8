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
        numeric = bool(rows) and all(isinstance(row[column], int) for row in rows)
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
