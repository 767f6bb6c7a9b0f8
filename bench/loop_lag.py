"""How long does one request keep a broker's loop, every code at its largest, by CPU time? Prints one JSON line; see README.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

from _harness import refuse_stale_kernels
from large_requests import GROUPS, TOPICS, ask, crowd, every_request, fill
from orbitmq.common import short_collections
from running_broker_room import broker as running_broker
from work_room import timed

GOAL_MS = 20


async def measure(folder: Path, pulls: int, rounds: int) -> dict[str, float]:
    """The longest callback of each request in milliseconds: of several rounds the median, for a machine that stalls is no long callback."""
    found: dict[str, list[float]] = {}
    async with running_broker(folder, enablePropertyFilter="true") as broker:
        await fill(broker)
        short_collections.begin()
        with timed() as work:
            for _ in range(rounds):
                for name, wanted in every_request().items():
                    await ask(broker, work, wanted)
                    found.setdefault(name, []).append(work.most / 1e6)
            for name, spent in (await crowd(broker, work, pulls)).items():
                found[name] = [spent / 1e6]
        short_collections.end()
    return {name: sorted(each)[len(each) // 2] for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: bench/loop_lag.py --rounds 5")
    parser.add_argument("--rounds", type=int, default=3, help="how often each request is sent (default: %(default)s)")
    parser.add_argument("--pulls", type=int, default=100_000, help="held pulls that are woken by one message (default: %(default)s)")
    options = parser.parse_args()
    refuse_stale_kernels()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(Path(folder), options.pulls, options.rounds))
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
