"""The topics of a slave: takes over those of its master, and keeps the queues of each topic to its
present life.

The log of a slave may be ahead of its topics or behind them. Records of a topic that was deleted
and created again enter one queue as long as the slave does not know of it; once it does, the queues
are dropped and dispatched again from where the new life begins, so that no message of that life is
lost (`store.topic_lives`).

Thread rule: the loop thread, in slices. Every step looks at the queues as they are, so it can be
repeated after an interruption. Crash rule: that of a deleted topic; the next start rebuilds queues
from the log, by the beginnings in topics.json or an earlier version of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from orbitmq.broker.metadata.topics import Topics
from orbitmq.common.slices import SLICE_UNITS, Slices
from orbitmq.protocol.bodies.metadata_rows import TopicRow
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset

_DISPATCHED_PER_SLICE: Final = 1 << 20  # bytes of the log

log = logging.getLogger(__name__)


class FollowedTopics:
    """Applies a master's changes of topics. `deleted` is called with each deleted topic."""

    def __init__(
        self, *, topics: Topics, store: MessageStore, deleted: Callable[[str], object]
    ) -> None:
        self.topics = topics
        self._store = store
        self._deleted = deleted

    def take_over(
        self,
        rows: Sequence[TopicRow],
        removed: Iterable[str],
        *,
        version: DataVersion,
        log_end: int,
    ) -> Slices[None]:
        """Apply changes: the table at once, the queues one topic per slice. Records of removed
        topics before `log_end` belong to no queue any more.
        """
        gone = [name for name in removed if not self.topics.is_system(name)]
        before = {row.config.name: self.topics.begin_of(row.config.name) for row in rows}
        self.topics.take_over(rows, gone, version=version, log_end=log_end)
        for name in gone:
            if name in self.topics.table:
                continue  # taken over again meanwhile
            self._store.delete_topic(name)
            self._deleted(name)
            yield
        again: list[int] = []
        for number, (config, begin) in enumerate(rows, 1):
            if self._is_of_other_life(config.name, begin, before[config.name]):
                log.info("topic_began_again topic=%s begin=%d", config.name, begin)
                self._store.delete_topic(config.name)
                again.append(begin)
                yield
            elif number % SLICE_UNITS == 0:
                yield
        if again:
            yield from self._dispatch_again(min(again))

    def _is_of_other_life(self, topic: str, begin: int, begin_before: int) -> bool:
        """Return whether the queues of a topic have, or may get, records before its beginning; or
        lack some after it, since this broker took it for a later one.
        """
        dispatched = self._store.dispatcher.offset
        if self.topics.is_system(topic):
            return False
        if begin < begin_before:
            return dispatched > begin
        for folder in (self._store.queues.plain, self._store.queues.batch):
            for queue_id in folder.ids_of(topic):
                queue = folder.find(topic, queue_id)
                first = None if queue is None else queue.get(queue.min_offset)
                if dispatched < begin or (first is not None and first.log_offset < begin):
                    return True
        return False

    def _dispatch_again(self, begin: int) -> Slices[None]:
        """Dispatch the log from a topic's beginning; what other queues have is skipped."""
        dispatcher, end = self._store.dispatcher, self._store.dispatcher.offset
        begin = max(begin, self._store.log.min_offset)
        if begin >= end:
            return
        dispatcher.offset = LogOffset(begin)
        while dispatcher.offset < end and dispatcher.problem is None:
            stop = min(dispatcher.offset + _DISPATCHED_PER_SLICE, end)
            dispatcher.advance(LogOffset(stop))
            yield
