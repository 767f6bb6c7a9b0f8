"""All consume queues of a store, by topic and queue id; opened when they are asked for.

Starting costs a list of folders: no file is looked at, so a hundred thousand queues that nobody uses cost little more than their names.
A queue that is used keeps its few numbers from then on; descriptors are shared by all queues, and limited (`open_files`).

At start `queue_proof` settles what is kept of each queue: one that is proven is opened, without another look, when it is asked for; one
that has to be rebuilt is open and empty, or has what is left of it. Queues that nobody settled, as of a tool that has no log, are recovered
from what their own entries say.

A new queue begins at the log offset since which its topic lives (`begin_of`): records before it belong to a topic that was deleted.

Layout: `consumequeue/<topic>/<queue id>/…`, beside it `consumequeue_ext/…` when ext files are on, and `batchconsumequeue/…`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from orbitmq.common.errors import CorruptRecord
from orbitmq.store import batch_consume_queue, consume_queue
from orbitmq.store.batch_consume_queue import BatchConsumeQueue
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.consume_queue_ext import ConsumeQueueExt
from orbitmq.store.entry_queue import EntryQueue, QueueState, whole_entries
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.open_files import OPEN_FILES_MAX, OpenFiles
from orbitmq.store.queue_files import FilesState, QueueFiles, proven
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset

BeginOf = Callable[[str], int]  # since which log offset a topic lives
Q = TypeVar("Q", bound=EntryQueue)

QUEUE_FILE_SIZE = 300_000 * consume_queue.ENTRY_SIZE
EXT_FILE_SIZE = 48 << 20
BATCH_FILE_SIZE = 300_000 * batch_consume_queue.ENTRY_SIZE
_LOG_END_UNKNOWN = (1 << 63) - 1
_NAME_SIZE_MAX = 255  # bytes of a folder's name


class QueueFolder(Generic[Q]):
    """The queues of one kind, below one folder."""

    def __init__(self, layer: FileLayer, folder: Path, file_size: int, make: Callable[[str, int], Q], begin_of: BeginOf) -> None:
        self._layer = layer
        self._folder = str(folder)
        self._file_size = file_size
        self._make = make  # of the part of the path that is the queue's own, and the log offset where it begins
        self._begin_of = begin_of
        self._queues: dict[str, dict[int, Q | QueueState | None]] = {}  # a state: proven, not opened yet; None: nothing is known of it
        self._log_min = LogOffset(0)
        self._log_end = LogOffset(_LOG_END_UNKNOWN)

    def load(self) -> None:
        """Find which queues there are."""
        for topic in self._layer.list(Path(self._folder)):
            with suppress(NotADirectoryError):
                ids = [int(name) for name in self._layer.list(Path(self._folder, topic)) if name.isascii() and name.isdigit()]
                if ids:
                    self._queues[topic] = dict.fromkeys(ids)

    def bound(self, log_min: LogOffset, log_end: LogOffset) -> None:
        """Tell where the log begins and ends, before anything is put: entries of records outside are not in the queues any more."""
        self._log_min, self._log_end = log_min, log_end
        for queue in self.opened():
            queue.truncate_physical(log_end)
            queue.correct_min(log_min)

    def make(self, key: QueueKey, begin_offset: int = 0) -> Q:
        """An object for the queue, which knows nothing of its files; for whoever settles what they are."""
        return self._make(f"{key.topic}/{key.queue_id}", begin_offset)

    def proven(self, key: QueueKey, state: FilesState) -> int:
        """How many of the files of `state`, from the first, are as it says."""
        return proven(self._layer, f"{self._folder}/{key.topic}/{key.queue_id}", self._file_size, state)

    def settle(self, key: QueueKey, content: Q | QueueState) -> None:
        """Say what the queue is: an open one, or one whose files were proven to have that state."""
        self._queues.setdefault(key.topic, {})[key.queue_id] = content

    def drop(self, key: QueueKey) -> None:
        """Forget the queue; its files are gone, or never were."""
        queues = self._queues.get(key.topic, {})
        queues.pop(key.queue_id, None)
        if not queues:
            self._queues.pop(key.topic, None)
            with suppress(OSError):  # never made, or something else lies in it
                self._layer.remove_folder(Path(self._folder, key.topic))

    def state_of(self, key: QueueKey) -> QueueState | None:
        """What proves the content of the queue at the next start; None when nothing does, or there is no such queue."""
        found = self._queues.get(key.topic, {}).get(key.queue_id)
        return found.state if isinstance(found, EntryQueue) else found

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
        found = queues[queue_id]
        return self._open(topic, queue_id, found) if found is None or isinstance(found, QueueState) else found

    def obtain(self, topic: str, queue_id: int) -> Q:
        """The queue, an empty one when there is none; it gets its files with its first entry."""
        queue = self.find(topic, queue_id)
        if queue is None:
            if not topic or "/" in topic or "\0" in topic or topic in (".", "..") or len(topic.encode()) > _NAME_SIZE_MAX or queue_id < 0:
                raise CorruptRecord(f"no queue {queue_id} can be made for topic {topic!r}: its folder cannot have that name")
            self._queues.setdefault(topic, {})[queue_id] = queue = self._make(f"{topic}/{queue_id}", self._begin_of(topic))
        return queue

    def __iter__(self) -> Iterator[QueueKey]:
        """All queues that there are, opened or not."""
        for topic, queues in self._queues.items():
            for queue_id in queues:
                yield QueueKey(topic, queue_id)

    @property
    def topics(self) -> Collection[str]:
        """The topics that have queues, opened or not."""
        return self._queues.keys()

    def ids_of(self, topic: str) -> list[int]:
        """The queues of a topic, opened or not, by their ids."""
        return sorted(self._queues.get(topic, ()))

    def opened(self) -> Iterator[Q]:
        """The queues that were asked for."""
        for queues in self._queues.values():
            for queue in queues.values():
                if isinstance(queue, EntryQueue):
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
        begin_of: BeginOf = lambda _topic: 0,
    ) -> None:
        self.files = OpenFiles(layer, open_files_max)
        self._plain_folder, self._ext_folder = root / "consumequeue", root / "consumequeue_ext"
        self._batch_folder = root / "batchconsumequeue"
        self._file_size = whole_entries(file_size, consume_queue.ENTRY_SIZE)
        self._batch_file_size = whole_entries(batch_file_size, batch_consume_queue.ENTRY_SIZE)
        self._ext_file_size = ext_file_size  # None: no ext files
        self.plain = QueueFolder(layer, self._plain_folder, self._file_size, self._make_plain, begin_of)
        self.batch = QueueFolder(layer, self._batch_folder, self._batch_file_size, self._make_batch, begin_of)

    @property
    def file_sizes(self) -> tuple[int, int, int]:
        """How long files of queues, ext files (0: there are none) and files of batch queues are."""
        return self._file_size, self._ext_file_size or 0, self._batch_file_size

    def load(self) -> None:
        """Find which queues there are; a queue of a kind of its own in each folder."""
        self.plain.load()
        self.batch.load()

    def bound(self, log_min: LogOffset, log_end: LogOffset) -> None:
        """Tell where the log begins and ends, before anything is put."""
        self.plain.bound(log_min, log_end)
        self.batch.bound(log_min, log_end)

    def has_messages(self, topic: str) -> bool:
        """Whether any queue of the topic has, or had, a message."""
        return any(self.max_offset(topic, queue_id) for folder in (self.plain, self.batch) for queue_id in folder.ids_of(topic))

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
            for queue_id in folder.ids_of(topic):
                folder.delete(topic, queue_id)

    def close(self) -> None:
        """Close every descriptor; flush first."""
        self.files.close()

    def _make_plain(self, name: str, begin_offset: int) -> ConsumeQueue:
        ext = None
        if self._ext_file_size is not None:
            ext = ConsumeQueueExt(QueueFiles(self.files, f"{self._ext_folder}/{name}", self._ext_file_size))
        return ConsumeQueue(QueueFiles(self.files, f"{self._plain_folder}/{name}", self._file_size), ext, begin_offset)

    def _make_batch(self, name: str, begin_offset: int) -> BatchConsumeQueue:
        return BatchConsumeQueue(QueueFiles(self.files, f"{self._batch_folder}/{name}", self._batch_file_size), begin_offset)
