"""`.ci/run`: the parts it runs, how it ends when one fails, and the minutes it prints."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = [
    "setup",
    "check",
    "test",
    "slow",
    "test-pure",
    "interop",
    "clients SHORT=1",
    "spark SHORT=1",
    "crash SHORT=1",
]


def run(tmp_path: Path, failing: str) -> subprocess.CompletedProcess[str]:
    """Run it with a `make` that only says what it is told, and fails for one target."""
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\necho "made $*: $PURE_TESTS"\ntest "$1" != "{failing}" || exit 7\n')
    make.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.run(
        [ROOT / ".ci/run"], capture_output=True, text=True, env=environment, check=False
    )


def minutes(output: str) -> list[str]:
    """Return the parts of the closing table."""
    table = output.split("\nminutes\n")[1].splitlines()
    assert all(re.match(r" +\d+\.\d  ", line) for line in table)
    return [line.split("  ")[-1] for line in table]


def test_all_parts_run_and_their_minutes_are_printed(tmp_path: Path) -> None:
    ended = run(tmp_path, failing="nothing")
    assert ended.returncode == 0, ended.stderr
    pure = "tests/unit tests/property tests/golden"
    assert re.findall(r"^made (.*)$", ended.stdout, re.MULTILINE) == [
        f"{part}: {pure}" for part in PARTS
    ]
    assert minutes(ended.stdout) == PARTS


@pytest.mark.parametrize("failing", ["setup", "slow", "crash"])
def test_it_ends_at_the_first_part_that_fails_with_its_code_and_the_minutes(
    tmp_path: Path, failing: str
) -> None:
    ended = run(tmp_path, failing)
    assert ended.returncode == 7
    *passed, last = minutes(ended.stdout)
    assert last.removesuffix(" (failed)").split()[0] == failing
    assert last.endswith(" (failed)")
    assert passed == PARTS[: len(passed)]


def test_every_part_is_a_target() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {part.split()[0] for part in PARTS} <= set(targets)
