"""Measure the speed of our client library next to Apache's C++ client (its wheel) and the Java
client. Prints one JSON line; see README.md.

All use one broker of ours. Sections: single, concurrent, batch, consume.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata

from _broker_room import QUEUES, Desk, send
from _client_goals import COST, RATE, table, verdicts
from _client_player import BODY, Order
from _client_room import CPP, JAVA, OURS, Client, clients, cluster
from _harness import (
    LOSSES,
    Pace,
    Result,
    busy_seconds,
    compare,
    cpu_seconds,
    emit,
    medians,
    parse_arguments,
    refuse_stale_kernels,
    rss_mb,
    say,
    take_turns,
)
from interop import apache
from orbitmq.version import __version__

SENT, BACKLOG = "ClientSends", "ClientBacklog"
CALLERS = 64
BATCH_COUNT, BATCH_CALLERS = 32, 8
MESSAGES_TO_CONSUME = 1_000_000
QUIET_WITHIN_S = 5.0
_KEYS = (RATE, COST, "failed", "rss_mb", "other_cpu")
_groups = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One workload and its contenders; the order has no duration yet."""

    name: str
    order: Order
    contenders: tuple[str, ...]


_SENDERS = ("orbitmq", "orbitmq-blocking", CPP, JAVA)
ROWS = {
    "single": Row(name="send, 1 caller", order=Order(topic=SENT, seconds=0), contenders=_SENDERS),
    "concurrent": Row(
        name=f"send, {CALLERS} callers",
        order=Order(topic=SENT, seconds=0, callers=CALLERS),
        contenders=_SENDERS,
    ),
    "batch": Row(
        name=f"batches of {BATCH_COUNT}, {BATCH_CALLERS} callers",
        order=Order(topic=SENT, seconds=0, callers=BATCH_CALLERS, batch=BATCH_COUNT),
        contenders=tuple(each for each in _SENDERS if each != CPP),
    ),
    "consume": Row(
        name=f"consume, {QUEUES} queues",
        order=Order(topic=BACKLOG, seconds=0, group="bench"),
        contenders=("orbitmq", "orbitmq-coroutine", CPP, JAVA),
    ),
}


def perform(client: Client, server: apache.Server, order: Order) -> Result:
    """Execute one order and return the client's report; the messages it sent must be in the
    broker's queues.
    """
    if not client.is_alive():
        client.start()
    with Desk(server) as desk:
        begin, ends = time.monotonic(), sum(desk.ends(order.topic))
        used_s, busy_s = cpu_seconds(client) + cpu_seconds(server), busy_seconds()
        report = client.obey(order)
        others_s = busy_seconds() - busy_s - (cpu_seconds(client) + cpu_seconds(server) - used_s)
        seconds = time.monotonic() - begin
        stored = sum(desk.ends(order.topic)) - ends
    if not report["messages"]:
        raise RuntimeError("the client got nothing done")
    if not order.group and stored < report["messages"]:
        raise RuntimeError(
            f"the client says that it sent {report['messages']} messages, but the broker stored"
            f" {stored}"
        )
    return {
        RATE: report["messages"] / report["seconds"],
        COST: report["cpu_seconds"] * 1e6 / report["messages"],
        "failed": report["failed"],
        "rss_mb": rss_mb(client),
        "other_cpu": max(0.0, others_s / seconds),
    }


def measure(
    row: Row, contenders: Mapping[str, Client], server: apache.Server, pace: Pace, messages: int
) -> Result:
    """Measure the contenders in turns, each warmed up before."""

    def turn(
        contender: str, seconds: float = pace.seconds, settle_s: float = pace.settle_s
    ) -> Result:
        asked = replace(row.order, seconds=seconds, settle_s=settle_s, messages=messages)
        if asked.group:
            asked = replace(
                asked, group=f"{asked.group}-{next(_groups)}"
            )  # a group that has consumed nothing
        return perform(contenders[contender], server, asked)

    for contender in contenders:
        say(f"{row.name}: warming {contender} up")
        try:
            turn(contender, pace.warm_up_s, 0.0)
        except LOSSES as problem:
            say(f"{row.name}: {contender} could not be warmed up: {problem}")
    reports = take_turns(row.name, contenders, pace.rounds, turn, quiet_within_s=QUIET_WITHIN_S)
    return compare(
        {contender: medians(of, pace.rounds, _KEYS) for contender, of in reports.items()}
    )


def main() -> None:
    options = parse_arguments(__doc__ or "", (*OURS, CPP, JAVA), tuple(ROWS))
    pace = Pace.of(options)
    refuse_stale_kernels()
    begin = time.monotonic()
    messages = MESSAGES_TO_CONSUME // (10 if options.quick else 1)
    measured: Result = {}
    with cluster((SENT, BACKLOG)) as (server, name_server):
        if "consume" in options.only:
            say(f"the broker gets {messages} messages to consume")
            send(server, messages, "-T", BACKLOG, "-q", str(QUEUES), "-s", str(len(BODY)))
        for section in options.only:
            row = ROWS[section]
            asked = [each for each in row.contenders if each in options.server]
            with clients(asked, name_server, options.apache) as contenders:
                measured[row.name] = {
                    "section": section,
                    **measure(row, contenders, server, pace, messages),
                }
    say(table(measured))
    if options.quick:
        say("this was a quick run: its numbers mean nothing, and its verdicts neither")
    goals = [] if options.quick else verdicts(measured)  # a second does not warm up a JVM
    releases = {"orbitmq": __version__, CPP: _wheel(), JAVA: options.apache}
    emit(
        "client",
        options,
        {
            "releases": releases,
            "workloads": measured,
            "goals": goals,
            "took_s": round(time.monotonic() - begin),
        },
    )


def _wheel() -> str | None:
    try:
        return metadata.version("rocketmq")
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
