"""What the tests of the retention share: a small store of log, queues and index, whose time, disk
and worker are in the test's hands.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orbitmq.message import properties
from orbitmq.message.record import RecordLimits
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import ENTRY_SIZE
from orbitmq.store.index import Index
from orbitmq.store.index_file import IndexShape
from orbitmq.store.log_batch import Appended
from orbitmq.store.quarantine import Quarantine
from orbitmq.store.queue_offsets import QueueOffsets
from orbitmq.store.queue_retention import RetentionRules
from orbitmq.store.queues import Queues
from orbitmq.store.retention import Retention
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs
from orbitmq.testing.faulty_disk import FaultyDisk
from orbitmq.testing.manual_clock import ManualClock
from support.store.indexes import UnsyncedLayer
from support.store.logs import HOST, NOW_MS, contents, message

LOG_FILE_SIZE = 1024
PER_LOG_FILE = 3  # messages with a body of this size
BODY = b"x" * 200
PER_QUEUE_FILE = 4
HOUR_MS = 3_600_000
NEVER = (99,)  # hours of deletion that do not come


class ClockedLayer(UnsyncedLayer):
    """Real files, last written when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.written_ms: dict[str, int] = {}  # by name

    def modified_ms(self, path: Path) -> int:
        super().modified_ms(path)  # it has to be there
        return self.written_ms[path.name]


class SmallStore:
    """Three messages fill a file of the log, four a file of a queue; nothing is flushed or ticked
    by itself.
    """

    def __init__(self, root: Path, clock: ManualClock | None = None, **settings: Any) -> None:
        self.clock = clock or ManualClock(NOW_MS)
        self.layer = ClockedLayer()
        self.disk = FaultyDisk(self.layer, root)
        self.config = replace(
            StoreConfig(
                root=root,
                commit_log_file_size=LOG_FILE_SIZE,
                limits=RecordLimits(
                    body_size_max=LOG_FILE_SIZE, around_body_size_max=LOG_FILE_SIZE
                ),
                queue_file_size=PER_QUEUE_FILE * ENTRY_SIZE,
                index_shape=IndexShape(slots=3, entries=4),
                delete_hours=NEVER,
            ),
            **settings,
        )
        self.fill_disk(0.5)
        self.reserve: dict[str, int] = {}
        self.consumed: dict[QueueKey, int] = {}
        self.worker: Any = None
        self.open()

    def open(self) -> None:
        """Load what is there, as after a start."""
        self.quarantine = Quarantine()
        self.log = CommitLog(self.disk, self.config, HOST, QueueOffsets())
        self.log.load()
        scan, store_time = contents(self.log, self.log.min_offset)
        self.log.resume(LogOffset(scan.offset), StoreTimeMs(store_time))
        self.queues = Queues(self.disk, self.config.root, file_size=self.config.queue_file_size)
        self.queues.load()
        self.queues.bound(self.log.min_offset, self.log.end_offset)
        for key, queue in self.queues.plain.open_all():
            self.log.offsets.restore(key, queue.max_offset)
        self.index = Index(
            self.disk, self.config.root / "index", self.clock, self.config.index_shape
        )
        self.index.load(None)
        self.retention = Retention(
            self.disk,
            self.config,
            self.log,
            self.queues,
            self.index,
            self.quarantine,
            rules=RetentionRules(
                is_system_topic=lambda topic: topic.startswith("rmq_sys_"),
                topic_reserve=lambda: self.reserve,
                consumed_offset=self._consumed,
            ),
            worker=self.worker,
        )

    def restart(self) -> None:
        """Stop and start."""
        self.index.stop()
        self.queues.close()
        self.log.close()
        self.open()

    def fill_disk(self, ratio: float, queues_ratio: float | None = None) -> None:
        """Let the disk, or the log's and the queues', be that full."""
        for folder in self.config.log_folders():
            self.disk.ratios[folder] = ratio
        self.disk.ratios[self.config.root / "consumequeue"] = (
            ratio if queues_ratio is None else queues_ratio
        )

    def put(self, topic: str = "Topic", queue_id: int = 0, body: bytes = BODY) -> Appended:
        """Store a message: in the log, flushed, in its queue and in the index."""
        keys = properties.encode({properties.KEYS: f"key{self.log.end_offset}"})
        appended = self.log.append(
            message(body, topic.encode(), queue_id=queue_id, properties=keys), self.clock.now_ms()
        )
        self.log.commit()
        self.log.flush()
        queue = self.queues.plain.obtain(topic, queue_id)
        queue.put(appended.offset, appended.size, 0, appended.queue_offset)
        queue.commit()
        for record in self.log.scan(LogOffset(appended.offset)):
            self.index.put(record)
        self.index.commit()
        file = self.log.files.find(appended.offset)
        assert file is not None
        self.layer.written_ms[file.path.name] = self.clock.now_ms()
        return appended

    def put_files(self, count: int, topic: str = "Topic", queue_id: int = 0) -> None:
        """Fill that many files of the log, and begin the next."""
        for _ in range(PER_LOG_FILE * count + 1):
            self.put(topic, queue_id)

    def names(self) -> list[int]:
        """The numbers of the log's files that are on disk."""
        folders = self.config.log_folders()
        return sorted(
            int(path.name) // LOG_FILE_SIZE
            for folder in folders
            if folder.exists()
            for path in folder.iterdir()
        )

    def tick(self) -> None:
        self.retention.tick(self.clock.now_ms(), self.clock.monotonic_ms())

    def run(self, elapsed_ms: int) -> None:
        """Let time pass, with a tick whenever one is wanted."""
        end = self.clock.monotonic_ms() + elapsed_ms
        for _ in range(100_000):
            if (wanted := self.retention.next_ms) > end:
                break
            self.clock.advance_ms(max(wanted - self.clock.monotonic_ms(), 0))
            self.tick()
        else:
            raise AssertionError(f"it wants to tick without end, next at {self.retention.next_ms}")
        self.clock.advance_ms(end - self.clock.monotonic_ms())

    def min_offset(self, topic: str = "Topic", queue_id: int = 0) -> int:
        queue = self.queues.plain.find(topic, queue_id)
        assert queue is not None
        return queue.min_offset

    def queue_files(self, topic: str = "Topic", queue_id: int = 0) -> list[int]:
        """The numbers of the queue's files that are on disk."""
        folder = self.config.root / "consumequeue" / topic / str(queue_id)
        return (
            sorted(int(path.name) // self.config.queue_file_size for path in folder.iterdir())
            if folder.exists()
            else []
        )

    def _consumed(self, key: QueueKey) -> QueueOffset | None:
        offset = self.consumed.get(key)
        return None if offset is None else QueueOffset(offset)
