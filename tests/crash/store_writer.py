"""The process that a campaign kills: it writes numbered messages to a store as fast as chance lets
it, and tells which ones count.

    python -m crash.store_writer <root> <ASYNC_FLUSH|SYNC_FLUSH> <first number> <seed>

Lines on its output: `ready`, when the store is open; `try <n>` before a message below n is
attempted for the first time; `done <number> <queue offset>` when a message is acknowledged:
committed by ASYNC_FLUSH, flushed by SYNC_FLUSH.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from random import Random

from crash import store_load
from orbitmq.common.clock import SystemClock
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.flush.group_commit import Outcome
from orbitmq.store.index_file import IndexShape
from orbitmq.store.log_batch import Appended
from orbitmq.store.message_store import MessageStore

Batch = list[tuple[int, Appended]]


def config(root: Path, mode: FlushMode) -> StoreConfig:
    """Files that roll often in a store that grows, and intervals so short that a round sees every
    kind of flush.
    """
    return store_load.small(
        root,
        flush_mode=mode,
        commit_log_file_size=64 * 1024,
        index_shape=IndexShape(slots=211, entries=2000),
        flush_log_interval_ms=5,
        flush_log_thorough_interval_ms=20,
        flush_queues_interval_ms=7,
        flush_queues_thorough_interval_ms=30,
        flush_checkpoint_interval_ms=10,
    )


def say(text: str) -> None:
    """One write, so that a line arrives whole or not at all."""
    os.write(sys.stdout.fileno(), text.encode())


def acknowledge(batch: Batch) -> None:
    say("".join(f"done {number} {appended.queue_offset}\n" for number, appended in batch))


def run(root: Path, mode: FlushMode, first: int, seed: int) -> None:
    """Write until somebody ends this process."""
    clock = SystemClock()
    store = MessageStore(OsFileLayer(), clock, config(root, mode), store_load.HOST)
    store.open()
    say("ready\n")
    random, number = Random(seed), first
    while True:
        count = random.choice((1, 1, 2, 5, 20))
        say(f"try {number + count}\n")
        batch = [
            (each, store.append(store_load.message(each))) for each in range(number, number + count)
        ]
        number += count
        store.commit()
        if mode is FlushMode.ASYNC:
            acknowledge(batch)
        else:
            store.when_durable(
                batch[-1][1].end,
                lambda outcome, batch=batch: (  # type: ignore[misc]
                    acknowledge(batch) if outcome is Outcome.DONE else None
                ),
            )
        store.tick()
        if random.random() < 0.3:
            time.sleep(
                random.uniform(0, 0.002)
            )  # or the store grows faster than it can be looked at


if __name__ == "__main__":
    run(Path(sys.argv[1]), FlushMode(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
