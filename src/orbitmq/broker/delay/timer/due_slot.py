"""The due slot of the timer: its messages in delivery order, each at its millisecond.

Sans-IO. Order: by due time, then by arrival. A million messages of one slot take some 25 bytes
each; only their positions are kept. Invariant: a message is returned until it is marked as done,
and never again after that.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from orbitmq.broker.delay.timer.rules import RecallKey

_NUMBER_BITS: Final = 40
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1


class DueMessage(NamedTuple):
    """A message of the slot: its log offset, when it entered the wheel, and whether it is to be
    rolled.
    """

    log_offset: int
    enqueued_ms: int
    rolls: bool


class DueSlot:
    """Filled by `add`, then `sort`; later messages are added as well. `recall_keys` select the
    messages that were recalled.
    """

    def __init__(self, time_ms: int, delivered: Iterable[int] = ()) -> None:
        self.time_ms = time_ms
        self.recall_keys: set[RecallKey] = set()
        self._delivered = frozenset(delivered)  # before the broker was killed
        self._log_offsets = array("q")  # doubled, plus 1 for messages that are to be rolled
        self._enqueued_ms = array("q")
        self._keys = array("q")
        self._next = 0
        self._late: list[int] = []  # a heap of the messages added after `sort`
        self._is_sorted = False

    def __len__(self) -> int:
        return len(self._keys) - self._next + len(self._late)

    def add(self, message: DueMessage, deliver_ms: int) -> None:
        """Add a message, unless it was delivered before; one due before the slot is due at the
        slot's begin.
        """
        if message.log_offset in self._delivered:
            return
        key = max(deliver_ms - self.time_ms, 0) << _NUMBER_BITS | len(self._log_offsets)
        self._log_offsets.append(message.log_offset << 1 | message.rolls)
        self._enqueued_ms.append(message.enqueued_ms)
        if self._is_sorted:
            heapq.heappush(self._late, key)
        else:
            self._keys.append(key)

    def sort(self) -> None:
        """Sort the slot when its chain is added completely, from the newest to the oldest entry."""
        last = len(self._log_offsets) - 1
        self._keys = array("q", sorted(key - 2 * (key & _NUMBER_MASK) + last for key in self._keys))
        self._log_offsets.reverse()
        self._enqueued_ms.reverse()
        self._is_sorted = True

    def due(self, now_ms: int, count_max: int) -> list[DueMessage]:
        """Return up to `count_max` due messages in order; the same again until `done` settles
        them.
        """
        found: list[DueMessage] = []
        late = heapq.nsmallest(count_max, self._late)
        at, late_at = self._next, 0
        while len(found) < count_max:
            if at < len(self._keys) and (late_at >= len(late) or self._keys[at] < late[late_at]):
                key, at = self._keys[at], at + 1
            elif late_at < len(late):
                key, late_at = late[late_at], late_at + 1
            else:
                break
            if self.time_ms + (key >> _NUMBER_BITS) > now_ms:
                break
            number = key & _NUMBER_MASK
            packed = self._log_offsets[number]
            found.append(DueMessage(packed >> 1, self._enqueued_ms[number], bool(packed & 1)))
        return found

    def done(self, count: int) -> None:
        """Settle the first `count` messages that `due` returned."""
        for _ in range(count):
            if self._late and (
                self._next >= len(self._keys) or self._late[0] < self._keys[self._next]
            ):
                heapq.heappop(self._late)
            else:
                self._next += 1

    def next_ms(self) -> int | None:
        """Return when the next message is due; None if none is left."""
        heads = [*self._late[:1], *self._keys[self._next : self._next + 1]]
        return self.time_ms + (min(heads) >> _NUMBER_BITS) if heads else None
