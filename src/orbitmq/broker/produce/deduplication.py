"""The deduplication window: recently stored messages by topic and unique key, so that a retry gets
the reply of the first send.

A producer that receives no reply retries with the same UNIQ_KEY. Sans-IO: time comes in as `now_ms`
of the wall clock. Nothing is saved except the log itself: at start `learn` reads its tail.
Invariants: a message counts for `window_ms` after it was stored. The window keeps the first message
of a key; of half messages the last, as another is stored only after the previous one was rolled
back. The window holds at most `keys_max` keys; the oldest are evicted first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from orbitmq.common.topic_names import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from orbitmq.message import flags, properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.types import LogOffset, QueueOffset, StoreTimeMs

_WAITING_TOPICS = frozenset(
    {HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC}
)  # the holding topics of deferred messages
_OF_COPIES = (
    properties.PREPARED_QUEUE_OFFSET,
    properties.TRANSACTION_CHECK_TIMES,
)  # copies of half messages, which the broker stores
_COPIED_TOPICS = (
    RETRY_PREFIX,
    DEAD_LETTER_PREFIX,
)  # messages there have the key of the message that they are copies of

log = logging.getLogger(__name__)


class First(NamedTuple):
    """Where a message was stored, and the reply that its producer got."""

    offset: LogOffset
    end: LogOffset
    queue_id: int
    queue_offset: QueueOffset
    store_time_ms: StoreTimeMs
    recall_handle: str | None = None


class DedupWindow:
    """Remembers recently stored messages by topic and unique key."""

    def __init__(self, window_ms: int, keys_max: int) -> None:
        self.window_ms = window_ms
        self.keys_max = keys_max
        self._firsts: dict[str, First] = {}  # oldest first
        self._is_full = False

    def __len__(self) -> int:
        return len(self._firsts)

    def find(self, topic: str, unique_key: str, now_ms: int) -> First | None:
        """Return the message with that key, if it was stored within the window."""
        first = self._firsts.get(_name(topic, unique_key))
        return None if first is None or now_ms - first.store_time_ms > self.window_ms else first

    def remember(self, topic: str, unique_key: str, first: First) -> None:
        """Add a message that was stored just now."""
        name = _name(topic, unique_key)
        self._firsts.pop(name, None)  # an expired one
        self._firsts[name] = first
        self._forget(first.store_time_ms)

    def _forget(self, now_ms: int) -> None:
        """Evict expired messages, and the oldest if there are too many."""
        while self._firsts:
            name = next(iter(self._firsts))
            is_over = now_ms - self._firsts[name].store_time_ms > self.window_ms
            if not is_over and len(self._firsts) <= self.keys_max:
                break
            if is_over:
                self._is_full = False
            elif not self._is_full:  # logged once, until there is room again
                self._is_full = True
                log.warning(
                    "dedup_window_full keys=%d window_ms=%d: more messages arrive than the"
                    " window can hold, so that a late retry may be stored twice; raise"
                    " dedupWindowKeysMax, or lower dedupWindowMs",
                    self.keys_max,
                    self.window_ms,
                )
            del self._firsts[name]

    # -- recovery at start

    def learn(
        self,
        commit_log: CommitLog,
        now_ms: int,
        recall_handle: Callable[[RecordCursor], str | None] = lambda _record: None,
    ) -> None:
        """Fill the window from the log; `recall_handle` returns the handle with which a timed
        message may be recalled.
        """
        begin = _begin(commit_log, now_ms - self.window_ms)
        for record in commit_log.scan(begin, check_body=False):
            if now_ms - record.store_time_ms <= self.window_ms:
                self._take(record, recall_handle)
        log.info(
            "dedup_window_learned keys=%d begin=%d end=%d", len(self), begin, commit_log.end_offset
        )

    def _take(
        self, record: RecordCursor, recall_handle: Callable[[RecordCursor], str | None]
    ) -> None:
        """Add a record if a producer sent it; records that the broker derived from it are
        ignored.
        """
        topic, unique_key = record.topic().decode(), record.property(properties.UNIQUE_KEY)
        real_topic, is_half = record.property(properties.REAL_TOPIC), topic == HALF_TOPIC
        if is_half and any(record.property(name) is not None for name in _OF_COPIES):
            return
        queue_id: str | int | None = record.queue_id
        if topic in _WAITING_TOPICS:
            topic, queue_id = real_topic or topic, record.property(properties.REAL_QUEUE_ID)
        elif (
            real_topic is not None or record.prepared_offset
        ):  # a deferred message that was delivered
            return
        if (
            not unique_key
            or not is_deduplicated(topic)
            or flags.transaction_type(record.sys_flag) is not flags.TransactionType.NONE
        ):
            return
        if not is_half and self.find(topic, unique_key, record.store_time_ms) is not None:
            return
        offset = LogOffset(record.log_offset)
        first = First(
            offset,
            LogOffset(offset + record.size),
            int(queue_id or 0),
            QueueOffset(record.queue_offset),
            StoreTimeMs(record.store_time_ms),
            recall_handle(record),
        )
        self.remember(topic, unique_key, first)


def is_deduplicated(topic: str) -> bool:
    """Return whether messages sent to a topic are deduplicated: copies share the key of their
    original.
    """
    return not topic.startswith(_COPIED_TOPICS)


def _name(topic: str, unique_key: str) -> str:
    return f"{topic}#{unique_key}"  # a topic name contains no `#`


def _begin(commit_log: CommitLog, since_ms: int) -> LogOffset:
    """Return where to start reading for all records stored since then: at a file that begins with
    an older one, or at the start of the log.
    """
    size, first = commit_log.files.file_size, commit_log.min_offset
    start = max(commit_log.end_offset - 1, 0) // size * size
    while start > first:
        oldest = next(
            iter(commit_log.scan(LogOffset(start), LogOffset(start + 1), check_body=False)), None
        )
        if oldest is not None and oldest.store_time_ms < since_ms:
            return LogOffset(start)
        start -= size
    return first
