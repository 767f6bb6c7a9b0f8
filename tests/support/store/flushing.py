"""What the tests of flushing share: log, queues, index and checkpoint on a disk that fails, and
flushers that sync when they are told.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from orbitmq.message import properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.flush.coordinator import Flushing, Job, MakeFlusher, Reports
from orbitmq.store.flush.fsync_thread import Flusher, FlushReport
from orbitmq.store.flush.group_commit import Outcome
from orbitmq.store.index import Index
from orbitmq.store.index_file import IndexShape
from orbitmq.store.queue_offsets import QueueOffsets
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, StoreTimeMs
from orbitmq.testing.faulty_disk import FaultyDisk
from orbitmq.testing.manual_clock import ManualClock
from support.common.process_files import ProcessFiles
from support.store.indexes import UnsyncedLayer
from support.store.logs import FILE_SIZE, HOST, LIMITS, message

TOPIC = "Topic"
SHAPE = IndexShape(5, 8)
QUEUE_FILE_SIZE = 100


class Stored(NamedTuple):
    """A message that was put, and where."""

    offset: int
    end: int
    queue_id: int
    queue_offset: int
    store_time_ms: int
    content: bytes


class HandFlusher(Flusher[Job]):
    """Syncs when `work` is called, on the caller's thread; or at once, while it is told to."""

    def __init__(self, layer: FileLayer, notify: Callable[[Reports], None], name: str) -> None:
        super().__init__(layer, notify, name)
        self.waiting: list[Job] = []
        self.is_prompt = False

    def start(self) -> None:
        pass

    def submit(self, job: Job) -> None:
        self.waiting.append(job)
        if self.is_prompt:
            self.work()

    def stop(self, within_s: float = 30.0) -> None:
        self.work()

    def work(self) -> None:
        """Sync all that waits."""
        jobs, self.waiting = self.waiting, []
        reports: list[FlushReport[Job]] = self._sync(jobs)
        self._report(reports)


