"""Retention of queues: drops entries of deleted records, applies shorter times of topics, finds
what is not consumed yet.

Every pass over the queues is a generator with a step per queue, for there may be a hundred
thousand; each step yields the ms to wait before the next. A queue that cannot be read or cleaned is
logged and skipped.

A topic's time may only be shorter than the store's: it moves the minima of its queues, and frees no
space of the log. It is not persisted: the first pass after a start computes the same. Invariant:
minima only grow while the store is open. Thread rule: the loop thread, while no batch of the log is
open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from orbitmq.common.errors import StoreError
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.batch_consume_queue import BatchConsumeQueue
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.queues import QueueFolder, Queues
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset

Folder: TypeAlias = QueueFolder[ConsumeQueue] | QueueFolder[BatchConsumeQueue]
TopicReserve = Callable[[], Mapping[str, int]]
ConsumedOffset = Callable[[QueueKey], QueueOffset | None]

STEP_PAUSE_MS = 5  # after a queue that lost files
log = logging.getLogger(__name__)


class Unconsumed(NamedTuple):
    """A record that a group has not consumed yet, and its queue."""

    log_offset: LogOffset
    folder: Folder
    key: QueueKey


class RetentionRules(NamedTuple):
    """What the broker knows about topics and groups.

    `topic_reserve`: the retention of topics that have their own, in ms. `consumed_offset`: up to
    which queue offset all groups of a queue have consumed it, None if it has none.
    """

    is_system_topic: Callable[[str], bool]
    topic_reserve: TopicReserve
    consumed_offset: ConsumedOffset


NO_RULES: Final = RetentionRules(lambda _topic: False, dict, lambda _key: None)  # without a broker


class QueueRetention:
    """Cleans queues."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: Queues,
        rules: RetentionRules,
    ) -> None:
        self._rules = rules
        self._log = commit_log
        self._queues = queues

    def clean(self) -> Generator[int, None, bool]:
        """Drop the entries of deleted records from all queues; return whether none failed."""

        def clean(folder: Folder, key: QueueKey) -> int:
            queue = folder.find(*key)
            return 0 if queue is None else queue.delete_before(self._log.min_offset)

        return (yield from self._each(self._all(), clean))

    def shorten(self, config: StoreConfig, now_ms: int) -> Generator[int, None, bool]:
        """Move up the minima of queues whose topics have a shorter retention than the store; return
        whether none failed.
        """
        reserve = {
            topic: reserved_ms
            for topic, reserved_ms in self._rules.topic_reserve().items()
            if 0 < reserved_ms < config.reserved_ms and not self._rules.is_system_topic(topic)
        }

        def shorten(folder: Folder, key: QueueKey) -> int:
            queue = folder.find(*key)
            if queue is None:
                return 0
            queue.correct_min(self._log.min_offset)
            kept_from = queue.first_stored_at(now_ms - reserve[key.topic] + 1, self._store_time)
            unconsumed = self.unconsumed(folder, key) if config.protect_unconsumed else None
            return queue.delete_before(
                kept_from if unconsumed is None else min(kept_from, unconsumed.log_offset)
            )

        which = (
            [(folder, key) for folder, key in self._all() if key.topic in reserve]
            if reserve
            else []
        )
        return (yield from self._each(which, shorten))

    def delete_unused(self) -> Generator[int, None, bool]:
        """Delete the queues without a message in the log, except those of system topics; used
        again, they begin at 0.

        A queue that never had a message stays. Returns whether none failed.
        """

        def delete_if_unused(folder: Folder, key: QueueKey) -> int:
            queue = None if self._rules.is_system_topic(key.topic) else folder.find(*key)
            if (
                queue is None
                or queue.last_physical_offset() < 0
                or queue.max_physical_offset >= self._log.min_offset
            ):
                return 0
            folder.delete(*key)
            self._log.offsets.restore(key, self._queues.max_offset(*key))
            log.info("unused_queue_deleted topic=%s queue=%d", *key)
            return 1

        return (yield from self._each(self._all(), delete_if_unused))

    def delete_topic(self, topic: str) -> None:
        """Delete all queues of a topic; created again, it begins at 0."""
        self._queues.delete_topic(topic)
        self._log.offsets.forget(topic)
        log.info("topic_deleted topic=%s", topic)

    def unconsumed(self, folder: Folder, key: QueueKey) -> Unconsumed | None:
        """Return the first record of a queue that a group has not consumed; None if there is none,
        or no group.
        """
        consumed = self._rules.consumed_offset(key)
        queue = None if consumed is None else folder.find(*key)
        if consumed is None or queue is None:
            return None
        queue.correct_min(self._log.min_offset)
        entry = queue.get(max(consumed, queue.min_offset))
        return None if entry is None else Unconsumed(entry.log_offset, folder, key)

    def first_unconsumed(self, stop: LogOffset) -> Generator[int, None, Unconsumed | None]:
        """Return the first record of all queues that a group has not consumed, or any before
        `stop`.
        """
        first: Unconsumed | None = None
        for folder, key in self._all():
            found = self.unconsumed(folder, key)
            if found is not None and (first is None or found.log_offset < first.log_offset):
                first = found
                if found.log_offset < stop:
                    break
            yield 0
        return first

    def _all(self) -> Iterator[tuple[Folder, QueueKey]]:
        """Iterate over every queue; some may be deleted meanwhile."""
        for folder in (self._queues.plain, self._queues.batch):
            for key in list(folder):
                yield folder, key

    def _each(
        self, queues: Iterable[tuple[Folder, QueueKey]], action: Callable[[Folder, QueueKey], int]
    ) -> Generator[int, None, bool]:
        """Call `action` for each queue, with a pause after one that lost files; return whether none
        failed.
        """
        all_done = True
        for folder, key in queues:
            lost_files = 0
            try:
                lost_files = action(folder, key)
            except (OSError, StoreError) as error:
                all_done = False
                log.error("queue_not_cleaned topic=%s queue=%d error=%s", *key, error)
            yield STEP_PAUSE_MS if lost_files else 0
        return all_done

    def _store_time(self, offset: LogOffset, size: int) -> int:
        content = self._log.read(offset, size)
        record = RecordCursor()  # not kept: it would keep a deleted file mapped
        return (
            record.store_time_ms
            if content is not None and record.read(content, 0, size, False) == size
            else -1
        )
