"""What the `orbitmq store` commands share: which store is meant, how far the work is, and how findings are shown."""

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
    """DIR, and what may have to be told about it."""
    for option in (
        click.option("--index-entries", type=click.IntRange(2), metavar="N", help="maxIndexNum of the broker; found out by default."),
        click.option("--index-slots", type=click.IntRange(1), metavar="N", help="maxHashSlotNum of the broker; found out by default."),
        click.option(
            "--config",
            "config_file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The broker's configuration: storePathRootDir and file sizes.",
        ),
        click.argument("directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


@contextmanager
def opened(
    directory: Path | None, config_file: Path | None, index_slots: int | None, index_entries: int | None, *, warn: bool = True
) -> Iterator[StoreDirectory]:
    """The store that is meant; a warning when somebody has it open."""
    from orbitmq.store.tools.directory import StoreDirectory
    from orbitmq.store.tools.sizes import Told, read_config

    if directory is None and config_file is None:
        raise click.UsageError("name the store's directory, or a --config that does")
    told = None if directory is None else Told(root=directory, index_slots=index_slots, index_entries=index_entries)
    if config_file is not None:
        told = read_config(config_file, told)
    assert told is not None
    store = StoreDirectory(told)
    owner = store.lock_owner()
    if warn and owner is not None:
        say(f"warning: process {owner} has the store open; what is shown may be half-written", err=True)
    yield store


@contextmanager
def readable() -> Iterator[None]:
    """Tell whose files they are when one cannot be read, or written; other errors of the system are told as those of all commands."""
    try:
        yield
    except PermissionError as error:
        raise StoreError(f"{error.filename}: permission denied; run this as the user that the broker runs as") from error


@contextmanager
def progress(step: str) -> Iterator[Report]:
    """A bar on a terminal, else a line now and then; both on the standard error."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(step, total=1)
            yield lambda done, whole: bar.update(task, completed=done, total=max(whole, 1))
        return
    begin = told = time.monotonic()

    def line(done: int, whole: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= LINE_INTERVAL_S and done:
            told = now
            left = (now - begin) * (whole - done) / done
            say(f"{step}: {100 * done // max(whole, 1)} %, {left:.0f} s left", err=True)

    yield line


def run_check(store: StoreDirectory) -> Checked:
    """A check, with its progress."""
    from orbitmq.store.tools.check import check as check_store

    with progress("checking") as report:
        return check_store(store, report)


def show_findings(checked: Checked, output: str) -> None:
    """All findings, and a line that sums them up."""
    from orbitmq.store.tools.findings import Severity

    rows = [finding_row(finding) for finding in checked.findings]
    if rows or output != "table":
        emit(rows, ["severity", "file", "offset", "what", "remedy"], output)
    counts = [f"{checked.findings.count(severity)} {severity.value}" for severity in reversed(Severity)]
    result = "clean" if checked.findings.clean else "NOT clean"
    size = checked.log_end - checked.log_begin
    say(f"{result}: {checked.records} records in {size} bytes, {checked.index_entries} index entries; {', '.join(counts)}", err=True)


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
