"""Delivery of delay levels: moves due messages from SCHEDULE_TOPIC_XXXX to their destination, in
the order of their level's queue.

Reads entries and messages in small batches, so memory does not grow with the backlog. The position
of the next copies is noted before they are written, and the progress after they are in the log: a
kill in between loses none, and the next start finds in the log how far the batch got. If the store
refuses writes, the level stays where it is and is retried; only a message that can never be stored,
or is corrupt, is skipped, with an error in the log. Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from orbitmq.broker.delay.levels.levels import Levels
from orbitmq.broker.delay.levels.progress import LevelProgress
from orbitmq.broker.delay.redelivery import delivered, is_written_as, message_at, put, written
from orbitmq.broker.plugins.interfaces import PluggableReads
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.common.errors import InvalidMessageError, StoreError
from orbitmq.common.topic_names import SCHEDULE_TOPIC
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.bodies.delay import DelayOffsets
from orbitmq.store.consume_queue import ENTRY, ConsumeQueue
from orbitmq.store.entry_scan import FILLER_SIZE
from orbitmq.store.queues import Queues
from orbitmq.store.types import QueueOffset

BATCH: Final = 64  # messages per write
TURN_MAX: Final = 128  # messages per call, before the loop serves others
RETRY_MS: Final = 500  # after the store refused a write

log = logging.getLogger(__name__)


class Round(NamedTuple):
    """The result of a round of deliveries: when to call again, None if nothing is pending, and
    whether the store refused a write.
    """

    next_ms: int | None
    failed: bool = False


class LevelListener(Protocol):
    """Is notified of the messages delivered from a level's queue, and their total size."""

    def delivered_from_level(self, queue_id: int, count: int, size: int) -> None: ...


