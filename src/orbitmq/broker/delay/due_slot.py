"""The slot of the timer that is due: its messages in the order in which they are to be delivered, each at its millisecond.

Sans-IO. Order: by the time at which a message is due, then as they came. A million messages of one slot take some 25 bytes each; nothing
of them but where they stand is kept. Invariant: a message is given out until it is said to be done, and never again after that.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from orbitmq.broker.delay.timer_rules import Taker

_NUMBER_BITS: Final = 40
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1


class DueMessage(NamedTuple):
    """A message of the slot: where it stands in the log, when it came into the wheel, and whether it is to be rolled."""

    log_offset: int
    enqueued_ms: int
    rolls: bool


class DueSlot:
    """Filled by `add`, then `sort`; what comes later is added all the same. `takes_back` says which are not to be delivered."""

    def __init__(self, time_ms: int, delivered: Iterable[int] = ()) -> None:
        self.time_ms = time_ms
        self.takes_back: set[Taker] = set()
        self._delivered = frozenset(delivered)  # before the broker was killed
        self._log_offsets = array("q")  # doubled, with 1 for those that are to be rolled
        self._enqueued_ms = array("q")
        self._keys = array("q")
        self._next = 0
        self._late: list[int] = []  # a heap of those that were added after `sort`
        self._is_sorted = False

    def __len__(self) -> int:
        return len(self._keys) - self._next + len(self._late)

    def add(self, message: DueMessage, deliver_ms: int) -> None:
        """Add a message, unless it was delivered before; one that was due before the slot is due at its begin."""
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
        """All that the slot held is added: from the newest to the oldest, as the chain of its entries goes."""
        last = len(self._log_offsets) - 1
        self._keys = array("q", sorted(key - 2 * (key & _NUMBER_MASK) + last for key in self._keys))
        self._log_offsets.reverse()
        self._enqueued_ms.reverse()
        self._is_sorted = True

    def due(self, now_ms: int, count_max: int) -> list[DueMessage]:
        """The messages that are due, in their order, up to so many; the same again until `done` says how many are."""
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
        """The first `count` of those that `due` gave are dealt with."""
        for _ in range(count):
            if self._late and (self._next >= len(self._keys) or self._late[0] < self._keys[self._next]):
                heapq.heappop(self._late)
            else:
                self._next += 1

    def next_ms(self) -> int | None:
        """When the next message is due; None when none is left."""
        heads = [*self._late[:1], *self._keys[self._next : self._next + 1]]
        return self.time_ms + (min(heads) >> _NUMBER_BITS) if heads else None
