"""How many messages a second does an SQL92 expression decide on, how many expressions are read? Prints one JSON line; see README.md."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import _modes
from orbitmq.broker.filters.message_filters import ExpressionFilter
from orbitmq.message import hosts, properties
from orbitmq.message.record_write import Message, encode, record_size
from orbitmq.message.sql.expression import Expression, compiled

BODY_SIZE = 256
BATCH = 64  # records that a pull looks at
HOST = hosts.pack("192.0.2.1", 10911)
EXPRESSIONS = {
    "one number": "amount > 500",
    "one text": "region = 'north'",
    "three": "amount BETWEEN 100 AND 500 AND region IN ('north', 'east') OR TAGS = 'urgent'",
    "missing": "absent IS NOT NULL AND amount > 500",
    "cannot be compared": "region > 500",
}


def records() -> list[memoryview]:
    """Messages with ten properties each, as a pull finds them."""
    found = []
    for number in range(BATCH):
        names = {
            properties.UNIQUE_KEY: "C000020252055FFD2B274D39995B0000",
            properties.TAGS: "TagA",
            properties.KEYS: "order-1234567",
            properties.WAIT: "true",
            properties.CLUSTER: "DefaultCluster",
            properties.MSG_REGION: "DefaultRegion",
            properties.TRACE_ON: "true",
            "amount": str(number * 16),
            "region": ("north", "south", "east", "west")[number % 4],
            "shop": f"shop-{number}",
        }
        message = Message(b"BenchmarkTest", os.urandom(BODY_SIZE), born_host=HOST, born_time_ms=1, properties=properties.encode(names))
        buffer = bytearray(record_size(message, HOST))
        encode(message, buffer, 0, number, 0, 2, HOST)
        found.append(memoryview(bytes(buffer)))
    return found


def workloads() -> dict[str, Callable[[], None]]:
    """What is measured; each does it `BATCH` times."""
    batch = records()

    def decide(expression: str) -> Callable[[], None]:
        chosen = ExpressionFilter(compiled(expression))

        def work() -> None:
            for record in batch:
                chosen.matches_record(record)

        return work

    def read() -> None:
        for _ in range(BATCH):
            Expression(EXPRESSIONS["three"])

    return {**{f"decide, {name}": decide(expression) for name, expression in EXPRESSIONS.items()}, "read an expression": read}


def measure(seconds: float) -> dict[str, float]:
    """Per second of CPU time, by workload."""
    rates = {}
    for name, work in workloads().items():
        rounds, begin = 0, time.process_time()
        while (used := time.process_time() - begin) < seconds:
            work()
            rounds += 1
        rates[name] = rounds * BATCH / used
    return rates


if __name__ == "__main__":
    _modes.run(
        __file__,
        str(__doc__),
        lambda seconds: {"rates": measure(seconds)},
        lambda rates, _: {"per_cpu_s": _modes.rounded(rates)},
        seconds=0.3,
        quick_seconds=0.05,
    )
