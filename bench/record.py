"""Measure how many records per second are written, checked and decoded, compiled and interpreted.
Prints one JSON line; see README.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import _modes
from orbitmq.message import hosts, properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord, encode, record_size

BODY_SIZES = (256, 1024)
BATCH = 64  # records per buffer, as in one iteration of the broker
HOST = hosts.pack("192.0.2.1", 10911)
PROPERTIES = properties.encode(
    {
        properties.UNIQUE_KEY: "C000020252055FFD2B274D39995B0000",
        properties.TAGS: "TagA",
        properties.KEYS: "order-1234567",
        properties.WAIT: "true",
        properties.CLUSTER: "DefaultCluster",
        properties.MSG_REGION: "DefaultRegion",
        properties.TRACE_ON: "true",
    }
)


def workloads(body_size: int) -> dict[str, Callable[[], None]]:
    """Return the measured functions; each processes `BATCH` records."""
    body = os.urandom(body_size)
    buffer = bytearray(BATCH * (body_size + 1024))
    cursor = RecordCursor()

    def write() -> None:
        at = 0
        for number in range(BATCH):
            message = MessageRecord(
                b"BenchmarkTest",
                body,
                born_host=HOST,
                born_time_ms=1,
                queue_id=3,
                properties=PROPERTIES,
            )
            at += encode(message, buffer, at, number, at, 2, HOST)

    write()
    end = BATCH * record_size(
        MessageRecord(
            b"BenchmarkTest", body, born_host=HOST, born_time_ms=1, properties=PROPERTIES
        ),
        HOST,
    )
    log = bytes(buffer[:end])

    def check(check_body: bool) -> None:
        at = 0
        while at < end:
            at += cursor.read(log, at, end, check_body)

    def dispatch() -> None:
        at = 0
        while at < end:
            at += cursor.read(log, at, end, False)
            cursor.topic()
            cursor.tags_code()
            cursor.property(properties.KEYS)
            cursor.property(properties.UNIQUE_KEY)

    def decode() -> None:
        at = 0
        while at < end:
            at += cursor.read(log, at, end)
            cursor.message()

    return {
        "write": write,
        "check": lambda: check(True),
        "check without CRC": lambda: check(False),
        "read what dispatch needs": dispatch,
        "decode": decode,
    }


def measure(seconds: float) -> dict[str, float]:
    """Return records per second of CPU time, by workload."""
    rates = {}
    for body_size in BODY_SIZES:
        for name, work in workloads(body_size).items():
            rounds, begin = 0, time.process_time()
            while (used := time.process_time() - begin) < seconds:
                work()
                rounds += 1
            rates[f"{name}, {body_size} B"] = rounds * BATCH / used
    return rates


if __name__ == "__main__":
    _modes.run(
        __file__,
        str(__doc__),
        lambda seconds: {"rates": measure(seconds)},
        lambda rates, _: {"records_per_cpu_s": _modes.rounded(rates)},
        seconds=0.3,
        quick_seconds=0.05,
    )
