"""All consume queues of a store, by topic and queue id; opened when they are asked for.

Starting costs a list of folders: no file is looked at, so a hundred thousand queues that nobody uses cost little more than their names.
A queue that is used keeps its few numbers from then on; descriptors are shared by all queues, and limited (`open_files`).

What recovery found of the log is told once, by `bound`: queues that are open are cut to it then, all others when they are opened. That
may be long after: it is right all the same, for a queue that was not opened was not written either. A log that lost its end and grew again
before a queue was opened is what `confirms` is for: entries that the log does not confirm are taken off. A queue that proves to be damaged
when it is opened is given to `refill`, which has the log.

Layout: `consumequeue/<topic>/<queue id>/…`, beside it `consumequeue_ext/…` when ext files are on, and `batchconsumequeue/…`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from orbitmq.common.errors import CorruptRecord
from orbitmq.store import batch_consume_queue, consume_queue
from orbitmq.store.batch_consume_queue import BatchConsumeQueue
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.consume_queue_ext import ConsumeQueueExt
from orbitmq.store.entry_queue import EntryQueue, whole_entries
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.open_files import OPEN_FILES_MAX, OpenFiles
from orbitmq.store.queue_files import QueueFiles
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset

Confirms = Callable[[QueueKey, LogOffset, int, QueueOffset], bool]  # whether the log has that record, of that size, for that place
Refill = Callable[[QueueKey, EntryQueue], None]  # put the entries again that a queue lost
Q = TypeVar("Q", bound=EntryQueue)

QUEUE_FILE_SIZE = 300_000 * consume_queue.ENTRY_SIZE
EXT_FILE_SIZE = 48 << 20
BATCH_FILE_SIZE = 300_000 * batch_consume_queue.ENTRY_SIZE
_LOG_END_UNKNOWN = (1 << 63) - 1
_NAME_SIZE_MAX = 255  # bytes of a folder's name


class QueueFolder(Generic[Q]):
    """The queues of one kind, below one folder."""

    def __init__(self, layer: FileLayer, folder: Path, make: Callable[[str], Q]) -> None:
        self._layer = layer
        self._folder = str(folder)
        self._make = make  # of the part of the path that is the queue's own
        self._queues: dict[str, dict[int, Q | None]] = {}  # None: it is there, and was not asked for yet
        self._log_min = LogOffset(0)
        self._log_end = LogOffset(_LOG_END_UNKNOWN)
        self._confirms: Confirms | None = None
        self._refill: Refill | None = None
        self._safe_offset: LogOffset | None = None

    def load(self) -> None:
        """Find which queues there are."""
        for topic in self._layer.list(Path(self._folder)):
            with suppress(NotADirectoryError):
                ids = [int(name) for name in self._layer.list(Path(self._folder, topic)) if name.isascii() and name.isdigit()]
                if ids:
                    self._queues[topic] = dict.fromkeys(ids)

    def bound(
        self,
        log_min: LogOffset,
        log_end: LogOffset,
        confirms: Confirms | None = None,
        refill: Refill | None = None,
        safe_offset: LogOffset | None = None,
    ) -> None:
        """Tell where the log begins and ends, before anything is put: entries of records outside are not in the queues any more.

        Those from `safe_offset` on will be put again.
        """
        self._log_min, self._log_end, self._confirms, self._refill, self._safe_offset = log_min, log_end, confirms, refill, safe_offset
        for queue in self.opened():
            queue.truncate_physical(log_end)
            queue.correct_min(log_min)

    def correct_min(self, log_min: LogOffset) -> None:
        """Tell where the log begins now."""
        self._log_min = log_min
        for queue in self.opened():
            queue.correct_min(log_min)

    def find(self, topic: str, queue_id: int) -> Q | None:
        """The queue, None when there is none."""
        queues = self._queues.get(topic)
        if queues is None or queue_id not in queues:
            return None
        return queues[queue_id] or self._open(topic, queue_id)

    def obtain(self, topic: str, queue_id: int) -> Q:
        """The queue, an empty one when there is none; it gets its files with its first entry."""
        queue = self.find(topic, queue_id)
        if queue is None:
            if not topic or "/" in topic or "\0" in topic or topic in (".", "..") or len(topic.encode()) > _NAME_SIZE_MAX or queue_id < 0:
                raise CorruptRecord(f"no queue {queue_id} can be made for topic {topic!r}: its folder cannot have that name")
            self._queues.setdefault(topic, {})[queue_id] = queue = self._make(f"{topic}/{queue_id}")
        return queue

    def __iter__(self) -> Iterator[QueueKey]:
        """All queues that there are, opened or not."""
        for topic, queues in self._queues.items():
            for queue_id in queues:
                yield QueueKey(topic, queue_id)

    def ids_of(self, topic: str) -> list[int]:
        """The queues of a topic, opened or not, by their ids."""
        return sorted(self._queues.get(topic, ()))

    def opened(self) -> Iterator[Q]:
        """The queues that were asked for."""
        for queues in self._queues.values():
            for queue in queues.values():
                if queue is not None:
                    yield queue

    def open_all(self) -> Iterator[tuple[QueueKey, Q]]:
        """All queues, opening those that are not: for a tool, or a recovery that has to."""
        for key in list(self):
            queue = self.find(*key)
            if queue is not None:
                yield key, queue

    def delete_before(self, log_min: LogOffset) -> Iterator[int]:
        """Remove the files of records that the log has no more; one queue for each step, and how many files it lost."""
        self._log_min = max(log_min, self._log_min)
        for _key, queue in self.open_all():
            yield queue.delete_before(log_min)

    def delete(self, topic: str, queue_id: int) -> None:
        """Remove a queue with its files; nothing when there is none."""
        queue = self.find(topic, queue_id)
        if queue is not None:
            queue.destroy()
            queues = self._queues[topic]
            del queues[queue_id]
            if not queues:
                del self._queues[topic]
                with suppress(OSError):  # never made, or something else lies in it
                    self._layer.remove_folder(Path(self._folder, topic))

    def _open(self, topic: str, queue_id: int) -> Q:
        queue = self._make(f"{topic}/{queue_id}")
        confirms = None if self._confirms is None else partial(self._confirms, QueueKey(topic, queue_id))
        queue.recover(self._log_end, confirms, self._safe_offset)
        queue.correct_min(self._log_min)
        self._queues[topic][queue_id] = queue
        if queue.damaged and self._refill is not None:
            self._refill(QueueKey(topic, queue_id), queue)
        return queue


class Queues:
    """The queues of a store: `plain` with one entry for each message, `batch` with one for each batch."""

    def __init__(
        self,
        layer: FileLayer,
        root: Path,
        *,
        file_size: int = QUEUE_FILE_SIZE,
        ext_file_size: int | None = None,
        batch_file_size: int = BATCH_FILE_SIZE,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        self.files = OpenFiles(layer, open_files_max)
        self._plain_folder, self._ext_folder = root / "consumequeue", root / "consumequeue_ext"
        self._batch_folder = root / "batchconsumequeue"
        self._file_size = whole_entries(file_size, consume_queue.ENTRY_SIZE)
        self._batch_file_size = whole_entries(batch_file_size, batch_consume_queue.ENTRY_SIZE)
        self._ext_file_size = ext_file_size  # None: no ext files
        self.plain = QueueFolder(layer, self._plain_folder, self._make_plain)
        self.batch = QueueFolder(layer, self._batch_folder, self._make_batch)

    def load(self) -> None:
        """Find which queues there are; a queue of a kind of its own in each folder."""
        self.plain.load()
        self.batch.load()

    def bound(
        self,
        log_min: LogOffset,
        log_end: LogOffset,
        confirms: Confirms | None = None,
        refill: Refill | None = None,
        safe_offset: LogOffset | None = None,
    ) -> None:
        """Tell where the log begins and ends, before anything is put; what is from `safe_offset` on will be put again."""
        self.plain.bound(log_min, log_end, confirms, refill, safe_offset)
        self.batch.bound(log_min, log_end, confirms, refill, safe_offset)

    def max_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """The offset behind the last message of a queue, of either kind; 0 when there is no such queue."""
        found = [queue for queue in (self.plain.find(topic, queue_id), self.batch.find(topic, queue_id)) if queue is not None]
        return max((queue.max_offset for queue in found), default=QueueOffset(0))

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """The offset of the first message of a queue, of either kind; 0 when there is no such queue."""
        queue = self.plain.find(topic, queue_id) or self.batch.find(topic, queue_id)
        return QueueOffset(0) if queue is None else queue.min_offset

    def correct_min(self, log_min: LogOffset) -> None:
        """Tell where the log begins now."""
        self.plain.correct_min(log_min)
        self.batch.correct_min(log_min)

    def delete_before(self, log_min: LogOffset) -> Iterator[int]:
        """Remove the files of records that the log has no more; one queue for each step, and how many files it lost."""
        yield from self.plain.delete_before(log_min)
        yield from self.batch.delete_before(log_min)

    def delete_topic(self, topic: str) -> None:
        """Remove all queues of a topic."""
        for folder in (self.plain, self.batch):
            for key in [key for key in folder if key.topic == topic]:
                folder.delete(*key)

    def close(self) -> None:
        """Close every descriptor; flush first."""
        self.files.close()

    def _make_plain(self, name: str) -> ConsumeQueue:
        ext = None
        if self._ext_file_size is not None:
            ext = ConsumeQueueExt(QueueFiles(self.files, f"{self._ext_folder}/{name}", self._ext_file_size))
        return ConsumeQueue(QueueFiles(self.files, f"{self._plain_folder}/{name}", self._file_size), ext)

    def _make_batch(self, name: str) -> BatchConsumeQueue:
        return BatchConsumeQueue(QueueFiles(self.files, f"{self._batch_folder}/{name}", self._batch_file_size))
