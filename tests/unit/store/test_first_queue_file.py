"""The first message of a queue whose file cannot be made at first: it is readable as soon as the
disk lets it, and after a restart, without any further message to that queue.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from crash import store_load
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import QueueOffset
from orbitmq.testing.faulty_disk import FaultyDisk
from orbitmq.testing.manual_clock import ManualClock
from support.store.indexes import UnsyncedLayer

OTHER, FIRST = store_load.queue_of(0), store_load.queue_of(1)


def store_at(root: Path, layer: FileLayer, clock: ManualClock) -> MessageStore:
    config = store_load.small(root, commit_log_file_size=1 << 20)
    store = MessageStore(layer, clock, config, store_load.HOST)
    store.open()
    return store


def count_in(store: MessageStore) -> int:
    return store.reads.get(FIRST, QueueOffset(0), count_max=9).record_count


@pytest.mark.parametrize(
    ("call", "number"),
    [("open", errno.EMFILE), ("open", errno.ENOSPC), ("make_folder", errno.ENOSPC)],
)
def test_the_first_message_of_a_queue_is_readable_once_its_file_can_be_made(
    tmp_path: Path, call: str, number: int
) -> None:
    root = tmp_path / "store"
    root.mkdir()
    disk, clock = FaultyDisk(UnsyncedLayer(), root), ManualClock()
    store = store_at(root, disk, clock)
    assert OTHER != FIRST
    store.put(store_load.message(0))
    store.flush()
    disk.fail(call, number, times=3)
    acknowledged = store.put(store_load.message(1))
    disk.heal()
    for _ in range(3):
        clock.advance_ms(1_000)
        store.tick()
    assert (int(acknowledged.queue_offset), count_in(store)) == (0, 1)
    store.close()
    store = store_at(root, UnsyncedLayer(), clock)
    assert count_in(store) == 1
    assert int(store.queues.max_offset(*FIRST)) == 1
    store.close()
