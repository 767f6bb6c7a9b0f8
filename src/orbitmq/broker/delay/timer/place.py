"""The timer's progress as values: which messages of the timer topic are settled, for a start that
reads parts of the topic again.

Sans-IO. A message is identified by its offset in the timer topic and by its slot. Invariant: what a
place covers was delivered, rolled or recalled, and its copies are in the commit log.
"""

from __future__ import annotations

from typing import NamedTuple


class Past(NamedTuple):
    """Slots of [begin_ms, end_ms) are done for messages before `queue_offset`, although the timer
    is, or will be, there once more.

    Noted when the wall clock was set back. `log_offset` is where those messages end in the commit
    log.
    """

    begin_ms: int
    end_ms: int
    queue_offset: int
    log_offset: int

    def covers(self, slot_ms: int, queue_offset: int) -> bool:
        return self.begin_ms <= slot_ms < self.end_ms and queue_offset < self.queue_offset

    def covers_entry(self, slot_ms: int, log_offset: int) -> bool:
        """The same for an entry of the timer log, which knows its message by its log offset."""
        return self.begin_ms <= slot_ms < self.end_ms and log_offset < self.log_offset


class Place(NamedTuple):
    """Slots before `read_time_ms` are done for messages before `queue_offset`; of that slot, only
    the messages in `delivered` are.
    """

    read_time_ms: int
    queue_offset: int
    delivered: frozenset[int] = frozenset()  # by log offset
    pasts: tuple[Past, ...] = ()

    def covers(self, slot_ms: int, queue_offset: int) -> bool:
        """Return whether a message is settled, judging by its slot."""
        if slot_ms < self.read_time_ms and queue_offset < self.queue_offset:
            return True
        return any(past.covers(slot_ms, queue_offset) for past in self.pasts)

    def at_slot(self, read_time_ms: int, queue_offset: int) -> Place:
        """Return the place after the timer moved to another slot, or began this one; pasts that it
        has passed are dropped.
        """
        delivered = self.delivered if read_time_ms == self.read_time_ms else frozenset[int]()
        return Place(
            read_time_ms,
            queue_offset,
            delivered,
            tuple(past for past in self.pasts if past.end_ms > read_time_ms),
        )


class Intent(NamedTuple):
    """Copies of these messages, by log offset, were about to be written at `log_begin`; the commit
    log shows whether they were.
    """

    log_begin: int
    log_offsets: tuple[int, ...]
