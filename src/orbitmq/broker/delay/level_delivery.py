"""Delivery of delay levels: what is due in SCHEDULE_TOPIC_XXXX goes where it belongs, in the order of its level's queue.

Reads entries and messages in small batches, so memory does not grow with what waits. A copy is in the log before progress is noted, so a
kill in between delivers that batch twice, and loses none. When the store takes nothing the level stays where it is and is tried again;
only a message that can never be stored, or is damaged, is passed over, with an error in the log. Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from orbitmq.broker.delay.copies import delivered, message_at, put
from orbitmq.broker.delay.level_progress import LevelProgress
from orbitmq.broker.delay.levels import Levels
from orbitmq.broker.own_messages import OwnMessages
from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.common.errors import MessageIllegal, StoreError
from orbitmq.common.topic_names import SCHEDULE_TOPIC
from orbitmq.message.record_write import Message
from orbitmq.store.consume_queue import ENTRY, ConsumeQueue
from orbitmq.store.entry_scan import FILLER_SIZE
from orbitmq.store.queues import Queues
from orbitmq.store.types import QueueOffset

BATCH: Final = 64  # messages of one write: so many come twice, at most, after a kill
TURN_MAX: Final = 128  # messages until others of the loop have their turn
RETRY_MS: Final = 500  # after the store took nothing

log = logging.getLogger(__name__)


class Round(NamedTuple):
    """What a round of deliveries came to: when to call again, None when nothing waits; whether the store took nothing."""

    next_ms: int | None
    failed: bool = False


class LevelDelivery:
    """From `load` on; `run` delivers what is due."""

    def __init__(self, levels: Levels, progress: LevelProgress, queues: Queues, reads: PluggableReads, own: OwnMessages) -> None:
        self._levels = levels
        self._progress = progress
        self._queues = queues
        self._reads = reads
        self._own = own
        self._fails = False

    def load(self, log_end: int) -> None:
        """Go on where the files say, within the queues as they were recovered: what comes from now on is behind that."""
        self._levels.load(self._progress.load(log_end))
        for level in list(self._levels.offsets):
            self._bound(level, self._queues.plain.find(SCHEDULE_TOPIC, level - 1))

    def ends(self) -> dict[int, tuple[int, int]]:
        """Of each level that has a queue: the next message to deliver, and the end of its queue."""
        return {
            level: (min(self._levels.offsets.get(level, queue.min_offset), queue.max_offset), queue.max_offset)
            for level, queue in self._level_queues()
        }

    def save_soon(self) -> None:
        """Have the progress saved, if there was any."""
        self._progress.save_soon()

    def close(self) -> None:
        self._progress.close()

    def abandon(self) -> None:
        self._progress.abandon()

    def encode(self) -> bytes:
        """The answer to GET_ALL_DELAY_OFFSET."""
        return self._progress.encode(self._levels.offsets)

    def run(self, now_ms: int) -> Round:
        """Deliver what is due, up to a limit."""
        left, times_ms, failed = TURN_MAX, list[int](), False
        for level, queue in self._level_queues():
            self._bound(level, queue)
            try:
                next_ms, left = self._run_level(level, queue, now_ms, left)
            except (StoreError, OSError) as error:
                self._tell_failed(level, error)
                next_ms, failed = now_ms + RETRY_MS, True
            if next_ms is not None:
                times_ms.append(next_ms)
        if self._fails and not failed:
            log.info("delay_delivery_goes_on")
        self._fails = failed
        return Round(min(times_ms, default=None), failed)

    def _bound(self, level: int, queue: ConsumeQueue | None) -> None:
        """Have the level's offset within its queue."""
        before = self._levels.offsets.get(level)
        offset = self._levels.bound(level, *((0, 0) if queue is None else (queue.min_offset, queue.max_offset)))
        if before != offset:
            if before is not None:
                log.warning("delay_offset_moved level=%d from=%d to=%d", level, before, offset)
            self._progress.moved(level, offset)

    def _run_level(self, level: int, queue: ConsumeQueue, now_ms: int, left: int) -> tuple[int | None, int]:
        """When the level's next message is due, None when there is none, and how many of others may be delivered before."""
        while (offset := self._levels.offsets[level]) < queue.max_offset:
            if left <= 0:
                return now_ms, left
            entries = list(ENTRY.iter_unpack(queue.entries(QueueOffset(offset), min(BATCH, left))))
            times_ms = [_delivery_time(queue, tags_code) for _, _, tags_code in entries]
            due = self._levels.due(level, times_ms, queue.max_offset, now_ms)
            if due.ready:
                self._deliver(level, offset, entries[: due.ready])
                left -= due.ready
            if due.next_ms is not None:
                return due.next_ms, left
            if not entries:  # its file is gone: it is tried again
                raise StoreError(f"the queue of delay level {level} cannot be read at {offset}")
        return None, left

    def _deliver(self, level: int, offset: int, entries: Sequence[tuple[int, int, int]]) -> None:
        """Store the copies of due messages in one write, and note it; StoreError when the store takes no more."""
        copies = [(number, copy) for number, entry in enumerate(entries) if (copy := self._copy(level, offset + number, entry)) is not None]
        stored = done = log_end = 0
        for count, log_end in put(self._own, [copy for _, copy in copies]):
            stored += count
            behind = copies[stored - 1][0] + 1 if stored < len(copies) else len(entries)
            self._note(level, behind - done, log_end)
            done = behind
        if done < len(entries):
            self._note(level, len(entries) - done, log_end)

    def _note(self, level: int, count: int, log_end: int) -> None:
        """So many more messages of a level are dealt with; their copies end there in the log."""
        self._levels.delivered(level, count)
        self._progress.delivered(level, self._levels.offsets[level], log_end)

    def _copy(self, level: int, offset: int, entry: tuple[int, int, int]) -> Message | None:
        """The copy to store of a message; None, with a word in the log, when there is none."""
        log_offset, size, _ = entry
        stored = None if size == FILLER_SIZE else message_at(self._reads, log_offset)
        reason = "its record is damaged, or was deleted"
        if stored is not None and (stored.topic, stored.queue_id, stored.queue_offset) == (SCHEDULE_TOPIC, level - 1, offset):
            try:
                return delivered(stored)
            except MessageIllegal as error:
                reason = str(error)
        log.error("delayed_message_dropped level=%d offset=%d log_offset=%d reason=%s", level, offset, log_offset, reason)
        return None

    def _level_queues(self) -> list[tuple[int, ConsumeQueue]]:
        plain = self._queues.plain
        return [(queue_id + 1, plain.obtain(SCHEDULE_TOPIC, queue_id)) for queue_id in plain.ids_of(SCHEDULE_TOPIC)]

    def _tell_failed(self, level: int, error: Exception) -> None:
        if not self._fails:
            log.error("delay_delivery_failed level=%d retry_ms=%d reason=%s", level, RETRY_MS, error)


def _delivery_time(queue: ConsumeQueue, tags_code: int) -> int:
    """When an entry is due; with ext files its unit says so."""
    unit = queue.ext_unit(tags_code)
    return tags_code if unit is None else unit.tags_code
