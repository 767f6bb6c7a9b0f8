"""The reading sections of `store.py`: pulls from memory and from disk, recovery after a crash, the
start with many queues.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from _harness import Result
from _store_room import (
    QUEUES,
    SLICES,
    TOPIC,
    Rates,
    Stopwatch,
    Unsynced,
    folder,
    message,
    messages,
    new_store,
    open_store,
    rates_of,
    rss_mb,
)
from orbitmq import kernels
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reads import GetStatus
from orbitmq.store.types import QueueKey, QueueOffset

BODY_SIZES = (256, 1024)
PULL = 32  # messages requested per read
PULL_LOG_SIZE = 16 << 20
RECOVERY_FILE_SIZE = 16 << 20
RECOVERY_FILES = {
    "compiled": 16,
    "interpreted": 1,
}  # large enough that fixed costs do not dominate, small enough not to take minutes
BATCH = 64
STORE_TIME_MS = 1_700_000_000_000
QUEUE_COUNTS, QUICK_QUEUE_COUNTS = (10_000, 100_000), (1_000,)


def pulls(seconds: float) -> Rates:
    """Return messages per second read by pulls, from the page cache and from disk, next to bare
    reads of as many bytes of the log.
    """
    rates: Rates = {}
    for body_size in BODY_SIZES:
        with folder() as name, open_store(Path(name)) as store:
            size = _fill(store, PULL_LOG_SIZE, body_size)
            store.log.flush()
            store.queues.files.flush()
            slices = [_pull_slice(store, size, seconds / SLICES) for _ in range(SLICES)]
        rates |= rates_of(f"{body_size} B", slices)
    return rates


def _pull_slice(store: MessageStore, record_size: int, seconds: float) -> dict[str, Stopwatch]:
    """Pull all queues from their beginning, with the page cache empty at first and then full, until
    the time is over.
    """
    parts = {name: Stopwatch() for name in ("pull, cold", "pull", "read, cold", "read")}
    while parts["pull"].cpu_s + parts["pull, cold"].cpu_s < seconds:
        _drop_pages(store)
        parts["pull, cold"].time(*_pull_all(store))
        parts["pull"].time(*_pull_all(store))
        count, read = _read_all(store, record_size)
        _drop_pages(store)
        parts["read, cold"].time(count, read)
        parts["read"].time(count, read)
    return parts


def _pull_all(store: MessageStore) -> tuple[int, partial[None]]:
    queues = [QueueKey(TOPIC, number) for number in range(QUEUES)]

    def pull_all() -> None:
        for queue in queues:
            offset = QueueOffset(0)
            while (got := store.reads.get(queue, offset, count_max=PULL)).status is GetStatus.FOUND:
                offset = got.next_offset

    found = [store.queues.plain.find(*queue) for queue in queues]
    return sum(queue.max_offset for queue in found if queue is not None), partial(pull_all)


def _read_all(store: MessageStore, record_size: int) -> tuple[int, partial[None]]:
    """Read the log from beginning to end, in pieces as large as a pull's."""

    def read_all() -> None:
        for file in store.log.files.files:
            with file.path.open("rb", buffering=0) as source:
                end = min(file.size, store.log.end_offset - file.start)
                for at in range(0, end, PULL * record_size):
                    os.pread(source.fileno(), PULL * record_size, at)

    return store.log.end_offset // record_size, partial(read_all)


def _drop_pages(store: MessageStore) -> None:
    """Drop the content of all files from the page cache; a mapping would keep it."""
    for file in store.log.files.files:
        file.close()
    for path in store.config.root.rglob("*"):
        if path.is_file() and path.name != "lock":  # closing the lock file would release the lock
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def recovery(_seconds: float) -> Rates:
    """Return bytes of the log per second that a start after a crash scans, with queues and index
    present or missing, next to `cat` of the files.
    """
    rates: Rates = {}
    log_size = RECOVERY_FILE_SIZE * RECOVERY_FILES[kernels.mode()]
    for body_size in BODY_SIZES:
        slices = []
        with folder() as name:
            root = Path(name)
            with open_store(root, Unsynced(), file_size=RECOVERY_FILE_SIZE) as store:
                _fill(store, log_size, body_size)
            for _ in range(SLICES):
                parts = {
                    name: Stopwatch() for name in ("cat", "recovery", "recovery, all built again")
                }
                _cat(sorted((root / "commitlog").iterdir()), parts["cat"])
                _recover(root, parts["recovery"])
                for derived in ("consumequeue", "index"):
                    shutil.rmtree(root / derived)
                _recover(root, parts["recovery, all built again"])
                slices.append(parts)
        rates |= rates_of(f"bytes, {body_size} B", slices)
    return rates


def _recover(root: Path, watch: Stopwatch) -> None:
    """Open the store as after an unclean stop, with nothing known to be flushed; the files are in
    the page cache.
    """
    (root / "abort").write_text("1")
    (root / "checkpoint").unlink()
    store = new_store(root, Unsynced(), file_size=RECOVERY_FILE_SIZE)
    watch.time(sum(path.stat().st_size for path in (root / "commitlog").iterdir()), store.open)
    store.close()


def _cat(files: list[Path], watch: Stopwatch) -> None:
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    watch.wall_s += time.perf_counter() - begin
    watch.cpu_s += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    watch.count += sum(file.stat().st_size for file in files)


def _fill(store: MessageStore, size: int, body_size: int) -> int:
    """Store messages up to this size of the log, in whole files if it is a multiple; return the
    size of a record.
    """
    source, record = cycle(messages(1 << 14, body_size)), 0
    while store.log.end_offset < size - BATCH * record:
        for each in islice(source, BATCH):
            record = store.log.append(each, STORE_TIME_MS).size
        store.commit()
    return record


def make_many_queues(root: Path, counts: Sequence[int]) -> None:
    """Create stores with this many queues, each with one message, for `start` to open."""
    body = os.urandom(256)
    for count in counts:
        with open_store(root / str(count), Unsynced()) as store:
            for number in range(count):
                store.log.append(
                    message(number, body, f"topic-{number // QUEUES}".encode()), STORE_TIME_MS
                )
                if number % 1024 == 1023:
                    store.commit()
            store.commit()


def start(root: Path) -> tuple[Rates, Result]:
    """Return queues per second opened by the start of a store, with and without a first access to
    each; and the growth of the process in MB.
    """
    rates: Rates = {}
    grown_mb: Result = {}
    for count in sorted(int(store_root.name) for store_root in root.iterdir()):
        before_mb, parts = rss_mb(), {"start": Stopwatch(), "first look": Stopwatch()}
        store = new_store(root / str(count), Unsynced())
        parts["start"].time(count, store.open)
        started_mb = rss_mb() - before_mb

        def look(store: MessageStore = store) -> None:
            for key in list(store.queues.plain):
                store.queues.plain.find(*key)

        parts["first look"].time(count, look)
        grown_mb[str(count)] = {
            "start": round(started_mb, 1),
            "first look": round(rss_mb() - before_mb, 1),
        }
        store.close()
        rates |= rates_of(f"{count} queues", [parts])
    return rates, grown_mb
