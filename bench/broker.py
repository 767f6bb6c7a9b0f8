"""Measure the speed and cost of the broker next to Apache's 5.5.0 and 4.9.7. Prints one JSON line;
see README.md.

Sections: start, pull, send, batch, latency, sync, topics, stock.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import _broker_stock as stock
import _broker_topics as topics
from _broker_goals import table, verdicts
from _broker_room import PULL_COUNT, PULL_TOPIC, QUEUES, broker, fill, first_send, release_of
from _harness import (
    LOSSES,
    Pace,
    Result,
    Workload,
    busy_cores,
    compare,
    contest,
    emit,
    parse_arguments,
    refuse_stale_kernels,
    rss_mb,
    running,
    say,
    start_and_time,
)
from interop import apache

CONTENDERS = ("orbitmq", "apache", "apache-4.9")
SECTIONS = ("start", "pull", "send", "batch", "latency", "sync", "topics", "stock")
BODY_SIZE = 256
BATCH_COUNT = 32
MESSAGES_TO_PULL = 200_000
RATE = 5000  # of the section latency: messages per second
IDLE_S = 2.0  # after the first send, before memory is measured
QUIET_WITHIN_S = 3.0  # Apache's brokers are never quiet: their threads poll every millisecond
_APACHE_START_S = 6.0  # including its stop; for the estimate only


class Progress:
    """Reports the current step and the estimated remaining time; the estimate is made before the
    first turn.
    """

    def __init__(self, options: argparse.Namespace, pace: Pace) -> None:
        self._names: list[str] = options.only
        contenders = len(options.server)
        turn_s = pace.seconds + pace.settle_s + QUIET_WITHIN_S
        workload_s = contenders * (pace.warm_up_s + pace.rounds * turn_s)
        fixed = {
            "start": pace.rounds * contenders * (_APACHE_START_S + IDLE_S),
            "send": 3 * workload_s,
            "sync": 2 * workload_s + contenders * _APACHE_START_S,
            "topics": 2 * workload_s + contenders * 30,
            "stock": (
                2 * contenders * (pace.rounds + (pace.rounds > 1)) * (stock.WINDOW_S + turn_s + 4)
            ),
        }
        self._planned_s = [fixed.get(name, workload_s) for name in self._names]
        self._at = 0
        self._since = time.monotonic()

    def enter(self, section: str) -> None:
        self._at, self._since = self._names.index(section), time.monotonic()

    def tell(self, text: str) -> None:
        left_s = max(0.0, self._planned_s[self._at] - (time.monotonic() - self._since)) + sum(
            self._planned_s[self._at + 1 :]
        )
        say(
            f"[{self._names[self._at]}, {self._at + 1} of {len(self._names)}; {left_s / 60:.0f} min"
            f" left] {text}"
        )


def workloads_of(section: str) -> list[Workload]:
    """Return the mqload workloads of this section."""
    sending = ("-m", "send", "-s", str(BODY_SIZE), "-q", str(QUEUES))
    shapes: dict[str, list[tuple[str, tuple[str, ...], int, int]]] = {
        "pull": [
            (
                f"pull of {PULL_COUNT} 8x1",
                ("-m", "pull", "-T", PULL_TOPIC, "-q", str(QUEUES), "-n", str(PULL_COUNT)),
                8,
                1,
            )
        ],
        "send": [
            ("send 64x1", sending, 64, 1),
            ("send 1x64", sending, 1, 64),
            ("send 1x64 binary", (*sending, "-b"), 1, 64),
        ],
        "batch": [(f"batches of {BATCH_COUNT} 8x1", (*sending, "-B", str(BATCH_COUNT)), 8, 1)],
        "latency": [
            (
                f"end to end {RATE}/s",
                ("-m", "e2e", "-s", str(BODY_SIZE), "-q", str(QUEUES), "-r", str(RATE)),
                1,
                1000,
            )
        ],
        "sync": [("sync send 64x1", sending, 64, 1), ("sync send 1x64", sending, 1, 64)],
    }
    return [
        Workload(name=name, arguments=asked, connections=c, window=w, answer_code=0)
        for name, asked, c, w in shapes[section]
    ]


def measure_loads(
    options: argparse.Namespace,
    pace: Pace,
    progress: Progress,
    sections: list[str],
    settings: dict[str, object],
) -> Result:
    """Measure the sections whose load comes from mqload, on the same brokers."""
    measured: Result = {}
    if not sections:
        return measured
    progress.enter(sections[0])
    with running(
        partial(broker, apache_version=options.apache, settings=settings), options.server
    ) as servers:
        for section in sections:
            progress.enter(section)
            if section == "pull":
                for contender, server in servers.items():
                    progress.tell(f"{contender} gets messages to pull")
                    fill(server, MESSAGES_TO_PULL // (20 if options.quick else 1))
            measured |= contest(
                servers,
                workloads_of(section),
                pace,
                quiet_within_s=QUIET_WITHIN_S,
                tell=progress.tell,
            )
    return measured


def measure_starts(options: argparse.Namespace, pace: Pace, progress: Progress) -> Result:
    """Measure the time from process start, on an empty store, to the first accepted message, and
    the idle memory afterwards.
    """
    progress.enter("start")
    taken: dict[str, list[Result]] = {contender: [] for contender in options.server}
    for number in range(pace.rounds):
        for contender, samples in taken.items():
            where = f"start: round {number + 1}/{pace.rounds} {contender}"
            with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory:
                try:
                    server = broker(
                        contender, Path(directory) / contender, apache_version=options.apache
                    )
                    samples.append(sample := _start(server))
                    progress.tell(
                        f"{where} accepts a message after {sample['start_s']:.2f} s, idle at"
                        f" {sample['idle_rss_mb']:.0f} MB"
                    )
                except (*LOSSES, apache.ApacheUnavailable) as problem:
                    progress.tell(f"{where}: this round is lost: {problem}")
    found: Result = {
        contender: {"rounds_lost": pace.rounds - len(samples)}
        for contender, samples in taken.items()
    }
    for contender, samples in taken.items():
        found[contender] |= {
            key: round(statistics.median(each[key] for each in samples), 2)
            for key in (samples[0] if samples else ())
        }
    return {"start": compare(found)}


def _start(server: apache.Server) -> Result:
    other_cpu = busy_cores()
    try:
        start_s = start_and_time(server, request=first_send())
        time.sleep(IDLE_S)
        return {"start_s": start_s, "idle_rss_mb": rss_mb(server), "other_cpu": other_cpu}
    finally:
        server.stop()


def main() -> None:
    options = parse_arguments(__doc__ or "", CONTENDERS, SECTIONS)
    pace = Pace.of(options)
    refuse_stale_kernels()
    begin = time.monotonic()
    progress = Progress(options, pace)
    measured: Result = {}
    if "start" in options.only:
        measured |= measure_starts(options, pace, progress)
    without_waiting = [
        section for section in ("pull", "send", "batch", "latency") if section in options.only
    ]
    measured |= measure_loads(options, pace, progress, without_waiting, {})
    measured |= measure_loads(
        options,
        pace,
        progress,
        [s for s in options.only if s == "sync"],
        {"flushDiskType": "SYNC_FLUSH"},
    )
    if "topics" in options.only:
        progress.enter("topics")
        many = topics.QUICK_MANY if options.quick else topics.MANY
        measured |= topics.measure(
            options.server, options.apache, pace, many, QUIET_WITHIN_S, progress.tell
        )
    if "stock" in options.only:
        progress.enter("stock")
        measured |= stock.measure(
            options.server, options.apache, pace, QUIET_WITHIN_S, progress.tell
        )
    releases = {
        each: each if each == "orbitmq" else release_of(each, options.apache).version
        for each in options.server
    }
    say(table(measured, releases))
    if options.quick:
        say("this was a quick run: its numbers mean nothing, and its verdicts neither")
    goals = [] if options.quick else verdicts(measured)  # a second does not warm up a JVM
    emit(
        "broker",
        options,
        {
            "releases": releases,
            "workloads": measured,
            "goals": goals,
            "took_s": round(time.monotonic() - begin),
        },
    )


if __name__ == "__main__":
    main()
