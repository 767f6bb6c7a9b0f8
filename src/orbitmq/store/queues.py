"""All consume queues of a store, by topic and queue id; opened on first use.

A start lists the folders and reads no file, so a hundred thousand unused queues cost little more
than their names. A used queue keeps its few numbers from then on; descriptors are shared by all
queues, and limited (`open_files`).

At start `queue_proof` settles the content of each queue: a proven one is opened on first use
without another check; one that must be rebuilt is open and empty, or has what is left of it.
Unsettled queues, as in a tool that has no log, are recovered from their own entries.

A new queue begins at the log offset where its topic's life begins (`begin_of`): records before it
belong to a deleted topic.

Layout: `consumequeue/<topic>/<queue id>/…`, beside it `consumequeue_ext/…` if ext files are on, and
`batchconsumequeue/…`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from orbitmq.common.errors import CorruptRecordError
from orbitmq.store import batch_consume_queue, consume_queue
from orbitmq.store.batch_consume_queue import BatchConsumeQueue
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.consume_queue_ext import ConsumeQueueExt
from orbitmq.store.entry_queue import EntryQueue, QueueState, whole_entries
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.open_files import OPEN_FILES_MAX, OpenFiles
from orbitmq.store.queue_files import FilesState, QueueFiles, proven
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset

BeginOf = Callable[[str], int]  # the log offset where a topic's life begins
Q = TypeVar("Q", bound=EntryQueue)

QUEUE_FILE_SIZE = 300_000 * consume_queue.ENTRY_SIZE
EXT_FILE_SIZE = 48 << 20
BATCH_FILE_SIZE = 300_000 * batch_consume_queue.ENTRY_SIZE
_LOG_END_UNKNOWN = (1 << 63) - 1
_NAME_SIZE_MAX = 255  # bytes of a folder name


class QueueFolder(Generic[Q]):
    """The queues of one kind, below one folder."""

    def __init__(
        self,
        layer: FileLayer,
        folder: Path,
        file_size: int,
        make: Callable[[str, int], Q],
        begin_of: BeginOf,
    ) -> None:
        self._layer = layer
        self._folder = str(folder)
        self._file_size = file_size
        # takes `<topic>/<queue id>` and the queue's begin offset in the log
        self._make = make
        self._begin_of = begin_of
        # A state: proven, not opened yet; None: unknown.
        self._queues: dict[str, dict[int, Q | QueueState | None]] = {}
        self._log_min = LogOffset(0)
        self._log_end = LogOffset(_LOG_END_UNKNOWN)

    def load(self) -> None:
        """Find the existing queues."""
        for topic in self._layer.list(Path(self._folder)):
            with suppress(NotADirectoryError):
                ids = [
                    int(name)
                    for name in self._layer.list(Path(self._folder, topic))
                    if name.isascii() and name.isdigit()
                ]
                if ids:
                    self._queues[topic] = dict.fromkeys(ids)

    def bound(self, log_min: LogOffset, log_end: LogOffset) -> None:
        """Set the bounds of the log, before anything is put: entries of records outside are
        dropped.
        """
        self._log_min, self._log_end = log_min, log_end
        for queue in self.opened():
            queue.truncate_physical(log_end)
            queue.correct_min(log_min)

    def make(self, key: QueueKey, begin_offset: int = 0) -> Q:
        """Return a new object for the queue, which knows nothing of its files; for the code that
        settles them.
        """
        return self._make(f"{key.topic}/{key.queue_id}", begin_offset)

    def proven(self, key: QueueKey, state: FilesState) -> int:
        """Return how many of the files of `state`, from the first, match it."""
        return proven(
            self._layer, f"{self._folder}/{key.topic}/{key.queue_id}", self._file_size, state
        )

    def settle(self, key: QueueKey, content: Q | QueueState) -> None:
        """Set the queue: an open one, or one whose files were proven to have that state."""
        self._queues.setdefault(key.topic, {})[key.queue_id] = content

    def drop(self, key: QueueKey) -> None:
        """Remove the queue from the table; its files do not exist."""
        queues = self._queues.get(key.topic, {})
        queues.pop(key.queue_id, None)
        if not queues:
            self._queues.pop(key.topic, None)
            with suppress(OSError):  # never created, or not empty
                self._layer.remove_folder(Path(self._folder, key.topic))

    def drop_empty(self) -> None:
        """Drop the opened queues that never had an entry."""
        empty = [
            QueueKey(topic, queue_id)
            for topic, queues in self._queues.items()
            for queue_id, queue in queues.items()
            if isinstance(queue, EntryQueue) and queue.max_offset == 0
        ]
        for key in empty:
            self.drop(key)

    def state_of(self, key: QueueKey) -> QueueState | None:
        """Return what proves the queue's content at the next start; None if nothing does, or it
        does not exist.
        """
        found = self._queues.get(key.topic, {}).get(key.queue_id)
        return found.state if isinstance(found, EntryQueue) else found

    def correct_min(self, log_min: LogOffset) -> None:
        """Set where the log begins now."""
        self._log_min = log_min
        for queue in self.opened():
            queue.correct_min(log_min)

    def find(self, topic: str, queue_id: int) -> Q | None:
        """Return the queue, or None."""
        queues = self._queues.get(topic)
        if queues is None or queue_id not in queues:
            return None
        found = queues[queue_id]
        return (
            self._open(topic, queue_id, found)
            if found is None or isinstance(found, QueueState)
            else found
        )

    def obtain(self, topic: str, queue_id: int) -> Q:
        """Return the queue, an empty one if there is none; its first entry creates its files."""
        queue = self.find(topic, queue_id)
        if queue is None:
            if (
                not topic
                or "/" in topic
                or "\0" in topic
                or topic in (".", "..")
                or len(topic.encode()) > _NAME_SIZE_MAX
                or queue_id < 0
            ):
                raise CorruptRecordError(
                    f"queue {queue_id} of topic {topic!r} cannot be created: its folder cannot have"
                    " that name"
                )
            self._queues.setdefault(topic, {})[queue_id] = queue = self._make(
                f"{topic}/{queue_id}", self._begin_of(topic)
            )
        return queue

    def __iter__(self) -> Iterator[QueueKey]:
        """Iterate over all existing queues, opened or not."""
        for topic, queues in self._queues.items():
            for queue_id in queues:
                yield QueueKey(topic, queue_id)

    @property
    def topics(self) -> Collection[str]:
        """The topics that have queues, opened or not."""
        return self._queues.keys()

    def ids_of(self, topic: str) -> list[int]:
        """Return the queue ids of a topic, opened or not."""
        return sorted(self._queues.get(topic, ()))

    def opened(self) -> Iterator[Q]:
        """Iterate over the opened queues."""
        for queues in self._queues.values():
            for queue in queues.values():
                if isinstance(queue, EntryQueue):
                    yield queue

    def open_all(self) -> Iterator[tuple[QueueKey, Q]]:
        """Iterate over all queues, opening the others: for tools, and for recovery."""
        for key in list(self):
            queue = self.find(*key)
            if queue is not None:
                yield key, queue

    def delete_before(self, log_min: LogOffset) -> Iterator[int]:
        """Remove the files of records that are no longer in the log; yields after each queue how
        many it lost.
        """
        self._log_min = max(log_min, self._log_min)
        for _key, queue in self.open_all():
            yield queue.delete_before(log_min)

    def delete(self, topic: str, queue_id: int) -> None:
        """Remove a queue with its files, if it exists."""
        queue = self.find(topic, queue_id)
        if queue is not None:
            queue.destroy()
            self.drop(QueueKey(topic, queue_id))

    def _open(self, topic: str, queue_id: int, state: QueueState | None) -> Q:
        queue = self._make(f"{topic}/{queue_id}", self._begin_of(topic))
        if state is None:
            queue.recover(self._log_end)
        else:
            queue.adopt(state)
        queue.correct_min(self._log_min)
        self._queues[topic][queue_id] = queue
        return queue


class Queues:
    """The queues of a store: `plain` with one entry per message, `batch` with one per batch."""

    def __init__(
        self,
        layer: FileLayer,
        root: Path,
        *,
        file_size: int = QUEUE_FILE_SIZE,
        ext_file_size: int | None = None,
        batch_file_size: int = BATCH_FILE_SIZE,
        open_files_max: int = OPEN_FILES_MAX,
        begin_of: BeginOf = lambda _topic: 0,
    ) -> None:
        self.files = OpenFiles(layer, open_files_max)
        self._plain_folder, self._ext_folder = root / "consumequeue", root / "consumequeue_ext"
        self._batch_folder = root / "batchconsumequeue"
        self._file_size = whole_entries(file_size, consume_queue.ENTRY_SIZE)
        self._batch_file_size = whole_entries(batch_file_size, batch_consume_queue.ENTRY_SIZE)
        self._ext_file_size = ext_file_size  # None: no ext files
        self.plain = QueueFolder(
            layer, self._plain_folder, self._file_size, self._make_plain, begin_of
        )
        self.batch = QueueFolder(
            layer, self._batch_folder, self._batch_file_size, self._make_batch, begin_of
        )

    @property
    def file_sizes(self) -> tuple[int, int, int]:
        """The file sizes of queues, ext files (0: none) and batch queues."""
        return self._file_size, self._ext_file_size or 0, self._batch_file_size

    def load(self) -> None:
        """Find the existing queues."""
        self.plain.load()
        self.batch.load()

    def bound(self, log_min: LogOffset, log_end: LogOffset) -> None:
        """Set the bounds of the log, before anything is put."""
        self.plain.bound(log_min, log_end)
        self.batch.bound(log_min, log_end)

    def has_messages(self, topic: str) -> bool:
        """Whether any queue of the topic has, or had, a message."""
        return any(
            self.max_offset(topic, queue_id)
            for folder in (self.plain, self.batch)
            for queue_id in folder.ids_of(topic)
        )

    def max_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the offset after the last message of a queue, of either kind; 0 if it does not
        exist.
        """
        found = [
            queue
            for queue in (self.plain.find(topic, queue_id), self.batch.find(topic, queue_id))
            if queue is not None
        ]
        return max((queue.max_offset for queue in found), default=QueueOffset(0))

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the offset of the first message of a queue, of either kind; 0 if it does not
        exist.
        """
        queue = self.plain.find(topic, queue_id) or self.batch.find(topic, queue_id)
        return QueueOffset(0) if queue is None else queue.min_offset

    def correct_min(self, log_min: LogOffset) -> None:
        """Set where the log begins now."""
        self.plain.correct_min(log_min)
        self.batch.correct_min(log_min)

    def delete_before(self, log_min: LogOffset) -> Iterator[int]:
        """Remove the files of records that are no longer in the log; yields after each queue how
        many it lost.
        """
        yield from self.plain.delete_before(log_min)
        yield from self.batch.delete_before(log_min)

    def delete_topic(self, topic: str) -> None:
        """Remove all queues of a topic."""
        for folder in (self.plain, self.batch):
            for queue_id in folder.ids_of(topic):
                folder.delete(topic, queue_id)

    def close(self) -> None:
        """Close every descriptor; flush first."""
        self.files.close()

    def _make_plain(self, name: str, begin_offset: int) -> ConsumeQueue:
        ext = None
        if self._ext_file_size is not None:
            ext = ConsumeQueueExt(
                QueueFiles(self.files, f"{self._ext_folder}/{name}", self._ext_file_size)
            )
        return ConsumeQueue(
            QueueFiles(self.files, f"{self._plain_folder}/{name}", self._file_size),
            ext,
            begin_offset,
        )

    def _make_batch(self, name: str, begin_offset: int) -> BatchConsumeQueue:
        return BatchConsumeQueue(
            QueueFiles(self.files, f"{self._batch_folder}/{name}", self._batch_file_size),
            begin_offset,
        )
