"""Measure the speed and cost of the name server next to Apache's. Prints one JSON line; see
README.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from _brokers import FakeBrokers
from _harness import (
    NOISY_CPU_MIN,
    UNKNOWN_CODE,
    Pace,
    Result,
    Workload,
    busy_cores,
    contest,
    emit,
    name_server,
    parse_arguments,
    refuse_stale_kernels,
    rss_mb,
    running,
    say,
    start_and_time,
)

CONTENDERS = ("orbitmq", "apache")
SHAPES = ((64, 1), (1, 64), (64, 16))  # connections, requests in flight on each
TABLES = ((100, 10), (10_000, 100))  # topics, brokers
START_KEYS = ("start_s", "idle_rss_mb", "other_cpu")
# The goals: ratios to Apache's medians, then absolute numbers.
GOALS = {"rate_ratio_min": 2.0, "cpu_ratio_max": 1 / 3, "idle_rss_mb_max": 60.0, "start_s_max": 0.5}


def unknown_code() -> list[Workload]:
    """Return a workload of requests that a server only has to read and refuse."""
    arguments = ("-m", "request", "-C", str(UNKNOWN_CODE))
    return [
        Workload(
            name=f"unknown code {c}x{w}",
            arguments=arguments,
            connections=c,
            window=w,
            answer_code=3,
        )
        for c, w in SHAPES
    ]


def routes(topics: int, brokers: int) -> list[Workload]:
    """Return a workload of route lookups of random topics."""
    arguments = ("-m", "request", "-C", "105", "-F", "topic=T%d", "-T", str(topics), "-x")
    name = f"routes of {topics} topics on {brokers} brokers"
    return [
        Workload(
            name=f"{name} {c}x{w}", arguments=arguments, connections=c, window=w, answer_code=0
        )
        for c, w in SHAPES
    ]


def measure_tables(options: argparse.Namespace, pace: Pace) -> Result:
    """Run the contests on servers whose tables are filled by fake brokers."""
    workloads: Result = {}
    registrations: Result = {}
    for topics, brokers in TABLES[:1] if options.quick else TABLES:
        with (
            running(partial(name_server, apache_version=options.apache), options.server) as servers,
            ExitStack() as stack,
        ):
            table = registrations[f"{topics} topics on {brokers} brokers"] = {}
            fleets = []
            for contender, server in servers.items():
                begin = time.perf_counter()
                fleets.append(
                    stack.enter_context(FakeBrokers(server.port, brokers=brokers, topics=topics))
                )
                table[contender] = {
                    "registered_s": round(time.perf_counter() - begin, 2),
                    "rss_mb": round(rss_mb(server), 1),
                }
                say(f"{contender}: {topics} topics on {brokers} brokers: {table[contender]}")

            def keep_alive(fleets: list[FakeBrokers] = fleets) -> None:
                for fleet in fleets:
                    fleet.keep_alive()

            if topics == TABLES[0][0]:
                workloads |= contest(servers, unknown_code(), pace, keep_alive)
            workloads |= contest(servers, routes(topics, brokers), pace, keep_alive)
    return {"workloads": workloads, "registrations": registrations}


def measure_starts(options: argparse.Namespace, pace: Pace) -> Result:
    """Return the median seconds from process start to the first response, and the memory two
    seconds later.
    """
    taken: dict[str, list[tuple[float, float, float]]] = {
        contender: [] for contender in options.server
    }
    for _ in range(pace.rounds):
        for contender in options.server:
            with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory:
                server = name_server(contender, Path(directory) / contender, options.apache)
                other_cpu = busy_cores()
                try:
                    start_s = start_and_time(server)
                    time.sleep(2)
                    taken[contender].append((start_s, rss_mb(server), other_cpu))
                finally:
                    server.stop()
            say(
                f"{contender}: first answer after {start_s:.3f} s, {taken[contender][-1][1]:.1f} MB"
            )
    return {
        contender: {
            key: round(statistics.median(values), 3)
            for key, values in zip(START_KEYS, zip(*samples, strict=True), strict=True)
        }
        for contender, samples in taken.items()
    }


def goals_met(workloads: Result, starts: Result) -> Result:
    """Return which goals were met; those of rate and CPU by workload, None if the machine was too
    busy.
    """
    met: Result = {}
    for name, result in workloads.items():
        if ratio := result.get("orbitmq/apache"):
            rate = ratio["requests_per_s"] >= GOALS["rate_ratio_min"]
            cpu = ratio["server_us_per_request"] <= round(GOALS["cpu_ratio_max"], 2)
            met[name] = (
                {"rate": None, "cpu": None} if result["noisy"] else {"rate": rate, "cpu": cpu}
            )
    if "orbitmq" in starts:
        met["idle_rss"] = starts["orbitmq"]["idle_rss_mb"] < GOALS["idle_rss_mb_max"]
        noisy = starts["orbitmq"]["other_cpu"] >= NOISY_CPU_MIN
        met["start"] = None if noisy else starts["orbitmq"]["start_s"] < GOALS["start_s_max"]
    return met


def main() -> None:
    options = parse_arguments(__doc__, CONTENDERS)
    pace = Pace.of(options)
    refuse_stale_kernels()
    starts = measure_starts(options, pace)
    tables = measure_tables(options, pace)
    met = (
        None if options.quick else goals_met(tables["workloads"], starts)
    )  # a second does not warm up a JVM
    emit("nameserver", options, {**tables, "starts": starts, "goals": GOALS, "met": met})


if __name__ == "__main__":
    main()
