"""Compiled versus interpreted: a program measures itself in child processes of both modes, in
turns, and receives the medians of its rates.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable

from _harness import Pace, Result, busy_cores, emit, parse_arguments, refuse_stale_kernels, say
from orbitmq import kernels

CONTENDERS = ("compiled", "interpreted")
_MEASURE_ENV = "ORBITMQ_BENCH_SECONDS"  # set in the measuring processes


def run(
    program: str,
    description: str,
    measure: Callable[[float], Result],
    report: Callable[[dict[str, dict[str, float]], dict[str, Result]], Result],
    *,
    seconds: float,
    quick_seconds: float,
) -> None:
    """Act as the measuring child, or as the parent that starts children and prints the result of
    `report`.

    `measure` takes the seconds per rate and returns the rates under "rates"; `report` receives the
    medians by mode, and by mode the last measurement.
    """
    if _MEASURE_ENV in os.environ:
        print(json.dumps({"mode": kernels.mode(), **measure(float(os.environ[_MEASURE_ENV]))}))
        return
    options = parse_arguments(description, CONTENDERS)
    refuse_stale_kernels()
    pace = Pace.of(options)
    rounds: dict[str, list[Result]] = {contender: [] for contender in options.server}
    others = busy_cores()
    for number in range(pace.rounds):
        for contender in options.server:
            found = _child(program, contender, quick_seconds if options.quick else seconds)
            rounds[contender].append(found)
            say(
                f"{number + 1}/{pace.rounds} {contender}"
                f" {' '.join(f'{name}: {rate:.0f}/s;' for name, rate in found['rates'].items())}"
            )
    medians = {
        contender: {
            name: statistics.median(each["rates"][name] for each in found)
            for name in found[0]["rates"]
        }
        for contender, found in rounds.items()
    }
    last = {contender: found[-1] for contender, found in rounds.items()}
    name = os.path.basename(program).removesuffix(".py")  # noqa: PTH119 - a name, not a file
    emit(name, options, {**report(medians, last), "other_cpu": round(others, 2)})


def _child(program: str, contender: str, seconds: float) -> Result:
    environment = os.environ | {
        _MEASURE_ENV: str(seconds),
        "ORBITMQ_PURE": "1" if contender == "interpreted" else "0",
    }
    child = subprocess.run(
        [sys.executable, program], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found: Result = json.loads(child.stdout)
    if found["mode"] != contender:
        raise RuntimeError(f"the {contender} process ran {found['mode']}")
    return found


def rounded(rates: dict[str, dict[str, float]]) -> Result:
    """Return rates by mode, as whole numbers."""
    return {
        contender: {name: round(rate) for name, rate in of_mode.items()}
        for contender, of_mode in rates.items()
    }
