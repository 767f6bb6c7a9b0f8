"""The timer after the wall clock was set back: moves messages that cannot stay in the wheel back to
the timer topic.

These are the messages of the slot that was begun or that holds messages of earlier slots, and those
of slots further away than any message may be: their files could be deleted before their time, and
the wheel has no room for both them and nearer slots. As with rolling, the copy keeps the exact
time. Everything else stays in the wheel and is delivered at its time, by the new clock.

Crash rule: that of deliveries. After a kill in the middle the clock is still behind the timer: the
move starts again, with what is left.
"""

from __future__ import annotations

import logging
from typing import Final

from orbitmq.broker.delay.timer.delivery import TimerDelivery
from orbitmq.broker.delay.timer.due_slot import DueMessage, DueSlot
from orbitmq.broker.delay.timer.files import TimerFiles
from orbitmq.broker.delay.timer.log import NO_POSITION
from orbitmq.broker.delay.timer.place import Past

ENTRIES_MAX: Final = 2048  # entries of the timer log per step
BATCH: Final = 64  # messages per write

log = logging.getLogger(__name__)


class ClockBack:
    """One move back to `read_time_ms`, before which slots are done for messages before
    `queue_offset`; `step` does a part of it.

    `taken_in` and `log_offset` say which messages are in the wheel by now, `delivered` which of
    them are settled.
    """

    def __init__(
        self,
        files: TimerFiles,
        copies: TimerDelivery,
        read_time_ms: int,
        *,
        queue_offset: int,
        taken_in: int,
        log_offset: int,
        delivered: frozenset[int],
    ) -> None:
        self.read_time_ms = read_time_ms
        self.queue_offset = queue_offset
        self._taken_in = taken_in
        self._files = files
        self._copies = copies
        self._log_offset = log_offset
        self._pasts: list[Past] = []
        self._chains: list[int] = []
        self._slot = DueSlot(0, delivered)
        self._is_sorted = False
        self._moved = 0

    def leave(self, begin_ms: int, end_ms: int, times_ms: list[int]) -> None:
        """Mark [begin, end) as done once the messages of the slots of these times are moved."""
        self._pasts.append(Past(begin_ms, end_ms, self._taken_in, self._log_offset))
        self._chains += [self._files.wheel.slot(time_ms).last for time_ms in times_ms]

    def step(self, now_ms: int) -> bool:
        """Move some messages; return whether the timer may continue. Raises StoreError if the store
        accepts no more.
        """
        for _ in range(ENTRIES_MAX):
            if not self._chains:
                break
            self._take(self._chains.pop())
        if self._chains:
            return False
        if not self._is_sorted:
            self._slot.sort()
            self._is_sorted = True
        if due := self._slot.due(now_ms, BATCH):
            self._moved += self._copies.release(self._slot, due, now_ms)
        if len(self._slot):
            return False
        if self._pasts:
            self._files.went_back(self._pasts, self.read_time_ms, self.queue_offset)
            log.warning(
                "timer_went_back to_ms=%d moved=%d: the clock was set back",
                self.read_time_ms,
                self._moved,
            )
        return True

    def _take(self, position: int) -> None:
        if position == NO_POSITION:
            return
        entry = self._files.log.read(position)
        if entry is None:
            log.error(
                "timer_log_damaged position=%d: earlier entries of its slot are lost", position
            )
            return
        self._slot.add(DueMessage(entry.log_offset, entry.enqueued_ms, rolls=True), 0)
        self._chains.append(entry.previous)
