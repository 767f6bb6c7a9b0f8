"""What the `orbitmq store` commands share: which store is meant, how far the work is, and how
findings are shown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orbitmq.cli.output import emit, say
from orbitmq.common.errors import StoreError

if TYPE_CHECKING:
    from orbitmq.store.tools.check import Checked
    from orbitmq.store.tools.directory import StoreDirectory
    from orbitmq.store.tools.findings import Finding

F = TypeVar("F", bound=Callable[..., Any])
Report = Callable[[int, int], None]

LINE_INTERVAL_S = 10


def store_options(command: F) -> F:
    """Add DIR and the options that describe its layout."""
    for option in (
        click.option(
            "--index-entries",
            type=click.IntRange(2),
            metavar="N",
            help="maxIndexNum of the broker; read from the files by default.",
        ),
        click.option(
            "--index-slots",
            type=click.IntRange(1),
            metavar="N",
            help="maxHashSlotNum of the broker; read from the files by default.",
        ),
        click.option(
            "--config",
            "config_file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The broker's configuration: storePathRootDir and file sizes.",
        ),
        click.argument(
            "directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path)
        ),
    ):
        command = option(command)
    return command


@contextmanager
def opened(
    directory: Path | None,
    config_file: Path | None,
    index_slots: int | None,
    index_entries: int | None,
    *,
    warn: bool = True,
) -> Iterator[StoreDirectory]:
    """Open the selected store; warn if another process has it open."""
    from orbitmq.store.tools.directory import StoreDirectory
    from orbitmq.store.tools.sizes import StoreLayout, read_config

    if directory is None and config_file is None:
        raise click.UsageError("name the store's directory, or a --config that does")
    layout = (
        None
        if directory is None
        else StoreLayout(root=directory, index_slots=index_slots, index_entries=index_entries)
    )
    if config_file is not None:
        layout = read_config(config_file, layout)
    assert layout is not None
    store = StoreDirectory(layout)
    owner = store.lock_owner()
    if warn and owner is not None:
        say(
            f"warning: process {owner} has the store open; what is shown may be half-written",
            err=True,
        )
    yield store


@contextmanager
def readable() -> Iterator[None]:
    """Explain permission errors: the files belong to the user of the broker."""
    try:
        yield
    except PermissionError as error:
        raise StoreError(
            f"{error.filename}: permission denied; run this as the user that the broker runs as"
        ) from error


@contextmanager
def progress(step: str) -> Iterator[Report]:
    """Show a progress bar on a terminal, else a line every 10 s; both on standard error."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(step, total=1)
            yield lambda done, whole: bar.update(task, completed=done, total=max(whole, 1))
        return
    begin = shown = time.monotonic()

    def line(done: int, whole: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= LINE_INTERVAL_S and done:
            shown = now
            left = (now - begin) * (whole - done) / done
            say(f"{step}: {100 * done // max(whole, 1)} %, {left:.0f} s left", err=True)

    yield line


def run_check(store: StoreDirectory) -> Checked:
    """A check, with its progress."""
    from orbitmq.store.tools.check import check as check_store

    if store.log_size_is_guessed:
        say(
            f"log files are taken to have {store.log_file_size} bytes, as the only one has: give"
            " --config if the broker's mappedFileSizeCommitLog is another",
            err=True,
        )
    with progress("checking") as report:
        return check_store(store, report)


def show_findings(checked: Checked, output: str) -> None:
    """All findings, and a line that sums them up."""
    from orbitmq.store.tools.findings import Severity

    rows = [finding_row(finding) for finding in checked.findings]
    if rows or output != "table":
        emit(rows, ["severity", "file", "offset", "what", "remedy"], output)
    counts = [
        f"{checked.findings.count(severity)} {severity.value}" for severity in reversed(Severity)
    ]
    result = "clean" if checked.findings.clean else "NOT clean"
    size = checked.log_end - checked.log_begin
    say(
        f"{result}: {checked.records} records in {size} bytes, {checked.index_entries} index"
        f" entries; {', '.join(counts)}",
        err=True,
    )


def show_left(left: tuple[Finding, ...]) -> None:
    """What a repair will not mend, and the remedy."""
    for finding in left:
        at = "" if finding.offset is None else f" at {finding.offset}"
        say(f"stays: {finding.file}{at}: {finding.what}; {finding.remedy}", err=True)


def finding_row(finding: Finding) -> dict[str, object]:
    """A finding, as one row."""
    return {
        "severity": finding.severity.value,
        "kind": finding.kind,
        "file": finding.file,
        "offset": finding.offset,
        "what": finding.what,
        "remedy": finding.remedy,
    }
