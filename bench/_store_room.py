"""Shared code of the sections of `store.py`: temporary stores, messages as producers send them, CPU
and wall time of a part.

Knows no section. Every number is a rate: messages, bytes or queues per second, by CPU time and by
wall time.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orbitmq.common.clock import SystemClock
from orbitmq.message import hosts, properties
from orbitmq.message.record_write import MessageRecord
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_layer import FileLayer, OsFileLayer
from orbitmq.store.message_store import MessageStore

HOST = hosts.pack("192.0.2.1", 10911)
QUEUES = 8  # of the single topic
TOPIC = "BenchmarkTest"
SLICES = 5  # how often the parts of a workload alternate in one process; medians are of these
WALL = ", wall"

Rates = dict[str, float]


def message(
    number: int, body: bytes, topic: bytes = TOPIC.encode(), queue_id: int | None = None
) -> MessageRecord:
    """Return a message with the properties that a producer and a broker add; each has its
    own keys.
    """
    text = properties.encode(
        {
            properties.UNIQUE_KEY: f"C000020252055FFD2B274D39{number:08X}",
            properties.TAGS: "TagA",
            properties.KEYS: f"order-{number:07}",
            properties.WAIT: "true",
            properties.CLUSTER: "DefaultCluster",
            properties.MSG_REGION: "DefaultRegion",
            properties.TRACE_ON: "true",
        }
    )
    queue = number % QUEUES if queue_id is None else queue_id
    return MessageRecord(
        topic, body, born_host=HOST, born_time_ms=1, queue_id=queue, properties=text
    )


def messages(count: int, body_size: int) -> list[MessageRecord]:
    body = os.urandom(body_size)
    return [message(number, body) for number in range(count)]


def folder() -> AbstractContextManager[str]:
    """Yield a temporary folder on the measured disk."""
    return tempfile.TemporaryDirectory(
        prefix="orbitmq-bench-", dir=os.environ.get("ORBITMQ_BENCH_FOLDER")
    )


def new_store(
    root: Path, layer: FileLayer | None = None, *, file_size: int = 1 << 30
) -> MessageStore:
    """Return the store of this folder, not opened."""
    return MessageStore(
        layer or OsFileLayer(),
        SystemClock(),
        StoreConfig(root=root, commit_log_file_size=file_size),
        HOST,
    )


@contextmanager
def open_store(
    root: Path, layer: FileLayer | None = None, *, file_size: int = 1 << 30
) -> Iterator[MessageStore]:
    store = new_store(root, layer, file_size=file_size)
    store.open()
    try:
        yield store
    finally:
        store.close()


@dataclass
class Stopwatch:
    """Accumulates the time of a part of a workload, minus the cost of reading the clock."""

    count: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    _look_s: float = field(default_factory=lambda: _look_s())

    def time(self, count: int, work: Callable[[], object]) -> None:
        """Run and time it, as this many messages."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        self.cpu_s += time.process_time() - cpu - self._look_s
        self.wall_s += time.perf_counter() - wall - self._look_s
        self.count += count


def _look_s() -> float:
    """Return the cost of reading the process's clock once: it is a system call."""
    looks = [time.process_time() for _ in range(1001)]
    return (looks[-1] - looks[0]) / 1000


def rates_of(shape: str, slices: list[dict[str, Stopwatch]]) -> Rates:
    """Return for each part the median rate of the slices, by CPU time and by wall time."""
    rates = {}
    for part in slices[0]:
        name = f"{part}, {shape}" if shape else part
        rates[name] = statistics.median(parts[part].count / parts[part].cpu_s for parts in slices)
        rates[name + WALL] = statistics.median(
            parts[part].count / parts[part].wall_s for parts in slices
        )
    return rates


def rss_mb() -> float:
    """Return the resident memory of this process, in millions of bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


class Unsynced(OsFileLayer):
    """Files prepared for a measurement, which need not survive a power loss."""

    def fdatasync(self, descriptor: int) -> None:
        pass

    def sync_dir(self, folder: Path) -> None:
        pass
