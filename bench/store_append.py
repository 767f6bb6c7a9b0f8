"""How many messages a second does the commit log take, beside bare writes of the same bytes? Prints one JSON line; see README.md."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import _modes
from _harness import Result
from orbitmq.message import hosts, properties
from orbitmq.message.record_write import Message, record_size
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.file_queue import FileQueue
from orbitmq.store.queue_offsets import QueueOffsets

BODY_SIZES = (256, 1024)
BATCHES = (1, 64)  # messages per commit
FILE_SIZE = 64 << 20  # begun anew when it is full, so that new pages of the file are part of the price on either side
QUEUES = 8
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


if __name__ == "__main__":
    _modes.run(
        __file__,
        str(__doc__),
        lambda seconds: {"rates": measure(seconds)},
        lambda rates, _: {
            "messages_per_cpu_s": _modes.rounded(rates),
            "append/bare": {contender: ratios(of_mode) for contender, of_mode in rates.items()},
        },
        seconds=0.5,
        quick_seconds=0.1,
    )
