"""How many messages a second does the commit log take, beside bare writes of the same bytes? Prints one JSON line; see README.md."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _harness import Pace, Result, busy_cores, emit, parse_arguments, refuse_stale_kernels, say
from orbitmq import kernels
from orbitmq.message import hosts, properties
from orbitmq.message.record_write import Message, record_size
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.file_queue import FileQueue
from orbitmq.store.queue_offsets import QueueOffsets

CONTENDERS = ("compiled", "interpreted")
BODY_SIZES = (256, 1024)
BATCHES = (1, 64)  # messages per commit
FILE_SIZE = 64 << 20  # begun anew when it is full, so that new pages of the file are part of the price on either side
QUEUES = 8
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


def messages(count: int, body_size: int) -> list[Message]:
    body = os.urandom(body_size)
    return [
        Message(b"BenchmarkTest", body, born_host=HOST, born_time_ms=1, queue_id=number % QUEUES, properties=PROPERTIES)
        for number in range(count)
    ]


def appends(folder: Path, count: int, body_size: int) -> Callable[[], None]:
    """Append `count` messages and commit them."""
    log = CommitLog(OsFileLayer(), StoreConfig(root=folder, commit_log_file_size=FILE_SIZE), HOST, QueueOffsets())
    batch = messages(count, body_size)
    room = FILE_SIZE - count * (body_size + 1024)

    def work() -> None:
        for message in batch:
            log.append(message, 2)
        log.commit()
        if log.end_offset > room:
            log.files.files.pop().delete()
            log.files.end_offset = log.files.flushed_offset = 0
            log.discard()

    return work


def bare_writes(folder: Path, count: int, body_size: int, writes: int) -> Callable[[], None]:
    """Write the bytes of `count` records by so many calls, and do nothing else."""
    layer = OsFileLayer()
    data = memoryview(os.urandom(sum(record_size(message, HOST) for message in messages(count, body_size))))
    parts = [data[len(data) * number // writes : len(data) * (number + 1) // writes] for number in range(writes)]
    files = FileQueue(layer, [folder / "bare"], FILE_SIZE)
    descriptor, end = files.roll(0).acquire(), 0

    def work() -> None:
        nonlocal descriptor, end
        for part in parts:
            os.pwrite(descriptor, part, end)
            end += len(part)
        if end + len(data) > FILE_SIZE:
            files.files[0].release()
            files.files.pop().delete()
            descriptor, end = files.roll(0).acquire(), 0

    return work


def measure(seconds: float) -> dict[str, float]:
    """Messages per second of CPU time, by workload."""
    rates = {}
    for body_size in BODY_SIZES:
        for count in BATCHES:
            with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=os.environ.get("ORBITMQ_BENCH_FOLDER")) as name:
                folder = Path(name)
                workloads = {"append": appends(folder, count, body_size), "bare": bare_writes(folder, count, body_size, 1)}
                if count > 1:
                    workloads["bare, a write per record"] = bare_writes(folder / "each", count, body_size, count)
                for what, work in workloads.items():
                    rounds, begin = 0, time.process_time()
                    while (used := time.process_time() - begin) < seconds:
                        work()
                        rounds += 1
                    rates[f"{what}, {count} x {body_size} B"] = rounds * count / used
    return rates


def ratios(rates: dict[str, float]) -> Result:
    """The rate of appends to that of bare writes."""
    return {
        f"{what}, {shape}": round(rates[f"append, {shape}"] / rate, 2)
        for name, rate in rates.items()
        for what, _, shape in [name.rpartition(", ")]
        if what != "append"
    }


def main() -> None:
    if MEASURE_ENV in os.environ:
        print(json.dumps({"mode": kernels.mode(), "rates": measure(float(os.environ[MEASURE_ENV]))}))
        return
    options = parse_arguments(__doc__, CONTENDERS)
    refuse_stale_kernels()
    pace = Pace.of(options)
    seconds = 0.1 if options.quick else 0.5
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
    emit(
        "store_append",
        options,
        {
            "messages_per_cpu_s": measured,
            "append/bare": {contender: ratios(rates) for contender, rates in measured.items()},
            "other_cpu": round(others, 2),
        },
    )


if __name__ == "__main__":
    main()
