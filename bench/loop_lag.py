"""Measure how long one request blocks a broker's loop, every code at its largest, by CPU time.
Prints one JSON line; see README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

from _harness import refuse_stale_kernels
from orbitmq.common import short_collections
from support.access.people import OPERATOR, USERS
from support.broker.large_requests import (
    GROUPS,
    KEYS,
    TOPICS,
    ask,
    client_of,
    crowd,
    every_request,
    fill,
    make_user,
)
from support.broker.running import broker as running_broker
from support.remoting.work_between_yields import timed

GOAL_MS = 20


async def measure(
    folder: Path, pulls: int, rounds: int, *, with_access_control: bool
) -> dict[str, float]:
    """The longest callback of each request in milliseconds: of several rounds the median, for a
    machine that stalls is no long callback.
    """
    found: dict[str, list[float]] = {}
    mark = " (access control)" if with_access_control else ""
    keys = {**KEYS, **(USERS if with_access_control else {})}
    async with running_broker(folder, **keys) as broker:
        async with client_of(broker, OPERATOR if with_access_control else None) as operator:
            await fill(operator)
        who = await make_user(broker) if with_access_control else None
        short_collections.begin()
        with timed() as work:
            for name, wanted in every_request().items():  # the last ones fill the tables
                for _ in range(rounds):
                    await ask(broker, work, wanted, who)
                    found.setdefault(name + mark, []).append(work.most / 1e6)
            if not with_access_control:
                for name, spent in (await crowd(broker, work, pulls)).items():
                    found[name] = [spent / 1e6]
        short_collections.end()
    return {name: sorted(each)[len(each) // 2] for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="example: bench/loop_lag.py --rounds 5"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="how often each request is sent (default: %(default)s)",
    )
    parser.add_argument(
        "--pulls",
        type=int,
        default=100_000,
        help="held pulls that are woken by one message (default: %(default)s)",
    )
    options = parser.parse_args()
    refuse_stale_kernels()
    found: dict[str, float] = {}
    for with_access_control in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            found |= asyncio.run(
                measure(
                    Path(folder),
                    options.pulls,
                    options.rounds,
                    with_access_control=with_access_control,
                )
            )
    longest = dict(sorted(found.items(), key=lambda each: -each[1])[:15])
    result = {
        "bench": "loop_lag",
        "topics": TOPICS,
        "groups": GROUPS,
        "requests": len(found),
        "longest_ms": {name: round(each, 1) for name, each in longest.items()},
        "goal_ms": GOAL_MS,
        "met": max(found.values()) <= GOAL_MS,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
