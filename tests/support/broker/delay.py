"""Levels and timer on a real store, without sockets or a loop: nothing happens by itself, and all
may die at any call to the disk.
"""

from __future__ import annotations

import errno
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from orbitmq.broker.delay.levels.delivery import LevelDelivery
from orbitmq.broker.delay.levels.levels import Levels
from orbitmq.broker.delay.levels.progress import LevelProgress
from orbitmq.broker.delay.rewriter import DelayRewriter
from orbitmq.broker.delay.service import DelayService, TimerParts
from orbitmq.broker.delay.timer.files import TimerFiles
from orbitmq.broker.delay.timer.rules import safe_window
from orbitmq.broker.delay.timer.timer import Timer
from orbitmq.broker.delay.timer.windows import RollWindows
from orbitmq.broker.metadata.offset_journal import OffsetJournal
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.common.mem import Buffer
from orbitmq.message import properties
from orbitmq.message.record import decode_all
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.config import DELAY_LEVELS_MS, FlushMode
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.forgetful_disk import ForgetfulDisk
from orbitmq.testing.manual_clock import ManualClock
from support.broker.listeners import Unheard
from support.broker.manual_worker import InlineWorker, Killed, ManualLoop
from support.broker.services import ExpectedDelivery
from support.broker.settings import broker_settings
from support.store.logs import HOST
from support.store.stores import new_store

LEVELS_TEXT = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
REAL = QueueKey("T", 0)


def timer_settings(**changes: object) -> Any:
    """The configuration, with a small timer log."""
    return broker_settings(**{"mapped_file_size_timer_log": 5_200} | changes)


class Heard(Unheard):
    """Whoever hears of stored messages."""

    def timed_taken_in(self, topic: str, delay_s: int) -> None: ...

    def timed_delivered(self, topic: str) -> None: ...


class MortalDisk(ForgetfulDisk):
    """A disk that may be full, and whose user dies before a certain change of it, made on the
    thread that made this.
    """

    def __init__(self, clock: ManualClock, limbo: Path) -> None:
        super().__init__(clock, limbo)
        self.changes_left: int | None = None
        self.is_full = False
        self.stalled = threading.Event()  # cleared: what others sync waits
        self.stalled.set()
        self._thread = threading.current_thread()

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        self._change()
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().pwrite(descriptor, data, offset)

    def rename(self, old: Path, new: Path) -> None:
        self._change()
        super().rename(old, new)

    def fdatasync(self, descriptor: int) -> None:
        self._change()
        if threading.current_thread() is not self._thread:
            self.stalled.wait()
        super().fdatasync(descriptor)

    def close_all(self) -> None:
        """Close what the dead left open, as the end of a process does."""
        for descriptor in list(self._descriptors):
            self.close(descriptor)

    def _change(self) -> None:
        if self.changes_left is not None and threading.current_thread() is self._thread:
            self.changes_left -= 1
            if self.changes_left < 0:
                raise Killed


class Delivered(NamedTuple):
    """A copy that reached the topic."""

    body: bytes
    time_ms: int


