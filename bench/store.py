"""Measure the store: appends and dispatch next to bare writes, reads, recovery next to `cat`, the
start with many queues; see README.md.

Measures all sections, or those given by --section (append, sync, pull, recovery, start);
repeatable. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import _modes
import _store_reads as reads
import _store_writes as writes
from _harness import Result, say
from _store_room import WALL, Rates, folder

SECTIONS: dict[str, Callable[[float], Rates]] = {
    "append": writes.append_and_dispatch,
    "sync": writes.sync_flush,
    "pull": reads.pulls,
    "recovery": reads.recovery,
}
START = "start"  # measured first, while the process is small
_SECTIONS_ENV = "ORBITMQ_BENCH_SECTIONS"
_STORES_ENV = "ORBITMQ_BENCH_STORES"  # location of the stores with many queues
SHAPES = ("1 x 256 B", "64 x 256 B", "1 x 1024 B", "64 x 1024 B")
GOALS = {
    "append/bare, 64 in a batch": 0.5,
    "dispatch/append, 64 in a batch": 1.0,
    "recovery/cat": 0.3,
    "start_10000_queues_s_max": 1.0,
    "start_10000_queues_mb_max": 50.0,
}


def measure(seconds: float) -> Result:
    """Return the measurements of one process in the selected sections."""
    rates: Rates = {}
    result: Result = {"rates": rates}
    sections = os.environ[_SECTIONS_ENV].split()
    if START in sections:
        started, result["grown_mb"] = reads.start(Path(os.environ[_STORES_ENV]))
        rates |= started
    for section in sections:
        if section != START:
            rates |= SECTIONS[section](seconds)
    return result


def report(rates: dict[str, Rates], last: dict[str, Result]) -> Result:
    """Return rates by mode, derived ratios, and whether the goals of the compiled mode are met."""
    ratios = {mode: _ratios(of_mode) for mode, of_mode in rates.items()}
    seconds = {mode: _start_seconds(of_mode) for mode, of_mode in rates.items()}
    grown = {mode: found.get("grown_mb", {}) for mode, found in last.items()}
    return {
        "per_cpu_s": _modes.rounded(
            {
                mode: {n: rate for n, rate in of.items() if not n.endswith(WALL)}
                for mode, of in rates.items()
            }
        ),
        "per_wall_s": _modes.rounded(
            {
                mode: {n.removesuffix(WALL): rate for n, rate in of.items() if n.endswith(WALL)}
                for mode, of in rates.items()
            }
        ),
        "ratios_of_cpu": ratios,
        "start_s": seconds,
        "grown_mb": grown,
        "goals": GOALS,
        "met": _goals_met(
            ratios.get("compiled", {}), seconds.get("compiled", {}), grown.get("compiled", {})
        ),
    }


def _ratios(rates: Rates) -> Rates:
    """Return the ratios of ours to the bare loop's, by CPU time; those with a sync, by
    wall time.
    """
    pairs = [
        (f"{what}, {shape}", f"{other}, {shape}")
        for shape in SHAPES
        for what, other in (("append", "bare"), ("dispatch", "append"))
    ]
    pairs += [
        (f"append, {shape}", f"bare, a write per record, {shape}")
        for shape in SHAPES
        if shape.startswith("64")
    ]
    pairs += [
        (f"append and sync, {shape}{WALL}", f"bare and sync, {shape}{WALL}") for shape in SHAPES
    ]
    for size in reads.BODY_SIZES:
        pairs += [(f"pull{cold}, {size} B", f"read{cold}, {size} B") for cold in ("", ", cold")]
        pairs += [
            (f"recovery{built}, bytes, {size} B", f"cat, bytes, {size} B")
            for built in ("", ", all built again")
        ]
    return {
        f"{ours} / {theirs.removesuffix(WALL)}": round(rates[ours] / rates[theirs], 2)
        for ours, theirs in pairs
        if ours in rates and theirs in rates
    }


def _start_seconds(rates: Rates) -> Rates:
    """Return how long the start takes, without and with an access to every queue."""
    result = {}
    for count in (*reads.QUICK_QUEUE_COUNTS, *reads.QUEUE_COUNTS):
        start, look = (
            rates.get(f"{what}, {count} queues{WALL}") for what in ("start", "first look")
        )
        if start is not None and look is not None:
            result[str(count)] = round(count / start, 3)
            result[f"{count}, all looked at"] = round(count / start + count / look, 3)
    return result


def _goals_met(ratios: Rates, seconds: Rates, grown_mb: Result) -> Result:
    """Return which goals were met by the worst shape; None if the section was not measured."""

    def worst(begin: str, end: str) -> float | None:
        return min(
            (ratio for name, ratio in ratios.items() if name.startswith(begin) and end in name),
            default=None,
        )

    found = {
        "append/bare, 64 in a batch": worst("append, 64 x", "/ bare, 64"),
        "dispatch/append, 64 in a batch": worst("dispatch, 64 x", "/ append"),
        "recovery/cat": worst("recovery, bytes", "/ cat"),
        "start_10000_queues_s_max": seconds.get("10000"),
        "start_10000_queues_mb_max": grown_mb.get("10000", {}).get("start"),
    }
    return {
        goal: (
            None
            if value is None
            else value <= GOALS[goal]
            if goal.endswith("_max")
            else value >= GOALS[goal]
        )
        for goal, value in found.items()
    }


def main() -> None:
    if _SECTIONS_ENV in os.environ:  # a measuring process
        _run()
        return
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--section", action="append", choices=(START, *SECTIONS))
    options, others = parser.parse_known_args()
    sections = options.section or [START, *SECTIONS]
    os.environ[_SECTIONS_ENV] = " ".join(sections)
    sys.argv[1:] = others
    with folder() as stores:
        os.environ[_STORES_ENV] = stores
        if START in sections:
            say("making stores of many queues, which takes a minute")
            reads.make_many_queues(
                Path(stores),
                reads.QUICK_QUEUE_COUNTS if "--quick" in others else reads.QUEUE_COUNTS,
            )
        _run()


def _run() -> None:
    _modes.run(__file__, str(__doc__), measure, report, seconds=1.0, quick_seconds=0.1)


if __name__ == "__main__":
    main()
