"""Measure the cost of transactions, delays, SQL92 filters and access control next to Apache's
5.5.0. Prints one JSON line; see README.md.

Sections: transactions, delayed, filters, access.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import _messaging_access as access
import _messaging_delayed as delayed
import _messaging_filters as filters
from _broker_goals import table, verdicts
from _broker_room import QUEUES, Desk, broker, release_of
from _harness import (
    Pace,
    Result,
    Workload,
    contest,
    emit,
    parse_arguments,
    refuse_stale_kernels,
    running,
    say,
)
from _messaging_goals import GOALS
from interop import apache

CONTENDERS = ("orbitmq", "apache")
SECTIONS = ("transactions", "delayed", "filters", "access")
PENDING = 1_000_000
QUICK_PENDING = 5_000
QUIET_WITHIN_S = 3.0  # Apache's brokers are never quiet: their threads poll every millisecond
TOPIC = "BenchmarkTest"  # exists on every broker from the start


def transactions(options: argparse.Namespace, pace: Pace) -> Result:
    """Measure half messages, each committed on its response; every acknowledged transaction must be
    visible to consumers.
    """
    shapes = (("transactions 64x1", 64, 1), ("transactions 1x64", 1, 64))
    asked = ("-m", "transaction", "-T", TOPIC, "-q", str(QUEUES))
    workloads = [
        Workload(name=name, arguments=asked, connections=c, window=w, answer_code=0)
        for name, c, w in shapes
    ]
    with running(partial(broker, apache_version=options.apache), options.server) as servers:
        measured = contest(servers, workloads, pace, quiet_within_s=QUIET_WITHIN_S)
        found = {
            contender: _committed(server, 200 if options.quick else 5_000)
            for contender, server in servers.items()
        }
    return measured | {"committed": found}


def _committed(server: apache.Server, count: int) -> Result:
    """Commit this many transactions and pull their messages; raise RuntimeError if one
    is missing.
    """
    with Desk(server) as desk:
        before = desk.ends(TOPIC)
        answered = filters.send(
            server, "-m", "transaction", "-T", TOPIC, "-q", str(QUEUES), "-N", str(count)
        )["answered"]
        pulled = sum(desk.pulled(TOPIC, queue, begin) for queue, begin in enumerate(before))
        if pulled < answered:
            raise RuntimeError(
                f"{answered} transactions were committed, consumers get {pulled} messages of them"
            )
        return {"answered": answered, "pulled": pulled}


def main() -> None:
    more = {"pending": ("how many timed messages wait meanwhile (%(default)s)", PENDING)}
    options = parse_arguments(__doc__ or "", CONTENDERS, SECTIONS, numbers=more)
    if options.quick:
        options.pending = min(options.pending, QUICK_PENDING)
    pace = Pace.of(options)
    refuse_stale_kernels()
    begin = time.monotonic()
    sections: dict[str, Callable[[argparse.Namespace, Pace], Result]] = {
        "transactions": transactions,
        "delayed": delayed.measure,
        "filters": filters.measure,
        "access": access.measure,
    }
    measured: Result = {}
    for section in options.only:
        measured |= sections[section](options, pace)
    checks = {name: measured.pop(name) for name in ("committed",) if name in measured}
    releases = {
        each: each if each == "orbitmq" else release_of(each, options.apache).version
        for each in options.server
    }
    say(table(measured, releases, GOALS))
    if options.quick:
        say("this was a quick run: its numbers mean nothing, and its verdicts neither")
    goals = [] if options.quick else verdicts(measured, GOALS)
    misses = [
        f"{each['workload']}: {each['measure']} {each['value']}, goal {each['goal']}"
        for each in goals
        if each["met"] is False
    ]
    summary = {
        "releases": releases,
        "pending": options.pending,
        "workloads": measured,
        **checks,
        "goals": goals,
        "misses": misses,
    }
    emit("messaging", options, summary | {"took_s": round(time.monotonic() - begin)})


if __name__ == "__main__":
    main()
