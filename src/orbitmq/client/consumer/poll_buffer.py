"""The sans-IO part of a pull consumer: which messages a poll returns, and how far the application
is.

Messages of a queue are returned in order; queues take turns. Invariant: polled messages count as
consumed when the application polls again or says so, and not before, so that resuming at `consumed`
misses nothing.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.messages import ReceivedMessage
from orbitmq.protocol.bodies.clients import MessageQueue


class PollSource(Protocol):
    """A queue being read: its cache, which every seek replaces, and the next offset to read."""

    @property
    def queue(self) -> MessageQueue: ...

    cache: ProcessQueue
    next_offset: int | None
    is_dropped: bool  # another member owns the queue now


class _Run(NamedTuple):
    """Messages of one queue that were polled together, and the cache in which they are finished."""

    source: PollSource
    cache: ProcessQueue
    messages: list[ReceivedMessage]


class PollBuffer:
    """Chooses the messages of each poll and tracks those not yet consumed."""

    def __init__(self) -> None:
        self.paused: set[MessageQueue] = set()
        self._handed: list[_Run] = []  # polled, not yet consumed
        self._ready: dict[PollSource, None] = {}  # sources with messages, in order of their turns

    @property
    def handed(self) -> list[ReceivedMessage]:
        """The messages that were polled and do not count as consumed yet."""
        return [message for run in self._handed for message in run.messages]

    def arrived(self, source: PollSource) -> None:
        """Note that a source has messages."""
        self._ready[source] = None

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Return the next messages of unpaused queues; earlier ones count as consumed."""
        self.settle()
        found: list[ReceivedMessage] = []
        for source in list(self._ready):
            if len(found) == count_max:
                break
            if source.queue in self.paused and not source.is_dropped:
                continue
            del self._ready[source]
            if source.is_dropped:
                continue
            cache = source.cache
            taken = cache.take(count_max - len(found))
            self._handed.append(_Run(source, cache, taken))
            found += taken
            if cache.waiting_count:
                self._ready[source] = None
        return found

    def settle(self) -> None:
        """Mark all polled messages as consumed."""
        for run in self._handed:
            run.cache.finish(run.messages)
        self._handed = []

    def give_back(self) -> None:
        """Return polled messages that do not count as consumed to the front of the buffer."""
        for source, cache, messages in reversed(self._handed):
            if source.cache is cache and not source.is_dropped:
                cache.give_back(messages)
                self._ready = {source: None, **self._ready}
        self._handed = []


def consumed(source: PollSource) -> int | None:
    """Return the offset before which everything counts as consumed, or None if not known yet."""
    offset = source.cache.commit_offset
    return source.next_offset if offset is None else offset


def position(source: PollSource) -> int | None:
    """Return the offset of the next message to be polled from a queue, or None if not known yet."""
    offset = source.cache.position
    return source.next_offset if offset is None else offset
