"""Requirements: which outside programs (Java, Maven, Go, Node, pip) a test needs, and a closing
table of what that meant for the run.

A test says `@pytest.mark.needs("java", "maven")`. Where one is missing the test is skipped with the
reason, unless `ORBITMQ_REQUIRE=java,maven` names it: then the test fails. Knows nothing of what the
programs are used for. Invariant: what a test needs travels in its report's `user_properties`, so
that the table is the same with and without pytest-xdist.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

import pytest

_VERSION_COMMANDS = {
    "java": [
        "javac",
        "-version",
    ],  # tests compile a driver, so a run-time environment alone does not do
    "maven": ["mvn", "--version"],
    "go": ["go", "version"],
    "node": ["node", "--version"],
    "pip": [sys._base_executable, "-m", "pip", "--version"],  # type: ignore[attr-defined] # of the Python below this environment
}


@lru_cache
def found_version(requirement: str) -> str | None:
    """The version of the program on this machine, or None where it is missing or broken."""
    command = _VERSION_COMMANDS[requirement]
    if shutil.which(command[0]) is None:
        return None
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    number = re.search(r"\d+(?:\.\d+)+", said.stdout + said.stderr)
    return number.group() if said.returncode == 0 and number else None


def is_required(requirement: str) -> bool:
    """Whether ORBITMQ_REQUIRE insists on it."""
    return requirement in os.environ.get("ORBITMQ_REQUIRE", "").replace(" ", "").split(",")


def lack(requirement: str, reason: str) -> NoReturn:
    """End the running test because `requirement` cannot be met: a skip, or a failure where it is
    required.
    """
    if is_required(requirement):
        pytest.fail(f"{requirement}: {reason} (required by ORBITMQ_REQUIRE)", pytrace=False)
    pytest.skip(f"{requirement}: {reason}")


@dataclass
class _Row:
    """One line of the table."""

    ran: int = 0
    skipped: int = 0
    reasons: set[str] = field(default_factory=set)


def _count(reports: dict[str, list[pytest.TestReport]]) -> dict[str, _Row]:
    """How many tests ran and were skipped per requirement, by the reports of the whole run."""
    rows: dict[str, _Row] = {}
    for report in (report for of_outcome in reports.values() for report in of_outcome):
        properties: list[tuple[str, object]] = getattr(report, "user_properties", [])
        for requirement in (str(value) for name, value in properties if name == "needs"):
            row = rows.setdefault(requirement, _Row())
            if report.skipped:
                row.skipped += 1
                reason = str(
                    report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
                )
                row.reasons.add(reason.removeprefix("Skipped: "))
            elif report.when == "call":
                row.ran += 1
    return rows


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"needs(requirement, ...): outside programs the test uses: {', '.join(_VERSION_COMMANDS)}",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    needs = sorted({str(need) for mark in item.iter_markers("needs") for need in mark.args})
    item.user_properties.extend(("needs", need) for need in needs)
    missing = [need for need in needs if found_version(need) is None]
    for need in sorted(missing, key=is_required, reverse=True):  # a failure goes before a skip
        lack(need, f"{_VERSION_COMMANDS[need][0]} is not on PATH or does not run")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = _count(terminalreporter.stats)
    if not rows:
        return
    terminalreporter.section("requirements")
    terminalreporter.write_line(
        f"{'requirement':<12} {'found':<12} {'ran':>5} {'skipped':>8}  reason"
    )
    for requirement, row in sorted(rows.items()):
        version = found_version(requirement) or "-"
        terminalreporter.write_line(
            f"{requirement:<12} {version:<12} {row.ran:>5} {row.skipped:>8} "
            f" {'; '.join(sorted(row.reasons))}".rstrip()
        )
