"""Compare the cost of this checkout's broker with that of other commits. Prints one JSON line; see
README.md.

Measures the CPU time per message of both brokers under the loads of broker.py, in pairs of turns.

examples:
  .venv/bin/python bench/versions.py --against 25ef735
  .venv/bin/python bench/versions.py --against v1.0 --against HEAD~5 --pairs 15
  .venv/bin/python bench/versions.py --against HEAD --only pull      # a dirty checkout beside its
  last commit

The other commit is checked out under build/versions and compiled there, which takes a minute or
two; the folder is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from _broker_room import fill, own_broker
from _harness import (
    LOSSES,
    NOISY_CPU_MIN,
    ROOT,
    Result,
    Workload,
    load,
    machine,
    pid_of,
    refuse_stale_kernels,
    running,
    stopped,
    wait_until_quiet,
)
from broker import workloads_of
from interop import apache

GOAL = 0.95  # the minimum ratio of CPU times, other to this
# in this order: pulls must read the filled messages, not those of the sends
SECTIONS = ("pull", "send")
PAIRS_MIN = 9
MESSAGES_TO_PULL = 100_000
WARM_UP_S, SETTLE_S, QUIET_WITHIN_S = 3.0, 0.3, 5.0
THIS, OTHER = "this", "other"


@dataclass(frozen=True, slots=True)
class Version:
    """A checkout with compiled kernels."""

    commit: str
    source: Path

    def described(self, compiled: int) -> Result:
        return {"commit": self.commit, "kernels": "compiled", "kernels_loaded": compiled}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--against",
        action="append",
        required=True,
        metavar="COMMIT",
        help="Commit to compare with; repeatable.",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=PAIRS_MIN,
        help=f"Pairs of turns, at least {PAIRS_MIN} (default: %(default)s).",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=1.5,
        help="Measured seconds of a turn (default: %(default)s).",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=SECTIONS,
        help="Measure only this section; repeatable (default: all).",
    )
    options = parser.parse_args()
    if options.pairs < PAIRS_MIN:
        parser.error(f"--pairs {options.pairs}: fewer than {PAIRS_MIN} say nothing")
    options.only = [section for section in SECTIONS if section in (options.only or SECTIONS)]
    return options


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


@contextmanager
def checked_out(commit: str) -> Iterator[Version]:
    """Yield a checkout of this commit with compiled kernels in a temporary folder."""
    folder = ROOT / "build" / "versions" / commit[:12]
    remove(folder)  # left behind by a killed run
    git("worktree", "add", "--detach", str(folder), commit)
    try:
        environment = os.environ | {"PYTHONPATH": str(folder / "src")}
        build = subprocess.run(
            [sys.executable, "tools/build_kernels.py"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        version = Version(commit[:12], folder / "src")
        check_compiled(version, build.stdout + build.stderr)
        yield version
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    if folder.exists():
        subprocess.run(
            ["git", "worktree", "remove", "--force", str(folder)],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        shutil.rmtree(folder, ignore_errors=True)
    git("worktree", "prune")


def check_compiled(version: Version, said: str = "") -> None:
    """Exit unless a process started from this source has all kernels compiled."""
    question = "import orbitmq.kernels as kernels; print(kernels.__file__); print(kernels.mode())"
    environment = os.environ | {"PYTHONPATH": str(version.source), "ORBITMQ_PURE": "0"}
    asked = subprocess.run(
        [sys.executable, "-P", "-c", question],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.stdout.split("\n")[:2] != [str(version.source / "orbitmq" / "kernels.py"), "compiled"]:
        raise SystemExit(
            f"{version.commit} has not all kernels compiled: {asked.stdout}{asked.stderr}\n{said}"
        )


def loaded_kernels(server: apache.Server, version: Version) -> int:
    """Return how many kernels the broker has loaded, all from its own source."""
    mapped = {
        line.split(maxsplit=5)[5]
        for line in Path(f"/proc/{pid_of(server)}/maps").read_text().splitlines()
        if line.endswith(".so")
    }
    kernels = {path for path in mapped if "/orbitmq/" in path}
    if not kernels or any(not Path(path).is_relative_to(version.source) for path in kernels):
        raise SystemExit(
            f"the broker of {version.commit} runs kernels of another source, or none:"
            f" {sorted(kernels)}"
        )
    return len(kernels)


def ratios_of(pairs: Sequence[tuple[float, float]]) -> Result:
    """Return median and spread of the ratios of CPU times, other to this, over the pairs."""
    if len(pairs) < 2:
        return {"pairs": len(pairs), "ratio": None, "met": None}
    ratios = [other / this for this, other in pairs]
    q1, median, q3 = statistics.quantiles(ratios, n=4, method="inclusive")
    spread = {"ratio": median, "q1": q1, "q3": q3, "min": min(ratios), "max": max(ratios)}
    medians = {
        "this_us": statistics.median(this for this, _ in pairs),
        "other_us": statistics.median(other for _, other in pairs),
    }
    return {
        "pairs": len(pairs),
        **{name: round(value, 3) for name, value in {**spread, **medians}.items()},
        "met": median >= GOAL,
    }


class Comparison:
    """Two brokers that take turns (this, other, other, this, …); a broker is stopped while it is
    not its turn.
    """

    def __init__(
        self, servers: dict[str, apache.Server], options: argparse.Namespace, bar: Progress
    ) -> None:
        self._servers = servers
        self._options = options
        self._bar = bar

    def measure(self, workload: Workload, task: TaskID) -> Result:
        for name in (THIS, OTHER):
            self._turn(name, workload, WARM_UP_S)
        pairs, others = [], []
        for number in range(self._options.pairs):
            try:
                order = (THIS, OTHER) if number % 2 == 0 else (OTHER, THIS)
                reports = {
                    name: self._turn(name, workload, self._options.seconds) for name in order
                }
            except LOSSES as problem:
                self._bar.console.print(f"{workload.name}: pair {number + 1} is lost: {problem}")
                continue
            finally:
                self._bar.advance(task)
            this, other = (reports[name]["server_us_per_message"] for name in (THIS, OTHER))
            pairs.append((this, other))
            others += [reports[name]["other_cpu"] for name in order]
            self._bar.console.print(
                f"{workload.name}: pair {number + 1}: {this:.2f} and {other:.2f} µs, ratio"
                f" {other / this:.3f}"
            )
        return {
            **ratios_of(pairs),
            "noisy": bool(others) and statistics.median(others) >= NOISY_CPU_MIN,
        }

    def _turn(self, name: str, workload: Workload, seconds: float) -> Result:
        wait_until_quiet(self._servers.values(), QUIET_WITHIN_S)
        with stopped([server for rival, server in self._servers.items() if rival != name]):
            return load(self._servers[name], workload, seconds, SETTLE_S)


def compare(this: Version, other: Version, options: argparse.Namespace, bar: Progress) -> Result:
    """Compare all workloads of one commit with this checkout's."""
    versions = {THIS: this, OTHER: other}
    workloads = [workload for section in options.only for workload in workloads_of(section)]
    task = bar.add_task(f"beside {other.commit}", total=options.pairs * len(workloads))
    with running(
        lambda name, home: own_broker(home, source=versions[name].source), (THIS, OTHER)
    ) as servers:
        kernels = {name: loaded_kernels(server, versions[name]) for name, server in servers.items()}
        if "pull" in options.only:
            for server in servers.values():
                fill(server, MESSAGES_TO_PULL)
        comparison = Comparison(servers, options, bar)
        measured = {workload.name: comparison.measure(workload, task) for workload in workloads}
    bar.remove_task(task)
    return {
        THIS: this.described(kernels[THIS]),
        OTHER: other.described(kernels[OTHER]),
        "workloads": measured,
    }


def main() -> None:
    options = parse()
    refuse_stale_kernels()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # worktrees and brokers end with this process
    commits = [git("rev-parse", "--verify", f"{name}^{{commit}}") for name in options.against]
    this = Version(
        git("describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"), ROOT / "src"
    )
    check_compiled(this)
    begin = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    results = []
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as bar:
        for commit in commits:
            bar.console.print(f"{commit[:12]}: compiling its kernels, a minute or two")
            with checked_out(commit) as other:
                results.append(compare(this, other, options, bar))
    about = {
        "program": "versions",
        "goal": GOAL,
        "pairs": options.pairs,
        "seconds": options.seconds,
        "machine": machine(),
    }
    print(
        json.dumps({**about, "comparisons": results, "took_s": round(time.monotonic() - begin)}),
        flush=True,
    )


if __name__ == "__main__":
    main()
