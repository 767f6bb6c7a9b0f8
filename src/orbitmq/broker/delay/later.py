"""Messages that come later: levels and timer as one part of a broker, started behind store and tables, stopped before them.

Wires them to the store, to time and to whoever places messages; no rules of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from orbitmq.broker.delay.level_delivery import LevelDelivery
from orbitmq.broker.delay.timer import Timer
from orbitmq.broker.delay.timer_files import TimerFiles
from orbitmq.broker.delay.wake_up import WakeUp
from orbitmq.broker.metric_sources import TimerFigures
from orbitmq.common.clock import Clock
from orbitmq.common.errors import StoreError
from orbitmq.store.message_store import MessageStore

TAKE_IN_MS: Final = 50  # how long messages may wait until they come into the wheel, many at a time
CLEAN_PERIOD_S: Final = 30.0
SNAPSHOT_S: Final = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)

log = logging.getLogger(__name__)


class TimerParts(NamedTuple):
    """The timer, and the files that it works on."""

    timer: Timer
    files: TimerFiles


class _Rate:
    """How much of something there is a second, between two ticks."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self._total = 0
        self._at_ms = 0

    def tick(self, total: int, now_ms: int) -> None:
        if now_ms > self._at_ms:
            self.per_second = round((total - self._total) * 1000 / (now_ms - self._at_ms), 1) if self._at_ms else 0.0
            self._total, self._at_ms = total, now_ms


class Later:
    """From `start` to `stop` or `abandon`; `timed` is None when the timer wheel is off."""

    def __init__(self, clock: Clock, store: MessageStore, levels: LevelDelivery, timed: TimerParts | None) -> None:
        self._clock = clock
        self._store = store
        self.levels = levels
        self.timed = timed
        self._taken_in, self._delivered = _Rate(), _Rate()
        self._wake_ups = [WakeUp(clock, lambda now_ms: levels.run(now_ms).next_ms)]
        if timed is not None:
            self._wake_ups.append(WakeUp(clock, timed.timer.run))

    def start(self) -> None:
        """Go on where the files say; the store was recovered."""
        self.levels.load(self._store.log.end_offset)
        if self.timed is not None:
            self.timed.timer.load()
        for wake_up in self._wake_ups:
            wake_up.start()

    def stop(self) -> None:
        """Deliver nothing more, and have all progress on disk."""
        for wake_up in self._wake_ups:
            wake_up.stop()
        self._store.flushing.flush_log()  # progress is saved as far as the disk has what was delivered
        try:
            if self.timed is not None:
                self.timed.timer.save_now(self._clock.now_ms())
        except (OSError, StoreError) as error:
            log.error("timer_not_saved reason=%s: it goes on at its last check point", error)
        finally:
            self._close(self.levels.close)

    def abandon(self) -> None:
        """Deliver nothing more, and save nothing."""
        for wake_up in self._wake_ups:
            wake_up.stop()
        self._close(self.levels.abandon)

    def expect_level(self, due_ms: int) -> None:
        """A message of a delay level is about to be stored, and due then."""
        self._wake_ups[0].at(due_ms)

    def expect_timed(self, due_ms: int) -> None:
        """A message is about to be stored that is due then; the wheel takes it in a moment before."""
        if self.timed is not None:
            self._wake_ups[1].at(min(due_ms, self._clock.now_ms() + TAKE_IN_MS))

    def save_timer(self) -> None:
        """Have the timer's files saved, if anything changed, and count."""
        self._tick()
        if self.timed is not None:
            self.timed.timer.save_soon(self._clock.now_ms())

    def clean_timer(self) -> None:
        """Delete files of the timer log whose messages the store has no more."""
        if self.timed is not None:
            self.timed.files.log.delete_unused(lambda entry: entry.log_offset >= self._store.log.min_offset)

    def is_congested(self, slot_ms: int, held_max: int) -> bool:
        """Whether a slot of the timer holds more messages than it may."""
        return self.timed is not None and self.timed.files.wheel.slot(slot_ms).held > held_max

    # -- figures

    def runtime_info(self) -> dict[str, str]:
        """What GET_BROKER_RUNTIME_INFO tells of it."""
        told = {f"scheduleMessageOffset_{level}": f"{done},{end}" for level, (done, end) in self.levels.ends().items()}
        if self.timed is not None:
            timer, wheel = self.timed.timer, self.timed.files.wheel
            told |= {
                "timerReadBehind": str(max(self._clock.now_ms() - timer.read_time_ms, 0) // 1000),
                "timerOffsetBehind": str(timer.behind),
                "timerCongestNum": str(wheel.count),
                "timerEnqueueTps": str(self._taken_in.per_second),
                "timerDequeueTps": str(self._delivered.per_second),
            }
        return told

    def figures(self) -> TimerFigures | None:
        """The timer's backlog."""
        if self.timed is None:
            return None
        timer = self.timed.timer
        behind_ms = max(self._clock.now_ms() - timer.read_time_ms, 0)
        return TimerFigures(timer.behind, timer.behind_ms(self._clock.now_ms()), self.timed.files.wheel.count, behind_ms)

    def waiting(self) -> Iterator[tuple[str, int]]:
        """How many timed messages wait for each topic."""
        if self.timed is not None:
            yield from ((topic, each.waiting) for topic, each in list(self.timed.files.metrics.counts.items()))

    def snapshot(self) -> list[tuple[int, int]]:
        """How many messages of the timer are due within so many seconds, for each bound of the original."""
        if self.timed is None:
            return []
        return self.timed.files.wheel.due_within(self._clock.now_ms(), SNAPSHOT_S)

    def _tick(self) -> None:
        """See how much came and went since the last call."""
        if self.timed is not None:
            now_ms = self._clock.monotonic_ms()
            self._taken_in.tick(self.timed.timer.taken_in, now_ms)
            self._delivered.tick(self.timed.timer.delivered, now_ms)

    def _close(self, close_levels: Callable[[], None]) -> None:
        try:
            if self.timed is not None:
                self.timed.files.close()
        finally:
            close_levels()
