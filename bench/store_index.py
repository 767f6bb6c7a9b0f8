"""How many records a second go to queues and index, and how fast do many queues open? Prints one JSON line; see README.md."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import _modes
from _harness import Result
from orbitmq.common.clock import SystemClock
from orbitmq.message import hosts, properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import Message, encode
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.index import Index
from orbitmq.store.index_file import IndexShape
from orbitmq.store.queues import Queues

BATCH = 64  # records between two commits, as a turn of the broker may bring them
QUEUES = 8  # that a batch is spread over
ROUNDS = 512  # batches of the log
SHAPE = IndexShape(1_000_000, 4_000_000)
IDLE_QUEUES = 10_000
HOST = hosts.pack("192.0.2.1", 10911)


def make_log(tags: str | None) -> tuple[bytearray, int]:
    """Records of different keys, one after the other, and where the last ends."""
    log, at = bytearray(ROUNDS * BATCH * 1024), 0
    for number in range(ROUNDS * BATCH):
        names = {properties.UNIQUE_KEY: f"C000020252055FFD2B274D39{number:08X}", properties.KEYS: f"order-{number}", properties.TAGS: tags}
        text = properties.encode({**names, properties.WAIT: "true", properties.CLUSTER: "DefaultCluster", properties.TRACE_ON: "true"})
        message = Message(b"BenchmarkTest", bytes(256), born_host=HOST, born_time_ms=1, queue_id=number % QUEUES, properties=text)
        at += encode(message, log, at, number // QUEUES, at, 1_700_000_000_000, HOST)
    return log, at


def dispatch(log: bytearray, log_end: int, root: Path, with_index: bool) -> float:
    """Dispatch all records of the log into a new store; the CPU time that it took, system included."""
    queues = Queues(OsFileLayer(), root)
    index = Index(OsFileLayer(), root / "index", SystemClock(), SHAPE) if with_index else None
    cursor, at = RecordCursor(), 0
    begin = time.process_time()
    while at < log_end:
        touched: dict[int, ConsumeQueue] = {}
        for _ in range(BATCH):
            size = cursor.read(log, at, log_end, False)
            queue = queues.plain.obtain(cursor.topic().decode(), cursor.queue_id)
            queue.put(cursor.log_offset, size, cursor.tags_code(), cursor.queue_offset)
            touched[cursor.queue_id] = queue
            if index is not None:
                index.put(cursor)
            at += size
        for queue in touched.values():
            queue.commit()
        if index is not None:
            index.commit()
    used = time.process_time() - begin
    queues.close()
    if index is not None:
        index.close()
    return used


def rate(tags: str | None, with_index: bool, seconds: float) -> float:
    """Records per second of CPU time, the best of as many runs as the seconds allow: whatever else runs only makes them slower."""
    log, log_end = make_log(tags)
    used_s: list[float] = []
    while sum(used_s) < seconds:
        with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as folder:
            used_s.append(dispatch(log, log_end, Path(folder), with_index))
    return ROUNDS * BATCH / min(used_s)


def rss_mb() -> float:
    """The memory of this process, in millions of bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def open_many(root: Path) -> dict[str, float]:
    """Open a store of many queues, each of one short file, and then use one."""
    queues = Queues(OsFileLayer(), root)
    for number in range(IDLE_QUEUES):
        queue = queues.plain.obtain(f"topic-{number // 8}", number % 8)
        queue.put(number * 100, 100, 0, 0)
        queue.commit()
    queues.close()
    before_mb = rss_mb()
    begin = time.perf_counter()
    queues = Queues(OsFileLayer(), root)
    queues.load()
    loaded_s = time.perf_counter() - begin
    for key in queues.plain:
        queues.plain.find(*key)
    all_s = time.perf_counter() - begin
    grown_mb = rss_mb() - before_mb
    assert sum(1 for _ in queues.plain.opened()) == IDLE_QUEUES
    queues.close()
    return {"load_s": round(loaded_s, 3), "all_used_s": round(all_s, 3), "grown_mb": round(grown_mb, 1)}


def measure(seconds: float) -> Result:
    """What one process finds out."""
    rates = {
        "queues": rate(None, False, seconds),
        "queues, 2 keys": rate(None, True, seconds),
        "queues, 2 keys, tags": rate("TagA", True, seconds),
    }
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as folder:
        return {"rates": rates, "open": open_many(Path(folder))}


if __name__ == "__main__":
    _modes.run(
        __file__,
        str(__doc__),
        measure,
        lambda rates, last: {
            "records_per_cpu_s": _modes.rounded(rates),
            f"open_{IDLE_QUEUES}_queues": {contender: found["open"] for contender, found in last.items()},
        },
        seconds=1.0,
        quick_seconds=0.1,
    )
