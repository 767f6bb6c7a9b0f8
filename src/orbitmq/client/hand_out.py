"""Which messages an application gets that asks for them, and how far it is: the part of a pull consumer that does no input or output.

Messages of a queue come in their order; queues take turns. Invariant: what was handed out counts as consumed when more is asked for, or
when the application says so, and not before; so whoever goes on at `consumed` misses nothing.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.process_queue import ProcessQueue
from orbitmq.protocol.bodies.clients import MessageQueue


class Source(Protocol):
    """A queue that is read: what came of it, in a cache that is another one after each jump, and where it is read next."""

    @property
    def queue(self) -> MessageQueue: ...

    cache: ProcessQueue
    next_offset: int | None
    is_dropped: bool  # somebody else has the queue now


class _Run(NamedTuple):
    """Messages of one queue that were handed out together, and the cache that they are finished in."""

    source: Source
    cache: ProcessQueue
    messages: list[ReceivedMessage]


class HandOut:
    """See above."""

    def __init__(self) -> None:
        self.paused: set[MessageQueue] = set()
        self._handed: list[_Run] = []  # what does not count as consumed yet
        self._ready: dict[Source, None] = {}  # those that have something, in the order of their turns

    @property
    def handed(self) -> list[ReceivedMessage]:
        """What was handed out and does not count as consumed yet."""
        return [message for run in self._handed for message in run.messages]

    def arrived(self, source: Source) -> None:
        """There is something to take."""
        self._ready[source] = None

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """The next messages, of queues that are not paused; what was handed out before counts as consumed."""
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
        """All that was handed out counts as consumed."""
        for run in self._handed:
            run.cache.finish(run.messages)
        self._handed = []

    def give_back(self) -> None:
        """Hand out again, first of all, what was handed out and does not count as consumed."""
        for source, cache, messages in reversed(self._handed):
            if source.cache is cache and not source.is_dropped:
                cache.give_back(messages)
                self._ready = {source: None, **self._ready}
        self._handed = []


def consumed(source: Source) -> int | None:
    """Up to where all of a queue counts as consumed; None while it is not known where it begins."""
    offset = source.cache.commit_offset
    return source.next_offset if offset is None else offset


def position(source: Source) -> int | None:
    """Where the next message of a queue is that is handed out; None while it is not known where it begins."""
    offset = source.cache.position
    return source.next_offset if offset is None else offset