class DelayRoom:
    """One broker's levels and timer, from `start` to `stop` or `kill`, as often as is wanted."""

    def __init__(self, folder: Path, settings: Any = None, **store_settings: Any) -> None:
        self.folder = folder
        self.settings = settings or timer_settings()
        self.clock = ManualClock()
        self.disk = MortalDisk(self.clock, folder / "limbo")
        self._store_settings = store_settings
        self.start()

    def start(self) -> None:
        self.disk.changes_left = None
        self.loop, self.worker = ManualLoop(), InlineWorker()
        self.store = store = new_store(
            self.folder / "store", self.disk, self.clock, **self._store_settings
        )
        store.open()
        config = self.folder / "store/config"
        config.mkdir(exist_ok=True)
        progress = LevelProgress(
            ConfigFile(config / "delayOffset.json", self.worker, self.loop),
            OffsetJournal(config / "delayOffset.journal", self.disk),
            self.clock,
            lambda: store.log.flushed_offset,
            version_step=200,
        )
        self.own = InternalMessageWriter(store, store, Heard())
        self.levels = Levels(store.config.delay_levels_ms)
        delivery = LevelDelivery(
            self.levels, progress, store.queues, store.reads, self.own, Heard()
        )
        files = TimerFiles(
            self.disk,
            self.folder / "store",
            log_file_size=self.settings.mapped_file_size_timer_log,
            precision_ms=self.settings.timer_precision_ms,
            flushed_offset=lambda: store.log.flushed_offset,
            worker=self.worker.submit,
        )
        window_slots, precision_ms = (
            self.settings.timer_roll_window_slot,
            self.settings.timer_precision_ms,
        )
        windows = RollWindows(
            config / "timerwindows.json",
            precision_ms,
            slots=safe_window(window_slots, store.config.reserved_ms, precision_ms),
            slots_before=window_slots,
        )
        self.timer = Timer(self.settings, windows, files, store, store.reads, self.own, Heard())
        self.later = DelayService(
            clock=self.clock,
            store=store,
            levels=delivery,
            timed=TimerParts(self.timer, files),
            slot_max=lambda: 1_000_000,
        )
        self.placer = DelayRewriter(self.settings, self.clock.now_ms, ExpectedDelivery())
        delivery.load(store.log.end_offset)
        self.timer.load()

    # -- what happens to it

    def run(self, rounds: int = 100) -> None:
        """Do what is due now; with few rounds, a part of it."""
        for _ in range(rounds):
            if self.store.config.flush_mode is FlushMode.SYNC:
                self.store.flush()
            times = (
                self.later.levels.run(self.clock.now_ms()).next_ms,
                self.timer.run(self.clock.now_ms()),
            )
            if all(time_ms is None or time_ms > self.clock.now_ms() for time_ms in times):
                return

    def pass_ms(self, elapsed_ms: int, step_ms: int = 250) -> None:
        """Let time pass, and do what is due as it does."""
        end_ms = self.clock.now_ms() + elapsed_ms
        while self.clock.now_ms() < end_ms:
            self.clock.advance_ms(min(step_ms, end_ms - self.clock.now_ms()))
            self.run()

    def save(self) -> None:
        self.later.levels.save_soon()
        self.loop.run()
        self.later.save_timer()

    def stop(self) -> None:
        self.later.stop()
        self.loop.run()
        self.store.close()

    def kill(self, *, forgets: bool) -> None:
        """End without saving anything; with `forgets` the power went too."""
        self.disk.changes_left = None
        self.later.abandon()
        self.store.abandon()
        self.disk.close_all()
        if forgets:
            self.disk.forget()

    # -- messages

    def send(self, body: bytes, *, topic: str = "T", **names: str) -> int:
        """Store a message with these properties as a send does; where its record ends."""
        content = {properties.UNIQUE_KEY: body.decode(), **names}
        message = MessageRecord(
            topic.encode(),
            body,
            born_host=HOST,
            born_time_ms=1,
            properties=properties.encode(content),
        )
        placed = self.placer.rewrite(message, content)
        return self.own.put(message if placed is None else placed.message)[-1].end

    def stored(self, queue: QueueKey = REAL) -> list[StoredMessage]:
        """All messages of a queue."""
        found: list[StoredMessage] = []
        offset = QueueOffset(0)
        while True:
            result = self.store.reads.get(queue, offset, count_max=32)
            if result.next_offset <= offset:
                return found
            found += decode_all(result.records)
            offset = result.next_offset

    def delivered(self) -> list[Delivered]:
        return [Delivered(message.body, message.store_time_ms) for message in self.stored()]

    def counts(self) -> Counter[bytes]:
        return Counter(each.body for each in self.delivered())


assert len(DELAY_LEVELS_MS) == len(LEVELS_TEXT.split())
