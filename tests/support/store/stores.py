"""What the tests of whole stores share: small ones, messages with keys, and all that can be read of
them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orbitmq.message import properties
from orbitmq.message.flags import INNER_BATCH, NEED_UNWRAP
from orbitmq.message.record import RecordLimits, decode_all
from orbitmq.message.record_write import MessageRecord
from orbitmq.store.config import StoreConfig
from orbitmq.store.dispatch import FilterBits
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.flush.coordinator import Job, MakeFlusher
from orbitmq.store.flush.fsync_thread import Flusher
from orbitmq.store.index_file import IndexShape
from orbitmq.store.message_store import MessageStore
from orbitmq.store.topic_lives import TopicLives
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.manual_clock import ManualClock
from support.common.process_files import ProcessFiles
from support.store.logs import HOST, NOW_MS

QUEUE = QueueKey("orders", 0)
FILE_SIZE = 4096
BATCH_SIZE = 3


class InlineFlusher(Flusher[Job]):
    """Syncs at once, on the thread of whoever hands a job in, so that what the disk has does not
    depend on threads.
    """

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
    filter_bits: FilterBits | None = None,
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
    return MessageStore(
        layer or ProcessFiles(),
        clock or ManualClock(NOW_MS),
        changed,
        HOST,
        lives=lives,
        make_flusher=make_flusher,
        filter_bits=filter_bits,
    )


def opened_store(
    root: Path, layer: FileLayer | None = None, clock: ManualClock | None = None, **settings: Any
) -> MessageStore:
    store = new_store(root, layer, clock, **settings)
    store.open()
    return store


def order(number: int, queue: QueueKey = QUEUE, size: int = 200) -> MessageRecord:
    """A message that says its number in its body and its key."""
    return MessageRecord(
        queue.topic.encode(),
        b"%06d" % number + b"x" * (size - 6),
        born_host=HOST,
        born_time_ms=NOW_MS,
        queue_id=queue.queue_id,
        properties=properties.write({properties.KEYS: f"k{number}", properties.TAGS: "t"}).encode(),
    )


def batch(number: int, queue: QueueKey) -> MessageRecord:
    """A record of `BATCH_SIZE` messages that says its number in its body."""
    return MessageRecord(
        queue.topic.encode(),
        b"%06d" % number,
        born_host=HOST,
        born_time_ms=NOW_MS,
        queue_id=queue.queue_id,
        sys_flag=INNER_BATCH | NEED_UNWRAP,
        properties=properties.encode({properties.INNER_NUM: str(BATCH_SIZE)}),
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
    """Leave the store as a process that is no more does: no thread of it makes a file later."""
    store.flushing._worker.stop()
    store._lock.release()
