"""The cost of many topics: the same load on a broker with few topics and on one with many, in
turns, one contender after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from _broker_room import broker, send, write_topics
from _harness import LOSSES, Pace, Result, Workload, compare, load, medians, running, take_turns
from interop import apache

FEW, MANY, QUICK_MANY = 64, 10_000, 1000
QUEUES = 4


def measure(
    contenders: Sequence[str],
    apache_version: str,
    pace: Pace,
    many: int,
    quiet_within_s: float,
    tell: Callable[[str], None],
) -> Result:
    """Return the workloads by number of topics, and under `topics` the ratio of the CPU time per
    message with many to few.
    """
    by_count: dict[int, Result] = {FEW: {}, many: {}}
    ratios: Result = {}
    for contender in contenders:
        found = _measure_one(contender, apache_version, pace, tuple(by_count), quiet_within_s, tell)
        for count, of_contender in found.items():
            by_count[count][contender] = of_contender
        few_us, many_us = (found.get(count, {}).get("server_us_per_message") for count in by_count)
        ratios[contender] = {"many/few": round(many_us / few_us, 3)} if few_us and many_us else {}
    measured = {
        _workload(count).name: compare(of_contenders) for count, of_contenders in by_count.items()
    }
    return {
        **measured,
        "topics": {**ratios, "noisy": any(each["noisy"] for each in measured.values())},
    }


def _measure_one(
    contender: str,
    apache_version: str,
    pace: Pace,
    counts: Sequence[int],
    quiet_within_s: float,
    tell: Callable[[str], None],
) -> Mapping[int, Result]:
    labels = {f"{contender} with {count} topics": count for count in counts}

    def make(label: str, home: Path) -> apache.Server:
        server = broker(contender, home, apache_version=apache_version)
        write_topics(home, [f"T{number}" for number in range(labels[label])], QUEUES)
        return server

    with running(make, list(labels)) as servers:
        for label, server in servers.items():
            tell(f"{label}: a message to every queue, then the load, to warm up")
            try:
                send(server, labels[label] * QUEUES, *_arguments(labels[label]))
                load(server, _workload(labels[label]), pace.warm_up_s, 0.0)
            except LOSSES as problem:
                tell(f"{label} could not be warmed up: {problem}")

        def turn(label: str) -> Result:
            return load(servers[label], _workload(labels[label]), pace.seconds, pace.settle_s)

        reports = take_turns(
            "topics", servers, pace.rounds, turn, quiet_within_s=quiet_within_s, tell=tell
        )
    return {labels[label]: medians(of, pace.rounds) for label, of in reports.items()}


def _arguments(count: int) -> tuple[str, ...]:
    return ("-s", "256", "-q", str(QUEUES), "-T", "T%d", "-K", str(count))


def _workload(count: int) -> Workload:
    arguments = ("-m", "send", *_arguments(count), "-x")
    return Workload(
        name=f"send 1x64 to {count} topics",
        arguments=arguments,
        connections=1,
        window=64,
        answer_code=0,
    )
