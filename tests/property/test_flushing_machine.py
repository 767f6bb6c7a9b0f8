"""Flushing at random, on a disk that fails and loses power: the checkpoint and those who were told
DONE are right in every image left.
"""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.common.errors import StoreError
from orbitmq.store.config import FlushMode
from orbitmq.store.consume_queue import ENTRY, ENTRY_SIZE
from orbitmq.store.file_queue import file_name
from orbitmq.store.flush.group_commit import Outcome
from support.store.flushing import QUEUE_FILE_SIZE, TOPIC, FlushRoom, Stored
from support.store.logs import FILE_SIZE

FAULTS = st.sampled_from([None] * 12 + [0, 1, 2])  # which sync from now on fails
SEEDS = st.integers(0, 1 << 32)
LOG, DERIVED = 0, 1
OFTEN: dict[str, Any] = {
    "flush_queues_interval_ms": 50,
    "flush_queues_thorough_interval_ms": 100,
    "flush_checkpoint_interval_ms": 50,
}


def has_record(image: Path, stored: Stored) -> bool:
    start = stored.offset - stored.offset % FILE_SIZE
    path = image / "commitlog" / file_name(start)
    return (
        path.exists()
        and path.read_bytes()[stored.offset - start : stored.end - start] == stored.content
    )


def has_entry(image: Path, stored: Stored) -> bool:
    position = stored.queue_offset * ENTRY_SIZE
    at = position % QUEUE_FILE_SIZE
    path = image / "consumequeue" / TOPIC / str(stored.queue_id) / file_name(position - at)
    return path.exists() and path.read_bytes()[at : at + ENTRY_SIZE] == ENTRY.pack(
        stored.offset, len(stored.content), 0
    )


class FlushingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="orbitmq-flushing-")
        self.waiting: list[int] = []
        self.cuts = 0

    @initialize(mode=st.sampled_from(FlushMode), seed=st.integers(0, 1000))
    def open(self, mode: FlushMode, seed: int) -> None:
        self.room = FlushRoom(Path(self.folder.name, "store"), mode, seed=seed, **OFTEN).open()

    def can_put(self) -> bool:
        return self.room.log.read_only_reason is None

    @precondition(can_put)
    @rule(
        queue_id=st.integers(0, 2),
        size=st.sampled_from([5, 5, 600]),
        waits=st.booleans(),
        is_dispatched=st.booleans(),
    )
    def put(self, queue_id: int, size: int, waits: bool, is_dispatched: bool) -> None:
        stored = self.room.append(bytes([queue_id + 1]) * size, queue_id)
        if is_dispatched:
            self.room.dispatch()
        if waits:
            self.waiting.append(self.room.stored.index(stored))
            self.room.wait_for(stored)
        self.room.flushing.written()

    @precondition(can_put)
    @rule(queue_id=st.integers(0, 2), count=st.integers(2, 15), each_ms=st.integers(0, 1))
    def put_many(self, queue_id: int, count: int, each_ms: int) -> None:
        for _ in range(count):
            self.room.clock.advance_ms(each_ms)
            self.room.append(queue_id=queue_id)
        self.room.dispatch()
        self.room.flushing.written()

    @rule(passed_ms=st.sampled_from([1, 10, 50, 100, 500, 5000]))
    def time_passes(self, passed_ms: int) -> None:
        self.room.clock.advance_ms(passed_ms)
        self.room.flushing.tick()

    @rule(which=st.sampled_from([LOG, DERIVED]), fault=FAULTS, is_seen=st.booleans(), seed=SEEDS)
    def sync(self, which: int, fault: int | None, is_seen: bool, seed: int) -> None:
        self.room.rest()
        if fault is not None:
            self.room.disk.fail("fdatasync", errno.EIO, after=fault)
        self.room.hands[which].work()
        self.room.disk.heal()
        if which == DERIVED:  # what is claimed may be on disk now
            self.the_power_goes(seed)
        if is_seen:
            self.room.flushing.tick()

    @rule(seed=SEEDS)
    def all_is_synced_for_a_while_then_the_power_goes(self, seed: int) -> None:
        for _ in range(3):  # queues, then the checkpoint that claims them
            self.time_passes(100)
            self.room.work()
        self.the_power_goes(seed)

    @rule(fault=FAULTS, seed=SEEDS)
    def flush(self, fault: int | None, seed: int) -> None:
        self.room.rest()
        self.room.dispatch()
        if fault is not None:
            self.room.disk.fail("fdatasync", errno.EIO, after=fault)
        try:
            self.room.flush()
        except StoreError:
            assert (
                fault is not None
                or self.room.log.read_only_reason
                or self.room.flushing.derived_unsafe_reason
            )
        else:
            assert (
                self.room.checkpoint.queues_offset
                == self.room.log.flushed_offset
                == self.room.log.end_offset
            )
        self.room.disk.heal()
        self.the_power_goes(seed)

    @rule(seed=SEEDS)
    def the_power_goes(self, seed: int) -> None:
        self.room.rest()
        image = Path(self.folder.name, f"image{self.cuts}")
        self.cuts += 1
        self.room.disk.power_cut(image, Random(seed))
        saved = self.room.saved(image)
        for number, outcome in self.room.outcomes:
            if outcome is Outcome.DONE:
                assert has_record(image, self.room.stored[number]), (
                    f"message {number} was acknowledged"
                )
        for stored in self.room.stored:
            in_queue = (
                stored.end <= saved.queues_offset or stored.store_time_ms < saved.queues_time_ms
            )
            if in_queue or stored.store_time_ms < saved.log_time_ms:
                assert has_record(image, stored)
            if in_queue:
                assert has_entry(image, stored)
        for file in self.room.index.files:
            if file.is_full and file.header.end_time_ms <= saved.index_time_ms:
                assert (image / "index" / file.path.name).read_bytes() == file.path.read_bytes()

    @invariant()
    def everybody_is_told_once_in_order(self) -> None:
        if hasattr(self, "room"):
            told = [number for number, _ in self.room.outcomes]
            assert told == self.waiting[: len(told)]

    def teardown(self) -> None:
        if hasattr(self, "room"):
            self.the_power_goes(0)
            self.room.stop()
            assert [number for number, _ in self.room.outcomes] == self.waiting
            assert self.room.disk.calls["open"] == self.room.disk.calls["close"], (
                "every descriptor was given back"
            )
        self.folder.cleanup()


TestFlushing = FlushingMachine.TestCase
TestFlushing.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
