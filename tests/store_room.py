"""What the tests of whole stores share: small ones, messages with keys, and all that can be read of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from log_room import HOST, NOW_MS
from orbitmq.message import properties
from orbitmq.message.record import RecordLimits, decode_all
from orbitmq.message.record_write import Message
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.flusher import Flusher
from orbitmq.store.flushing import Job, MakeFlusher
from orbitmq.store.index_file import IndexShape
from orbitmq.store.message_store import MessageStore
from orbitmq.store.topic_lives import TopicLives
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.manual_clock import ManualClock
from process_files import ProcessFiles

QUEUE = QueueKey("orders", 0)
FILE_SIZE = 4096


class InlineFlusher(Flusher[Job]):
    """Syncs at once, on the thread of whoever hands a job in, so that what the disk has does not depend on threads."""

    def start(self) -> None: ...

    def submit(self, job: Job) -> None:
        self._report(self._sync([job]))

    def stop(self, within_s: float = 30.0) -> None: ...


def new_store(
    root: Path,
    layer: FileLayer | None = None,
    clock: ManualClock | None = None,
    lives: TopicLives | None = None,
    make_flusher: MakeFlusher = Flusher,
    **settings: Any,
) -> MessageStore:
    """A store of small files in `root`, not opened."""
    config = StoreConfig(
        root=root,
        commit_log_file_size=FILE_SIZE,
        queue_file_size=400,
        index_shape=IndexShape(slots=50, entries=400),
        limits=RecordLimits(body_size_max=2048, around_body_size_max=2048),
    )
    changed = replace(config, **settings)
    return MessageStore(layer or ProcessFiles(), clock or ManualClock(NOW_MS), changed, HOST, lives=lives, make_flusher=make_flusher)


def opened_store(root: Path, layer: FileLayer | None = None, clock: ManualClock | None = None, **settings: Any) -> MessageStore:
    store = new_store(root, layer, clock, **settings)
    store.open()
    return store


def order(number: int, queue: QueueKey = QUEUE, size: int = 200) -> Message:
    """A message that says its number in its body and its key."""
    return Message(
        queue.topic.encode(),
        b"%06d" % number + b"x" * (size - 6),
        born_host=HOST,
        born_time_ms=NOW_MS,
        queue_id=queue.queue_id,
        properties=properties.write({properties.KEYS: f"k{number}", properties.TAGS: "t"}).encode(),
    )


def numbers(store: MessageStore, queue: QueueKey = QUEUE) -> list[int]:
    """The numbers of all messages that can be read from a queue, in order."""
    found: list[int] = []
    offset = QueueOffset(0)
    while True:
        result = store.reads.get(queue, offset, count_max=32)
        if result.next_offset <= offset:
            return found
        found += [int(message.body[:6]) for message in decode_all(result.records)]
        offset = result.next_offset


def kill(store: MessageStore) -> None:
    """Leave the store as a process that is no more does."""
    store._lock.release()
