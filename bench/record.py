"""How many records a second are written, checked and decoded, compiled beside interpreted? Prints one JSON line; see README.md."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from _harness import Pace, Result, busy_cores, emit, parse_arguments, refuse_stale_kernels, say
from orbitmq import kernels
from orbitmq.message import hosts, properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import Message, encode, record_size

CONTENDERS = ("compiled", "interpreted")
BODY_SIZES = (256, 1024)
BATCH = 64  # records in one buffer, as a turn of the broker may bring them
MEASURE_ENV = "ORBITMQ_BENCH_SECONDS"  # set in the processes that measure
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
    """What is measured; each does it to `BATCH` records."""
    body = os.urandom(body_size)
    buffer = bytearray(BATCH * (body_size + 1024))
    cursor = RecordCursor()

    def write() -> None:
        at = 0
        for number in range(BATCH):
            message = Message(b"BenchmarkTest", body, born_host=HOST, born_time_ms=1, queue_id=3, properties=PROPERTIES)
            at += encode(message, buffer, at, number, at, 2, HOST)

    write()
    end = BATCH * record_size(Message(b"BenchmarkTest", body, born_host=HOST, born_time_ms=1, properties=PROPERTIES), HOST)
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
    """Records per second of CPU time, by workload."""
    rates = {}
    for body_size in BODY_SIZES:
        for name, work in workloads(body_size).items():
            rounds, begin = 0, time.process_time()
            while (used := time.process_time() - begin) < seconds:
                work()
                rounds += 1
            rates[f"{name}, {body_size} B"] = rounds * BATCH / used
    return rates


def main() -> None:
    if MEASURE_ENV in os.environ:
        print(json.dumps({"mode": kernels.mode(), "rates": measure(float(os.environ[MEASURE_ENV]))}))
        return
    options = parse_arguments(__doc__, CONTENDERS)
    refuse_stale_kernels()
    pace = Pace.of(options)
    seconds = 0.05 if options.quick else 0.3
    rounds: dict[str, list[dict[str, float]]] = {contender: [] for contender in options.server}
    others = busy_cores()
    for number in range(pace.rounds):
        for contender in options.server:
            environment = os.environ | {MEASURE_ENV: str(seconds), "ORBITMQ_PURE": "1" if contender == "interpreted" else "0"}
            run = subprocess.run([sys.executable, __file__], env=environment, stdout=subprocess.PIPE, text=True, check=True)
            report = json.loads(run.stdout)
            if report["mode"] != contender:
                raise RuntimeError(f"the {contender} process ran {report['mode']}")
            rounds[contender].append(report["rates"])
            say(f"{number + 1}/{pace.rounds} {contender} {' '.join(f'{name}: {rate:.0f}/s;' for name, rate in report['rates'].items())}")
    measured: Result = {
        contender: {name: round(statistics.median(each[name] for each in reports)) for name in reports[0]}
        for contender, reports in rounds.items()
    }
    emit("record", options, {"records_per_cpu_s": measured, "other_cpu": round(others, 2)})


if __name__ == "__main__":
    main()
