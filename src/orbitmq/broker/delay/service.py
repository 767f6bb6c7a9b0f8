"""Scheduled delivery: delay levels and timer as one part of a broker, started after store and
metadata, stopped before them.

Wires them to the store, the clock and the rewriter; no rules of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from orbitmq.broker.delay.levels.delivery import LevelDelivery
from orbitmq.broker.delay.timer.files import TimerFiles
from orbitmq.broker.delay.timer.timer import Timer
from orbitmq.broker.delay.wakeup import WakeUp
from orbitmq.broker.observability.metric_sources import TimerFigures
from orbitmq.common.clock import Clock
from orbitmq.common.errors import StoreError
from orbitmq.store.message_store import MessageStore

TAKE_IN_MS: Final = 50  # how long messages may wait for the wheel, which takes them in batches
CLEAN_PERIOD_S: Final = 30.0
SNAPSHOT_S: Final = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)

log = logging.getLogger(__name__)


class TimerParts(NamedTuple):
    """The timer, and its files."""

    timer: Timer
    files: TimerFiles


class _Rate:
    """Measures a rate per second between two ticks."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self._total = 0
        self._at_ms = 0

    def tick(self, total: int, now_ms: int) -> None:
        if now_ms > self._at_ms:
            self.per_second = (
                round((total - self._total) * 1000 / (now_ms - self._at_ms), 1)
                if self._at_ms
                else 0.0
            )
            self._total, self._at_ms = total, now_ms


class DelayService:
    """Delivers delayed messages from `start` to `stop` or `abandon`; `timed` is None if the timer
    wheel is off. A slave calls `load` alone: it has the progress, and delivers nothing.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        store: MessageStore,
        levels: LevelDelivery,
        timed: TimerParts | None,
        slot_max: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._store = store
        self._slot_max = slot_max
        self.levels = levels
        self.timed = timed
        self._taken_in, self._delivered = _Rate(), _Rate()
        self._wake_ups = [WakeUp(clock, lambda now_ms: levels.run(now_ms).next_ms)]
        if timed is not None:
            self._wake_ups.append(WakeUp(clock, timed.timer.run))

    def load(self) -> None:
        """Load the progress; the store was recovered."""
        self.levels.load(self._store.log.end_offset)
        if self.timed is not None:
            self.timed.timer.load()

    def start(self) -> None:
        """Load the progress, and deliver from there on."""
        self.load()
        for wake_up in self._wake_ups:
            wake_up.start()

    @property
    def is_delivering(self) -> bool:
        """Whether this broker delivers delayed messages itself."""
        return any(wake_up.is_running for wake_up in self._wake_ups)

    def stop(self) -> None:
        """Stop deliveries, and save all progress."""
        for wake_up in self._wake_ups:
            wake_up.stop()
        # progress is saved up to the flushed copies
        self._store.flushing.flush_log()
        try:
            if self.timed is not None:
                self.timed.timer.save_now(self._clock.now_ms())
        except (OSError, StoreError) as error:
            log.error("timer_not_saved reason=%s: it resumes at its last check point", error)
        finally:
            self._close(self.levels.close)

    def abandon(self) -> None:
        """Stop deliveries, and save nothing."""
        for wake_up in self._wake_ups:
            wake_up.stop()
        self._close(self.levels.abandon)

    def expect_level(self, due_ms: int) -> None:
        """Expect a message of a delay level, about to be stored, at its due time."""
        self._wake_ups[0].at(due_ms)

    def expect_timed(self, due_ms: int) -> None:
        """Expect a timed message, about to be stored, at its due time; the wheel takes it in
        shortly before.
        """
        if self.timed is not None:
            self._wake_ups[1].at(min(due_ms, self._clock.now_ms() + TAKE_IN_MS))

    def save_timer(self) -> None:
        """Have the timer's files saved, if anything changed, and update the rates."""
        self._tick()
        if self.timed is not None:
            self.timed.timer.save_soon(self._clock.now_ms())

    def clean_timer(self) -> None:
        """Delete files of the timer log whose messages are gone from the store."""
        if self.timed is not None:
            self.timed.files.log.delete_unused(
                lambda entry: entry.log_offset >= self._store.log.min_offset
            )

    def is_congested(self, slot_ms: int) -> bool:
        """Return whether a slot of the timer holds more messages than allowed."""
        if self.timed is None:
            return False
        return self.timed.files.wheel.slot(slot_ms).held > self._slot_max()

    # -- statistics

    def runtime_info(self) -> dict[str, str]:
        """Return its part of GET_BROKER_RUNTIME_INFO."""
        info = {
            f"scheduleMessageOffset_{level}": f"{done},{end}"
            for level, (done, end) in self.levels.ends().items()
        }
        if self.timed is not None:
            timer, wheel = self.timed.timer, self.timed.files.wheel
            info |= {
                "timerReadBehind": str(max(self._clock.now_ms() - timer.read_time_ms, 0) // 1000),
                "timerOffsetBehind": str(timer.behind),
                "timerCongestNum": str(wheel.count),
                "timerEnqueueTps": str(self._taken_in.per_second),
                "timerDequeueTps": str(self._delivered.per_second),
            }
        return info

    def figures(self) -> TimerFigures | None:
        """Return the timer's backlog."""
        if self.timed is None:
            return None
        timer = self.timed.timer
        behind_ms = max(self._clock.now_ms() - timer.read_time_ms, 0)
        return TimerFigures(
            timer.behind,
            timer.behind_ms(self._clock.now_ms()),
            self.timed.files.wheel.count,
            behind_ms,
        )

    def waiting(self) -> Iterator[tuple[str, int]]:
        """Return the number of pending timed messages by topic."""
        if self.timed is not None:
            yield from (
                (topic, each.waiting)
                for topic, each in list(self.timed.files.metrics.counts.items())
            )

    def snapshot(self) -> list[tuple[int, int]]:
        """Return how many timed messages are due within each of Apache RocketMQ's time bounds, in
        seconds.
        """
        if self.timed is None:
            return []
        return self.timed.files.wheel.due_within(self._clock.now_ms(), SNAPSHOT_S)

    def _tick(self) -> None:
        """Update the rates of messages taken in and delivered."""
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
