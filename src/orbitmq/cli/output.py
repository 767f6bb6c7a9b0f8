"""What a command prints: tables that line up, JSON and YAML, and sentences. Each library is loaded
when its output is asked for.

Nothing of what peers sent does anything to a terminal: what could is escaped here, so commands
print by these functions alone. JSON and YAML stay what they are, and spell the same values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from orbitmq.common.visible import visible, visible_json, visible_lines

Row = Mapping[str, object]
F = TypeVar("F", bound=Callable[..., Any])

PIPE_WIDTH = 10_000  # lines in a pipe do not wrap
CELL_SIZE_MAX = 60
_GAP = 2  # blanks between columns
_LAST_COLUMN_MIN = 20


def output_option(command: F) -> F:
    """The `-o` of every command that lists something."""
    choice = click.Choice(["table", "json", "yaml"])
    return click.option(
        "-o",
        "--output",
        type=choice,
        default="table",
        show_default=True,
        help="Output format.",
    )(command)


def say(text: str = "", *, err: bool = False) -> None:
    """Print lines for people, on the standard error if wanted."""
    click.echo(visible_lines(text), err=err)


def json_text(
    value: object, *, indent: int | None = None, default: Callable[[object], object] | None = None
) -> str:
    """JSON for programs, which a terminal may show as well."""
    return visible_json(json.dumps(value, indent=indent, ensure_ascii=False, default=default))


def emit(rows: Sequence[Row], columns: Sequence[str], output: str) -> None:
    """Print `rows`; a table shows `columns`, the others show every field."""
    if output == "json":
        say(json_text([dict(row) for row in rows], indent=2))
    elif output == "yaml":
        import yaml

        shown = [dict(row) for row in rows]
        text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
        click.echo(
            text if visible_lines(text) == text else yaml.safe_dump(shown, sort_keys=False),
            nl=False,
        )
    else:
        _table(rows, columns)


def _table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numeric = bool(rows) and all(type(row[column]) in (int, float) for row in rows)
        table.add_column(
            column.upper().replace("_", " "),
            justify="right" if numeric else "left",
            overflow="fold",
        )
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    for line in cells:
        table.add_row(*map(Text, line))
    if sys.stdout.isatty():
        terminal = Console(highlight=False)
        headings = [str(column.header) for column in table.columns]
        widths = _folded_widths([headings, *cells], terminal.width) if columns else []
        for at, width in enumerate(widths):
            table.columns[at].width = width
        terminal.width = max(terminal.width, sum(widths) + _GAP * len(widths))
        terminal.print(table)
        return
    console = Console(width=PIPE_WIDTH, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(table)
    say("\n".join(line.rstrip() for line in captured.get().split("\n")).rstrip("\n"))


def _folded_widths(lines: Sequence[Sequence[str]], width: int) -> list[int]:
    """How wide each column is in a terminal: cells fold between words, and the last column
    anywhere, never within an id or an address.

    What is wider than the terminal all the same keeps its lines whole, so that they can be copied
    and the terminal folds them.
    """
    from rich.cells import cell_len

    columns = list(zip(*lines, strict=True))
    natural = [max(map(cell_len, column)) for column in columns]
    least = [
        max((cell_len(word) for text in column for word in text.split()), default=0)
        for column in columns
    ]
    least[-1] = min(least[-1], _LAST_COLUMN_MIN)
    room = width - _GAP * (len(columns) - 1)
    if sum(least) > room:
        return natural
    widths = list(natural)
    while sum(widths) > room:
        widest = max(
            (at for at in range(len(widths)) if widths[at] > least[at]), key=widths.__getitem__
        )
        widths[widest] -= 1
    return widths


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    return visible(
        ", ".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value)
    )


def moment(time_ms: object) -> str | None:
    """A time, in local time; None for none."""
    from datetime import datetime

    if not isinstance(time_ms, int) or time_ms <= 0:
        return None
    try:
        return (
            datetime.fromtimestamp(time_ms / 1000)
            .astimezone()
            .isoformat(sep=" ", timespec="milliseconds")
        )
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def shortened(text: str) -> str:
    """What fits a cell of a table: one line."""
    printable = "".join(char if char.isprintable() else "·" for char in text[: CELL_SIZE_MAX + 1])
    return printable if len(text) <= CELL_SIZE_MAX else f"{printable[:CELL_SIZE_MAX]}…"


def show_unreachable(brokers: Mapping[str, str]) -> None:
    """Report the brokers that did not reply, and end with the exit code for that."""
    for name, why in brokers.items():
        say(f"orbitmq: nothing is known of {name}: {why}", err=True)
    if brokers:
        click.get_current_context().exit(3)