class LevelDelivery:
    """Delivers delay levels: `load` first, then each `run` delivers what is due."""

    def __init__(
        self,
        levels: Levels,
        progress: LevelProgress,
        queues: Queues,
        reads: PluggableReads,
        own: InternalMessageWriter,
        listener: LevelListener,
    ) -> None:
        self._levels = levels
        self.progress = progress
        self._queues = queues
        self._reads = reads
        self._own = own
        self._listener = listener
        self._fails = False

    def load(self, log_end: int) -> None:
        """Continue where the files say, within the recovered queues: new messages are appended
        after that.
        """
        self._levels.load(self.progress.load(log_end))
        for level in list(self._levels.offsets):
            self._bound(level, self._queues.plain.find(SCHEDULE_TOPIC, level - 1))
        for level, queue in self._level_queues():
            self._bound(level, queue)
            self._find_written(level, queue)

    def _find_written(self, level: int, queue: ConsumeQueue) -> None:
        """Continue after the copies of a batch that was being written when the broker was
        killed.
        """
        log_begin = self.progress.begun.get(level)
        if log_begin is None:
            return
        begin = self._levels.offsets[level]
        batch = enumerate(ENTRY.iter_unpack(queue.entries(QueueOffset(begin), BATCH)), begin)

        def is_copy(stored: StoredMessage, message: tuple[int, tuple[int, ...]]) -> bool:
            copy = self._copy(level, message[0], message[1])
            return copy is not None and is_written_as(stored, copy)

        found = written(self._own, self._reads, log_begin, batch, is_copy)
        if found:
            log.info("delay_batch_found level=%d from=%d messages=%d", level, begin, len(found))
            self._note(level, found[-1][0] + 1 - begin, self._own.log_end)

    def ends(self) -> dict[int, tuple[int, int]]:
        """Return, for each level with a queue, the next message to deliver and the end of its
        queue.
        """
        return {
            level: (
                min(self._levels.offsets.get(level, queue.min_offset), queue.max_offset),
                queue.max_offset,
            )
            for level, queue in self._level_queues()
        }

    def save_soon(self) -> None:
        """Have the progress saved, if it changed."""
        self.progress.save_soon()

    def close(self) -> None:
        self.progress.close()

    def abandon(self) -> None:
        self.progress.abandon()

    def content(self) -> DelayOffsets:
        """Return the next message to deliver of each level, for slaves."""
        return self.progress.content(dict(self._levels.offsets))

    def encode(self) -> bytes:
        """Return the body of the reply to GET_ALL_DELAY_OFFSET."""
        return self.content().encode()

    def take_over(self, master: DelayOffsets, log_end: int) -> None:
        """Continue where the master's deliveries end; the log has reached `log_end`, and with it
        their copies. An offset beyond the level's queue is moved back when deliveries begin.
        """
        self._levels.load(master.offsets)
        self.progress.take_over(master.offsets, master.version, log_end)

    def run(self, now_ms: int) -> Round:
        """Deliver what is due, up to a limit."""
        left, times_ms, failed = TURN_MAX, list[int](), False
        for level, queue in self._level_queues():
            self._bound(level, queue)
            try:
                next_ms, left = self._run_level(level, queue, now_ms, left)
            except (StoreError, OSError) as error:
                self._log_failure(level, error)
                next_ms, failed = now_ms + RETRY_MS, True
            if next_ms is not None:
                times_ms.append(next_ms)
        if self._fails and not failed:
            log.info("delay_delivery_goes_on")
        self._fails = failed
        return Round(min(times_ms, default=None), failed)

    def _bound(self, level: int, queue: ConsumeQueue | None) -> None:
        """Move the level's offset into its queue if it lies outside."""
        before = self._levels.offsets.get(level)
        offset = self._levels.bound(
            level, *((0, 0) if queue is None else (queue.min_offset, queue.max_offset))
        )
        if before != offset:
            if before is not None:
                log.warning("delay_offset_moved level=%d from=%d to=%d", level, before, offset)
            self.progress.moved(level, offset)

    def _run_level(
        self, level: int, queue: ConsumeQueue, now_ms: int, left: int
    ) -> tuple[int | None, int]:
        """Deliver what is due of a level. Return when its next message is due, None if there is
        none, and the rest of the limit.
        """
        if self._levels.offsets[level] < queue.max_offset:
            ends = (self._levels.offsets[level], queue.max_offset - 1)
            times_ms = [
                _delivery_time(queue, ENTRY.unpack(entry)[2])
                for at in ends
                if (entry := queue.entries(QueueOffset(at), 1))
            ]
            self._levels.see_end(level, queue.max_offset, max(times_ms, default=0), now_ms)
        while (offset := self._levels.offsets[level]) < queue.max_offset:
            if left <= 0:
                return now_ms, left
            entries = list(ENTRY.iter_unpack(queue.entries(QueueOffset(offset), min(BATCH, left))))
            times_ms = [_delivery_time(queue, tags_code) for _, _, tags_code in entries]
            due = self._levels.due(level, times_ms, now_ms)
            if due.ready:
                self._deliver(level, offset, entries[: due.ready])
                left -= due.ready
            if due.next_ms is not None:
                return due.next_ms, left
            if not entries:  # its file is gone: retried
                raise StoreError(f"the queue of delay level {level} cannot be read at {offset}")
        return None, left

    def _deliver(self, level: int, offset: int, entries: Sequence[tuple[int, int, int]]) -> None:
        """Store the copies of due messages in one write, and note the progress. Raises StoreError
        if the store accepts no more.
        """
        copies = [
            (number, copy)
            for number, entry in enumerate(entries)
            if (copy := self._copy(level, offset + number, entry)) is not None
        ]
        if copies:
            self.progress.intends(level, self._own.log_end)
        stored = done = log_end = 0
        for count, log_end, copied, size in put(self._own, [copy for _, copy in copies]):
            stored += count
            self._listener.delivered_from_level(level - 1, copied, size)
            behind = copies[stored - 1][0] + 1 if stored < len(copies) else len(entries)
            self._note(level, behind - done, log_end)
            done = behind
        if done < len(entries):
            self._note(level, len(entries) - done, log_end)

    def _note(self, level: int, count: int, log_end: int) -> None:
        """Note that this many more messages of a level are settled; their copies end there in the
        log.
        """
        self._levels.delivered(level, count)
        self.progress.delivered(level, self._levels.offsets[level], log_end)

    def _copy(self, level: int, offset: int, entry: tuple[int, ...]) -> MessageRecord | None:
        """Return the copy of a message; None, with an error in the log, if it cannot be read."""
        log_offset, size, _ = entry
        stored = None if size == FILLER_SIZE else message_at(self._reads, log_offset)
        reason = "its record is corrupt or was deleted"
        if stored is not None and (stored.topic, stored.queue_id, stored.queue_offset) == (
            SCHEDULE_TOPIC,
            level - 1,
            offset,
        ):
            try:
                return delivered(stored)
            except InvalidMessageError as error:
                reason = str(error)
        log.error(
            "delayed_message_dropped level=%d offset=%d log_offset=%d reason=%s",
            level,
            offset,
            log_offset,
            reason,
        )
        return None

    def _level_queues(self) -> list[tuple[int, ConsumeQueue]]:
        plain = self._queues.plain
        return [
            (queue_id + 1, plain.obtain(SCHEDULE_TOPIC, queue_id))
            for queue_id in plain.ids_of(SCHEDULE_TOPIC)
        ]

    def _log_failure(self, level: int, error: Exception) -> None:
        if not self._fails:
            log.error(
                "delay_delivery_failed level=%d retry_ms=%d reason=%s", level, RETRY_MS, error
            )


def _delivery_time(queue: ConsumeQueue, tags_code: int) -> int:
    """Return when an entry is due; with ext files their unit holds the time."""
    unit = queue.ext_unit(tags_code)
    return tags_code if unit is None else unit.tags_code
