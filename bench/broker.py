"""How fast is the broker, and what does it cost, beside Apache's 5.5.0 and 4.9.7? Prints one JSON line; see README.md."""

from __future__ import annotations

import argparse
from functools import partial

from _broker_room import PULL_COUNT, PULL_TOPIC, QUEUES, broker, fill
from _harness import Pace, Result, Workload, contest, emit, parse_arguments, refuse_stale_kernels, rss_mb, running, say

CONTENDERS = ("orbitmq", "apache", "apache-4.9")
BODY_SIZE = 256
BATCH_COUNT = 32
MESSAGES_TO_PULL = 200_000
QUIET_WITHIN_S = 3.0  # Apache's brokers never are: their threads look for work every millisecond
# What we want to reach, as ratios to the medians of the newer Apache.
GOALS = {
    "send 64x1": {"rate_min": 2.5, "cpu_max": 0.25},
    "send 1x64": {"rate_min": 3.0, "cpu_max": 0.25},
    "send 1x64 binary": {"rate_min": 3.0, "cpu_max": 0.25},
    "pull 8x1": {"rate_min": 2.0},
    "sync send 64x1": {"rate_min": 2.0},
    "sync send 1x64": {"rate_min": 2.0},
}


def sends(prefix: str = "") -> list[Workload]:
    """Messages one by one: of 64 clients, of one with many threads, and of one as the stock benchmark producer writes them."""
    arguments = ("-m", "send", "-s", str(BODY_SIZE), "-q", str(QUEUES))
    shapes = [("64x1", 64, 1, ()), ("1x64", 1, 64, ()), ("1x64 binary", 1, 64, ("-b",))]
    return [
        Workload(name=f"{prefix}send {name}", arguments=arguments + more, connections=connections, window=window, answer_code=0)
        for name, connections, window, more in (shapes if not prefix else shapes[:2])
    ]


def batches() -> list[Workload]:
    """Messages by the batch."""
    arguments = ("-m", "send", "-s", str(BODY_SIZE), "-q", str(QUEUES), "-B", str(BATCH_COUNT))
    return [Workload(name=f"batches of {BATCH_COUNT} 8x1", arguments=arguments, connections=8, window=1, answer_code=0)]


def pulls() -> list[Workload]:
    """Messages pulled from queues that were filled in turns."""
    arguments = ("-m", "pull", "-T", PULL_TOPIC, "-q", str(QUEUES), "-n", str(PULL_COUNT))
    return [Workload(name="pull 8x1", arguments=arguments, connections=8, window=1, answer_code=0)]


def measure(options: argparse.Namespace, pace: Pace) -> Result:
    """The contests: first with messages that wait for nobody, then with those that wait for the disk."""
    workloads: Result = {}
    memory: Result = {}
    make = partial(broker, apache_version=options.apache)
    with running(make, options.server) as servers:
        for server in servers.values():
            fill(server, MESSAGES_TO_PULL // (20 if options.quick else 1))
        workloads |= contest(servers, pulls(), pace, quiet_within_s=QUIET_WITHIN_S)
        workloads |= contest(servers, [*sends(), *batches()], pace, quiet_within_s=QUIET_WITHIN_S)
        memory = {contender: round(rss_mb(server), 1) for contender, server in servers.items()}
        say(f"resident memory: {memory}")
    with running(partial(make, settings={"flushDiskType": "SYNC_FLUSH"}), options.server) as servers:
        workloads |= contest(servers, sends("sync "), pace, quiet_within_s=QUIET_WITHIN_S)
    return {"workloads": workloads, "rss_mb": memory}


def goals_met(workloads: Result) -> Result:
    """Which of the goals were reached, None where the machine was too busy to tell."""
    met: Result = {}
    for name, goal in GOALS.items():
        result = workloads[name]
        if ratio := result.get("orbitmq/apache"):
            rate = ratio["requests_per_s"] >= goal["rate_min"]
            cpu = ratio["server_us_per_request"] <= goal.get("cpu_max", ratio["server_us_per_request"])
            met[name] = {"rate": None, "cpu": None} if result["noisy"] else {"rate": rate, "cpu": cpu}
    return met


def main() -> None:
    options = parse_arguments(__doc__ or "", CONTENDERS)
    pace = Pace.of(options)
    refuse_stale_kernels()
    measured = measure(options, pace)
    met = None if options.quick else goals_met(measured["workloads"])  # a second does not warm a JVM up
    emit("broker", options, {**measured, "goals": GOALS, "met": met})


if __name__ == "__main__":
    main()
