"""Run the test suite many times, beside busy loops if wanted, and append a line of JSON about each
run to a file.

    python tools/repeat_suite.py --runs 20 --busy 2 --into build/suite-runs.jsonl

A run gets a fresh Hypothesis seed, which its line has: `make test
PYTEST_ARGS=--hypothesis-seed=SEED` repeats it. Busy loops end with this program, however it ends.
The exit code is 1 when any run failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
TARGETS: Final = {"test": ["make", "test"], "ci": [".ci/run"]}
_BUSY: Final = (  # ends with whoever started it
    "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"
)
_SUMMARY: Final = re.compile(
    r"^=+ (?:.*, )?\d+ (?:passed|failed|error).* in [\d.]+s.*=+$|^\d+ (?:passed|failed|error).* in"
    r" [\d.]+s.*$"
)
_COUNT: Final = re.compile(r"(\d+) (passed|failed|error)")
_FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$")


class Outcome(NamedTuple):
    """What the output of a run says, of all pytest sessions in it."""

    passed: int
    failed: int
    failures: list[str]


def outcome_of(lines: Sequence[str]) -> Outcome:
    """Count what passed and failed, and name what failed."""
    counts = {"passed": 0, "failed": 0, "error": 0}
    for line in lines:
        if _SUMMARY.match(line):
            for number, kind in _COUNT.findall(line):
                counts[kind] += int(number)
    failures = sorted({found[1] for line in lines if (found := _FAILURE.match(line))})
    return Outcome(counts["passed"], counts["failed"] + counts["error"], failures)


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep so many cores busy meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_once(target: str, seed: int) -> dict[str, object]:
    """Run the suite; what is written down of it."""
    arguments = " ".join(filter(None, [os.environ.get("PYTEST_ARGS"), f"--hypothesis-seed={seed}"]))
    begun_s = time.monotonic()
    done = subprocess.run(
        TARGETS[target],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ARGS": arguments},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    lines = done.stdout.splitlines()
    found = outcome_of(lines)
    return {
        "commit": commit(),
        "target": target,
        "seed": seed,
        "seconds": round(time.monotonic() - begun_s, 1),
        "exit_code": done.returncode,
        **found._asdict(),
        **({} if done.returncode == 0 else {"tail": lines[-200:]}),
    }


def commit() -> str:
    """The commit of the working tree, with `+` when it has changes."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, default=10, help="How many times (default: %(default)s)."
    )
    parser.add_argument(
        "--busy", type=int, default=0, help="Busy loops beside each run (default: %(default)s)."
    )
    parser.add_argument(
        "--target",
        choices=sorted(TARGETS),
        default="test",
        help="What to run (default: %(default)s).",
    )
    parser.add_argument(
        "--into",
        type=Path,
        default=ROOT / "build/suite-runs.jsonl",
        help="File to append to (default: %(default)s).",
    )
    options = parser.parse_args()
    options.into.parent.mkdir(parents=True, exist_ok=True)
    failed = 0
    for number in range(1, options.runs + 1):
        with busy_loops(options.busy):
            line = run_once(options.target, random.getrandbits(32)) | {"busy": options.busy}
        with options.into.open("a") as file:
            file.write(json.dumps(line) + "\n")
        failed += line["exit_code"] != 0
        told = " ".join(
            f"{name}={line[name]}" for name in ("seconds", "passed", "failed", "seed", "failures")
        )
        print(
            f"run {number}/{options.runs}: {'ok' if line['exit_code'] == 0 else 'FAILED'} {told}",
            flush=True,
        )
    print(f"{options.runs - failed} of {options.runs} runs passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
