"""How far the timer has come, as values: what of the timer topic is dealt with, for a start that reads parts of the topic again.

Sans-IO. A message is known by its offset in the timer topic and by its slot. Invariant: what a place covers was delivered, rolled or taken
back, and its copies are in the commit log.
"""

from __future__ import annotations

from typing import NamedTuple


class Past(NamedTuple):
    """Slots of [begin_ms, end_ms) are done for messages before `queue_offset`, although the timer is, or will be, there once more.

    Noted when the wall clock was set back. `log_offset` is where those messages end in the commit log.
    """

    begin_ms: int
    end_ms: int
    queue_offset: int
    log_offset: int

    def covers(self, slot_ms: int, queue_offset: int) -> bool:
        return self.begin_ms <= slot_ms < self.end_ms and queue_offset < self.queue_offset

    def covers_entry(self, slot_ms: int, log_offset: int) -> bool:
        """The same for an entry of the timer log, which knows its message by its place in the commit log."""
        return self.begin_ms <= slot_ms < self.end_ms and log_offset < self.log_offset


class Place(NamedTuple):
    """Slots before `read_time_ms` are done for messages before `queue_offset`; of that slot, those of `delivered` are."""

    read_time_ms: int
    queue_offset: int
    delivered: frozenset[int] = frozenset()  # by log offset
    pasts: tuple[Past, ...] = ()

    def covers(self, slot_ms: int, queue_offset: int) -> bool:
        """Whether a message is dealt with, going by its slot."""
        if slot_ms < self.read_time_ms and queue_offset < self.queue_offset:
            return True
        return any(past.covers(slot_ms, queue_offset) for past in self.pasts)

    def at_slot(self, read_time_ms: int, queue_offset: int) -> Place:
        """The place when the timer goes on to another slot, or begins this one; pasts that it has passed say nothing more."""
        delivered = self.delivered if read_time_ms == self.read_time_ms else frozenset[int]()
        return Place(read_time_ms, queue_offset, delivered, tuple(past for past in self.pasts if past.end_ms > read_time_ms))


class Intent(NamedTuple):
    """Copies of these messages, by log offset, were about to be written at `log_begin`; whether they were, the commit log tells."""

    log_begin: int
    log_offsets: tuple[int, ...]
