"""The writing sections of `store.py`: appends and dispatch in one run, interleaved with bare writes
of the same bytes; sync flush.
"""

from __future__ import annotations

import os
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from _store_room import SLICES, Rates, Stopwatch, folder, messages, open_store, rates_of
from orbitmq.message.record_write import MessageRecord
from orbitmq.store import mapped_file
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset

BODY_SIZES = (256, 1024)
BATCHES = (1, 64)  # messages per commit
DIFFERENT = 1 << 14  # messages with distinct keys
LOG_SIZE_MAX = 64 << 20  # per slice: new pages of the files are part of the cost, on either side
STORE_TIME_MS = 1_700_000_000_000


def append_and_dispatch(seconds: float) -> Rates:
    """Return messages per second appended to the log, dispatched to queues and index, and as bare
    writes, by batch and body size.
    """
    rates: Rates = {}
    for body_size in BODY_SIZES:
        different = messages(DIFFERENT, body_size)
        for count in BATCHES:
            slices = [_append_slice(seconds / SLICES, count, different) for _ in range(SLICES)]
            rates |= rates_of(f"{count} x {body_size} B", slices)
    return rates


def sync_flush(seconds: float) -> Rates:
    """Return messages per second that are flushed before the next batch begins, next to bare writes
    and syncs; only wall time is meaningful.
    """
    rates: Rates = {}
    different = messages(1024, BODY_SIZES[0])
    for count in BATCHES:
        rates |= rates_of(
            f"{count} x {BODY_SIZES[0]} B",
            [_sync_slice(seconds / SLICES, count, different) for _ in range(SLICES)],
        )
    return rates


def _append_slice(
    seconds: float, count: int, different: list[MessageRecord]
) -> dict[str, Stopwatch]:
    """Append batches to a new store and a new file, alternately."""
    parts = {
        name: Stopwatch() for name in ("append", "dispatch", "bare", "bare, a write per record")
    }
    with folder() as name, open_store(Path(name)) as store, _BareFile(Path(name)) as bare:
        source = cycle(different)
        while parts["append"].cpu_s < seconds and store.log.end_offset < LOG_SIZE_MAX:
            begin = store.log.end_offset
            parts["append"].time(count, partial(_append, store, list(islice(source, count))))
            parts["dispatch"].time(count, store.dispatcher.advance)
            written = _written(store, begin)
            parts["bare"].time(count, partial(bare.write, written, 1))
            parts["bare, a write per record"].time(count, partial(bare.write, written, count))
    return parts


def _sync_slice(seconds: float, count: int, different: list[MessageRecord]) -> dict[str, Stopwatch]:
    parts = {name: Stopwatch() for name in ("append and sync", "bare and sync")}
    with folder() as name, open_store(Path(name)) as store, _BareFile(Path(name)) as bare:
        source = cycle(different)
        while parts["append and sync"].wall_s < seconds:
            begin = store.log.end_offset
            parts["append and sync"].time(
                count, partial(_append, store, list(islice(source, count)), sync=True)
            )
            parts["bare and sync"].time(
                count, partial(bare.write, _written(store, begin), 1, sync=True)
            )
    return parts


def _append(store: MessageStore, batch: list[MessageRecord], *, sync: bool = False) -> None:
    log = store.log
    for message in batch:
        log.append(message, STORE_TIME_MS)
    log.commit()
    if sync:
        log.flush()


def _written(store: MessageStore, begin: LogOffset) -> memoryview:
    """Return a copy of the bytes written to the log since then."""
    view = store.log.read(begin, store.log.end_offset - begin)
    assert view is not None, "what was committed can be read"
    return memoryview(bytes(view))


class _BareFile:
    """A file like those of the log, written by `pwrite` only."""

    def __init__(self, root: Path) -> None:
        self._path = root / "bare"

    def __enter__(self) -> _BareFile:
        mapped_file.create(OsFileLayer(), self._path, 0, 1 << 30)
        self._descriptor, self._end = os.open(self._path, os.O_RDWR), 0
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def write(self, data: memoryview, writes: int, *, sync: bool = False) -> None:
        """Write the bytes by this many calls."""
        descriptor, end, step = self._descriptor, self._end, -(-len(data) // writes)
        for begin in range(0, len(data), step):
            os.pwrite(descriptor, data[begin : begin + step], end + begin)
        self._end = end + len(data)
        if sync:
            os.fdatasync(descriptor)
