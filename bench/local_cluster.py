"""Measure how soon a test has a broker that accepted a message: by LocalCluster, and by starting
Apache's broker. Prints one JSON line; see README.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _broker_room import broker, first_send
from _harness import (
    LOSSES,
    NOISY_CPU_MIN,
    ROOT,
    Pace,
    Result,
    busy_cores,
    emit,
    parse_arguments,
    refuse_stale_kernels,
    say,
    start_and_time,
)
from interop import apache

CONTENDERS = ("orbitmq", "apache")
RATIO_MAX = 0.1  # of a cluster in a running test process to Apache's start
UP_S_MAX = 0.3


def measure_orbitmq() -> Result:
    """Measure one test process: its first cluster, and the median of the later ones."""
    command = [
        sys.executable,
        str(ROOT / "bench" / "_local_cluster_child.py"),
        str(time.monotonic()),
    ]
    found = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    )
    first, *later = found["clusters"]
    medians = {
        key: statistics.median(each[key] for each in later)
        for key in ("up_s", "first_send_s", "end_s")
    }
    return {
        "import_s": found["import_s"],
        "process_s": found["process_s"],
        "first_up_s": first["up_s"],
        **medians,
    }


def measure_apache(options: argparse.Namespace) -> Result:
    """Measure a broker alone, without the name server it needs and without a client: the minimum
    that a test would wait for.
    """
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory:
        server = broker("apache", Path(directory) / "apache", apache_version=options.apache)
        try:
            return {"first_send_s": start_and_time(server, request=first_send())}
        finally:
            server.stop()


def main() -> None:
    options = parse_arguments(__doc__ or "", CONTENDERS)
    pace = Pace.of(options)
    refuse_stale_kernels()
    taken: dict[str, list[Result]] = {contender: [] for contender in options.server}
    for number in range(pace.rounds):
        for contender, samples in taken.items():
            other_cpu = busy_cores()
            try:
                sample = measure_orbitmq() if contender == "orbitmq" else measure_apache(options)
            except (*LOSSES, apache.ApacheUnavailable) as problem:
                say(f"round {number + 1}/{pace.rounds} {contender}: this round is lost: {problem}")
                continue
            samples.append({**sample, "other_cpu": other_cpu})
            say(
                f"round {number + 1}/{pace.rounds} {contender}:"
                f" {', '.join(f'{key} {value:.3f}' for key, value in samples[-1].items())}"
            )
    medians: Result = {
        contender: {
            key: round(statistics.median(each[key] for each in samples), 4) for key in samples[0]
        }
        for contender, samples in taken.items()
        if samples
    }
    emit("local_cluster", options, {"starts": medians, **verdict(medians, is_quick=options.quick)})


def verdict(medians: Result, *, is_quick: bool) -> Result:
    """Return the ratios and the goals; `met` is None if it cannot be decided: on a noisy machine,
    after a quick run, without a contender.
    """
    ours, theirs = medians.get("orbitmq"), medians.get("apache")
    if ours is None:
        return {}
    noisy = any(each["other_cpu"] >= NOISY_CPU_MIN for each in medians.values())
    ratios = (
        {}
        if theirs is None
        else {
            key: round(ours[key] / theirs["first_send_s"], 4)
            for key in ("first_send_s", "process_s")
        }
    )
    reached = {
        "up_s": (ours["up_s"], UP_S_MAX),
        "first_send_s x": (ratios.get("first_send_s"), RATIO_MAX),
    }
    goals = [
        {
            "goal": f"{name} <= {limit}",
            "reached": value,
            "met": None if value is None or noisy or is_quick else value <= limit,
        }
        for name, (value, limit) in reached.items()
    ]
    return {"noisy": noisy, "orbitmq/apache": ratios, "goals": goals}


if __name__ == "__main__":
    main()
