"""Scheduled delivery: the send rate while a million messages are pending, the delivery precision,
and the cost of a start with them.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

from _broker_room import QUEUES, Desk, broker, first_send
from _harness import (
    LOAD_KEYS,
    LOSSES,
    Pace,
    Result,
    Workload,
    anon_mb,
    compare,
    contest,
    rss_mb,
    running,
    say,
    start_and_time,
    stopped,
)
from _messaging_filters import send
from interop import apache
from support.common.waiting import wait_until

TOPIC = "BenchmarkTest"
FAR_MS = "3600000-7200000"  # due time of the pending messages: not in this run
NEAR_MS = "2000-5000"
RATE = 1000  # messages per second that come due
TAKEN_IN_WITHIN_S = 900.0
IDLE_S = 3.0  # after the first message, before memory is measured
_E2E = ("-m", "e2e", "-T", TOPIC, "-q", str(QUEUES), "-r", str(RATE))
_SENDS = ("-m", "send", "-T", TOPIC, "-q", str(QUEUES))
_SETTINGS = {"timerWheelEnable": "true", "timerMaxDelaySec": 86_400}


def measure(options: argparse.Namespace, pace: Pace) -> Result:
    """Measure everything while `options.pending` timer messages are pending."""
    measured: Result = {}
    timed = ("-D", FAR_MS)
    sends = [
        Workload(name=name, arguments=(*_SENDS, *more), connections=c, window=w, answer_code=0)
        for name, c, w, more in (
            ("timed sends 64x1", 64, 1, timed),
            ("timed sends 1x64", 1, 64, timed),
            ("level sends 1x64", 1, 64, ("-i", "DELAY=18")),
        )
    ]
    arrivals = [
        Workload(
            name=name,
            arguments=(*_E2E, *more),
            connections=1,
            window=5 * RATE,
            answer_code=0,
            settle_s=settle_s,
        )
        for name, settle_s, more in (
            (f"timed {RATE}/s", 6.0, ("-D", NEAR_MS)),
            (f"level {RATE}/s", 2.0, ("-i", "DELAY=1", "-e", "1000")),
        )
    ]
    with running(
        partial(broker, apache_version=options.apache, settings=_SETTINGS), options.server
    ) as servers:
        filled = {}
        for contender, server in servers.items():
            with stopped([rival for rival in servers.values() if rival is not server]):
                filled[contender] = _fill(contender, server, options.pending)
        measured["fill"] = {**filled, "noisy": False}
        keys = (*LOAD_KEYS, "early", "off_p50_us", "off_p99_us")
        measured |= contest(servers, arrivals, pace, quiet_within_s=3.0, keys=keys)
        measured |= contest(servers, sends, pace, quiet_within_s=3.0)
        restarted = {
            contender: found
            for contender, server in servers.items()
            if (found := _restart(contender, server)) is not None
        }
        measured["restart"] = compare(restarted)
    return measured


def _fill(contender: str, server: apache.Server, pending: int) -> Result:
    """Put this many messages into the wheel; return how long it took, and the memory afterwards."""
    say(f"delayed: {contender} gets {pending} messages that wait")
    report = send(server, *_SENDS, "-s", "256", "-D", FAR_MS, "-N", str(pending))
    begin = time.monotonic()
    with Desk(server) as desk:
        wait_until(
            lambda: desk.timer_holds(pending),
            f"{pending} messages in the wheel",
            seconds=TAKEN_IN_WITHIN_S,
        )
    found = {
        "filled_per_s": report["messages_per_s"],
        "taken_in_s": round(time.monotonic() - begin, 1),
        **_memory(server, "rss_mb"),
    }
    say(f"delayed: {contender} {found}")
    return found


def _memory(server: apache.Server, name: str) -> Result:
    return {name: round(rss_mb(server), 1), "anon_mb": round(anon_mb(server), 1)}


def _restart(contender: str, server: apache.Server) -> Result | None:
    """Restart it on its store; return the time until it accepts a message, and its memory then."""
    server.stop()
    try:
        taken_s = start_and_time(server, request=first_send())
        time.sleep(IDLE_S)
        with Desk(server) as desk:
            found = {
                "start_s": round(taken_s, 2),
                **_memory(server, "idle_rss_mb"),
                "waiting": desk.timer_count(),
            }
    except LOSSES as problem:
        say(f"restart: {contender} is lost: {problem}")
        return None
    say(f"restart: {contender} {found}")
    return found