class FlushRoom:
    """One small store below `folder`, flushed by hand unless told otherwise."""

    def __init__(
        self,
        folder: Path,
        mode: FlushMode = FlushMode.ASYNC,
        *,
        make_flusher: MakeFlusher | None = None,
        notify: Callable[[], None] | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.clock = ManualClock()
        self.disk = FaultyDisk(
            UnsyncedLayer(), folder, seed=seed
        )  # it knows what was synced, the real disk need not
        self.hands: list[HandFlusher] = []
        self.outcomes: list[
            tuple[int, Outcome]
        ] = []  # of those who waited, in the order in which they were told
        self.stored: list[Stored] = []
        self.dispatched = LogOffset(0), StoreTimeMs(0)
        config = StoreConfig(
            root=folder,
            commit_log_file_size=FILE_SIZE,
            limits=LIMITS,
            flush_mode=mode,
            index_shape=SHAPE,
        )
        config = replace(config, **settings)
        self.log = CommitLog(self.disk, config, HOST, QueueOffsets())
        self.queues = Queues(self.disk, folder, file_size=QUEUE_FILE_SIZE)
        self.index = Index(self.disk, folder / "index", self.clock, SHAPE)
        self.checkpoint = Checkpoint(self.disk, folder / "checkpoint")
        self.flushing = Flushing(
            self.disk,
            config,
            self.log,
            self.queues,
            self.index,
            self.checkpoint,
            lambda: self.dispatched,
            self.clock.monotonic_ms,
            notify,
            make_flusher=make_flusher or self._make_hand,
        )

    def open(self) -> FlushRoom:
        """Begin, with an empty store."""
        self.log.load()
        self.queues.load()
        self.checkpoint.load()
        self.index.load(None)
        self.log.resume(LogOffset(0), StoreTimeMs(0))
        self.flushing.start()
        return self

    def append(self, body: bytes = b"hello", queue_id: int = 0) -> Stored:
        """Put a message into the log, and write it."""
        number = len(self.stored)
        keys = properties.encode({properties.KEYS: f"key{number}"})
        appended = self.log.append(
            message(body, TOPIC.encode(), queue_id=queue_id, properties=keys), self.clock.now_ms()
        )
        self.log.commit()
        content = self.log.read(appended.offset, appended.size)
        assert content is not None
        self.stored.append(
            Stored(
                appended.offset,
                appended.offset + appended.size,
                queue_id,
                appended.queue_offset,
                appended.store_time_ms,
                bytes(content),
            )
        )
        return self.stored[-1]

    def dispatch(self) -> None:
        """Write the entries of what is in the log to queues and index."""
        record = RecordCursor()
        for stored in self.stored:
            if stored.offset >= self.dispatched[0]:
                queue = self.queues.plain.obtain(TOPIC, stored.queue_id)
                queue.put(stored.offset, len(stored.content), 0, stored.queue_offset)
                queue.commit()
                assert record.read(stored.content, 0, len(stored.content)) > 0
                self.index.put(record)
                self.index.commit()
                self.dispatched = LogOffset(stored.end), StoreTimeMs(stored.store_time_ms)

    def put(self, body: bytes = b"hello", queue_id: int = 0) -> Stored:
        """All that is done for a message, but waiting for it."""
        stored = self.append(body, queue_id)
        self.dispatch()
        self.flushing.written()
        return stored

    def wait_for(self, stored: Stored) -> None:
        """Write down what becomes of a message, as the number that it has."""
        number = self.stored.index(stored)
        self.flushing.when_durable(
            LogOffset(stored.end), lambda outcome: self.outcomes.append((number, outcome))
        )

    def wait_until(self, moment_ms: int) -> None:
        """Let time pass, and do then what is due."""
        self.clock.advance_ms(moment_ms - self.clock.monotonic_ms())
        self.flushing.tick()

    def work(self) -> None:
        """Sync what was handed in, and take the reports, until nothing waits."""
        while any(hand.waiting for hand in self.hands):
            for hand in self.hands:
                hand.work()
            self.flushing.tick()

    def rest(self) -> None:
        """Let the worker finish what it has."""
        self.flushing.run_in_worker(lambda: None).result(10)

    @contextmanager
    def prompt(self) -> Iterator[None]:
        """Sync everything as it is handed in, as `flush` and `stop` need it, what waits already
        included.
        """
        for hand in self.hands:
            hand.is_prompt = True
            hand.work()
        try:
            yield
        finally:
            for hand in self.hands:
                hand.is_prompt = False

    def flush(self) -> None:
        with self.prompt():
            self.flushing.flush()

    def stop(self) -> None:
        """Stop flushing, and close what is left open."""
        with self.prompt():
            self.flushing.stop()
        self.checkpoint.close()
        self.queues.close()
        self.log.close()

    def saved(self, folder: Path | None = None) -> Checkpoint:
        """What the checkpoint's file says, here or in a folder that a power cut left."""
        checkpoint = Checkpoint(ProcessFiles(), (folder or self.folder) / "checkpoint")
        checkpoint.load()
        checkpoint.close()
        return checkpoint

    def _make_hand(
        self, layer: FileLayer, notify: Callable[[Reports], None], name: str
    ) -> Flusher[Job]:
        self.hands.append(HandFlusher(layer, notify, name))
        return self.hands[-1]


def syncs(room: FlushRoom) -> int:
    """How often the disk was asked to sync."""
    return room.disk.calls["fdatasync"]


def fail_next_sync(room: FlushRoom, kind: type) -> None:
    """Let the sync of the next job of that kind fail, which waits already."""
    [hand] = [hand for hand in room.hands if any(isinstance(job, kind) for job in hand.waiting)]
    before = 0
    for job in hand.waiting:
        if isinstance(job, kind):
            break
        before += len(job.descriptors)
    room.disk.fail("fdatasync", errno.EIO, after=before)
    hand.work()
    room.disk.heal()
    room.flushing.tick()


def fill_index(room: FlushRoom) -> int:
    """Fill index files, one at least; the time of the last entry of the last full one."""
    while len(room.index.files) < 3:
        room.clock.advance_ms(10)
        room.put()
    return room.index.files[1].header.end_time_ms
