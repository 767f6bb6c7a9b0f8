"""What is seen of a pipeline while it runs: a table that changes on a terminal, a line for each
batch in a pipe, or JSON lines.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from orbitmq.cli.output import json_text, say, shortened
from orbitmq.common.visible import visible
from orbitmq.spark.pipeline.status import State

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from orbitmq.spark.pipeline.progress import BatchProgress, SinkProgress
    from orbitmq.spark.pipeline.status import Status


class Lines:
    """For a pipe: what happens, line by line."""

    def __init__(self) -> None:
        self._said: tuple[State, str | None] | None = None
        self._lock = threading.Lock()  # rows come by threads of Spark's

    def status(self, status: Status) -> None:
        if (status.state, status.ui) != self._said:
            self._said = (status.state, status.ui)
            self.say(state_line(status))

    def batch(self, sink: str, batch: BatchProgress) -> None:
        self.say(batch_line(sink, batch))

    def rows(self, sink: str, number: int, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
        with (
            self._lock,
            suppress(BrokenPipeError),
        ):  # Spark cannot report a closed pipe; the main thread's next line does
            for row in rows:
                shown = " ".join(
                    f"{name}={shortened(str(value))}"
                    for name, value in zip(columns, row, strict=True)
                )
                say(f"{sink} batch {number}: {shown}")

    def say(self, text: str) -> None:
        with self._lock:
            say(text)

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_error: object) -> None: ...


class JsonLines(Lines):
    """The same for programs."""

    def status(self, status: Status) -> None:
        if (status.state, status.ui) != self._said:
            self._said = (status.state, status.ui)
            self.say(json_text({"event": "state", **status_row(status)}))

    def batch(self, sink: str, batch: BatchProgress) -> None:
        self.say(json_text({"event": "batch", "sink": sink, **asdict(batch)}))

    def rows(self, sink: str, number: int, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
        with suppress(BrokenPipeError):
            for row in rows:
                values = dict(zip(columns, row, strict=True))
                self.say(
                    json_text(
                        {"event": "row", "sink": sink, "batch": number, "row": values}, default=str
                    )
                )


class LiveTable:
    """For a terminal: one table that is always of now, below what sinks print."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._live: Live | None = None
        self._ui: str | None = None

    def __enter__(self) -> LiveTable:
        from rich.live import Live

        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._live is not None, "it was entered"
        self._live.stop()

    def status(self, status: Status) -> None:
        assert self._live is not None, "it was entered"
        if status.ui and status.ui != self._ui:
            self._ui = status.ui
            text = (
                f"Spark shows what it does at {status.ui}; Ctrl-C stops the pipeline after its"
                " batch."
            )
            self._console.print(visible(text), markup=False)
        self._live.update(_table(status), refresh=True)

    def batch(self, sink: str, batch: BatchProgress) -> None: ...

    def rows(self, sink: str, number: int, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
        from rich.table import Column, Table
        from rich.text import Text

        if not rows:
            return
        title, headings = (
            Text(visible(f"{sink}, batch {number}")),
            [Column(Text(visible(column))) for column in columns],
        )
        table = Table(
            *headings,
            title=title,
            box=None,
            pad_edge=False,
            header_style="bold",
            title_justify="left",
        )
        for row in rows:
            table.add_row(*(Text(shortened(str(value))) for value in row))
        self._console.print(table)


def display(output: str) -> Lines | LiveTable:
    """What suits the output that was asked for and where it goes."""
    if output == "json":
        return JsonLines()
    return LiveTable() if sys.stdout.isatty() else Lines()


def state_line(status: Status) -> str:
    """What a pipeline is about, in a line."""
    match status.state:
        case State.STARTING:
            return f"{status.name}: starting" + (
                f", Spark {status.master} shows what it does at {status.ui}" if status.ui else ""
            )
        case State.FAILED:
            return f"{status.name}: failed"
        case _:
            done = "; ".join(
                f"{sink.sink}: {sink.batches} batches, {sink.rows_in} rows in, {sink.rows_out} out"
                for sink in status.sinks
            )
            return f"{status.name}: {status.state}" + (
                f" ({done})" if any(sink.batches for sink in status.sinks) else ""
            )


def batch_line(sink: str, batch: BatchProgress) -> str:
    """A batch, in a line."""
    came = "" if batch.rows_in is None else f"{batch.rows_in} rows in ({batch.in_per_s:.0f}/s), "
    lag = "" if batch.lag is None else f", lag {batch.lag}"
    return (
        f"{sink} batch {batch.number}: {came}{batch.rows_out} out ({batch.out_per_s:.0f}/s),"
        f" {batch.took_ms / 1000:.2f} s{lag}"
    )


def status_row(status: Status) -> dict[str, object]:
    """All that is known of a run, for programs."""
    return {
        **asdict(status),
        "state": str(status.state),
        "sinks": [asdict(sink) for sink in status.sinks],
    }


def sink_row(progress: SinkProgress) -> dict[str, object]:
    """A line of a table about a sink."""
    last = progress.last
    return {
        "sink": progress.sink,
        "batches": progress.batches,
        "rows_in": progress.rows_in,
        "rows_out": progress.rows_out,
        "in_per_s": None if last is None else round(last.in_per_s),
        "out_per_s": None if last is None else round(last.out_per_s),
        "lag": None if last is None else last.lag,
        "last_batch": None if last is None else f"{last.took_ms / 1000:.2f} s",
    }


def _table(status: Status) -> Table:
    from rich.table import Table
    from rich.text import Text

    title = Text(visible(f"{status.name}: {status.state}, Spark {status.master}"))
    table = Table(title=title, box=None, pad_edge=False, header_style="bold", title_justify="left")
    for name in ("sink", "batches", "rows in", "rows out", "in/s", "out/s", "lag", "last batch"):
        table.add_column(name.upper(), justify="left" if name == "sink" else "right")
    for progress in status.sinks:
        table.add_row(
            *(
                Text("-" if value is None else visible(str(value)))
                for value in sink_row(progress).values()
            )
        )
    return table
