"""What the sections of `store.py` share: stores in folders that go away, messages as producers send them, CPU and wall time of a part.

Knows no section. Every number is a rate: so many messages, bytes or queues a second, by CPU time and by the clock on the wall.
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
from orbitmq.message.record_write import Message
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_layer import FileLayer, OsFileLayer
from orbitmq.store.message_store import MessageStore

HOST = hosts.pack("192.0.2.1", 10911)
QUEUES = 8  # of the one topic
TOPIC = "BenchmarkTest"
SLICES = 5  # how often the parts of a workload take turns in one process; medians of them
WALL = ", wall"

Rates = dict[str, float]


def message(number: int, body: bytes, topic: bytes = TOPIC.encode(), queue_id: int | None = None) -> Message:
    """A message with the properties that a producer and a broker give it; each has keys of its own."""
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
    return Message(topic, body, born_host=HOST, born_time_ms=1, queue_id=queue, properties=text)


def messages(count: int, body_size: int) -> list[Message]:
    body = os.urandom(body_size)
    return [message(number, body) for number in range(count)]


def folder() -> AbstractContextManager[str]:
    """A folder on the disk that is measured, removed in the end."""
    return tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=os.environ.get("ORBITMQ_BENCH_FOLDER"))


def new_store(root: Path, layer: FileLayer | None = None, *, file_size: int = 1 << 30) -> MessageStore:
    """The store of that folder, not opened."""
    return MessageStore(layer or OsFileLayer(), SystemClock(), StoreConfig(root=root, commit_log_file_size=file_size), HOST)


@contextmanager
def open_store(root: Path, layer: FileLayer | None = None, *, file_size: int = 1 << 30) -> Iterator[MessageStore]:
    store = new_store(root, layer, file_size=file_size)
    store.open()
    try:
        yield store
    finally:
        store.close()


@dataclass
class Stopwatch:
    """Adds up what a part of a workload takes, less what looking at the clock does."""

    count: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    _look_s: float = field(default_factory=lambda: _look_s())

    def time(self, count: int, work: Callable[[], object]) -> None:
        """Do it, as so many messages."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        self.cpu_s += time.process_time() - cpu - self._look_s
        self.wall_s += time.perf_counter() - wall - self._look_s
        self.count += count


def _look_s() -> float:
    """What one look at the process's clock takes: it is a system call."""
    looks = [time.process_time() for _ in range(1001)]
    return (looks[-1] - looks[0]) / 1000


def rates_of(shape: str, slices: list[dict[str, Stopwatch]]) -> Rates:
    """By part the median rate of the slices, by CPU time and by the wall's."""
    rates = {}
    for part in slices[0]:
        name = f"{part}, {shape}" if shape else part
        rates[name] = statistics.median(parts[part].count / parts[part].cpu_s for parts in slices)
        rates[name + WALL] = statistics.median(parts[part].count / parts[part].wall_s for parts in slices)
    return rates


def rss_mb() -> float:
    """The memory of this process, in millions of bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


class Unsynced(OsFileLayer):
    """Files that are made ready for a measurement, and need not survive a power cut."""

    def fdatasync(self, descriptor: int) -> None:
        pass

    def sync_dir(self, folder: Path) -> None:
        pass
