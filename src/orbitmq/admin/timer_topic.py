"""What waits, of the messages that the timer topic of a broker holds: the next to come, as the broker would deliver them.

Sans-IO: records go in, in the order of the queue. The topic has messages that came already, those that take others back, and each copy of
one that was rolled. Kept are the first that are due, up to a limit, and what says of others that they do not come: whom messages take back
in which slot, and how often those were rolled that were. Memory grows with that, not with what waits.

Invariant: `found` is exact when `is_exact`. If not, too many of those that are due first do not come: read all `again`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

from orbitmq.broker.delay.timer_rules import Taker, exact_time, is_taken_back, taker_of
from orbitmq.message import properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.stored_message import StoredMessage

_PRECISION_MS: Final = 1000
_SLOT_MS_MAX: Final = 60_000  # what timerPrecisionMs may be at most
_SPARE: Final = 100  # messages that are kept beyond the limit, since some of them may not come


class _Identity(NamedTuple):
    """What the copies of a message that was rolled have in common."""

    topic: str
    unique_key: str
    out_ms: int


class _Waiting(NamedTuple):
    """A message that may wait; the last to come is the least."""

    minus_due_ms: int
    minus_queue_offset: int
    stored: StoredMessage


class TimerTopic:
    """See above. `is_wanted` says whether the message at a cursor is asked for; without a limit all are kept."""

    def __init__(self, now_ms: int, limit: int | None, is_wanted: Callable[[RecordCursor], bool]) -> None:
        self._now_ms = now_ms
        self._limit = limit
        self._is_wanted = is_wanted
        self._record = RecordCursor()
        self._takers: dict[int, set[Taker]] = {}  # by slot
        self._rolls: dict[_Identity, int] = {}  # how often each was rolled
        self._heap: list[_Waiting] = []
        self._left_out = False

    def take(self, records: bytes | bytearray) -> None:
        """The next records of the queue."""
        record, at = self._record, 0
        while at < len(records) and (size := record.read(records, at, len(records), False)) > 0:
            self._take(record)
            at += size

    def found(self) -> list[tuple[StoredMessage, int]]:
        """The messages that wait, with their times, the next to come first."""
        coming = sorted((each for each in self._heap if self._comes(each.stored)), reverse=True)
        return [(each.stored, -each.minus_due_ms) for each in coming[: self._limit]]

    @property
    def is_exact(self) -> bool:
        return not self._left_out or len(self.found()) == self._limit

    def again(self) -> None:
        """The queue is read once more from its begin; what is known of those that do not come stays."""
        self._heap, self._left_out = [], False

    def _take(self, record: RecordCursor) -> None:
        out = record.property(properties.TIMER_OUT_MS)
        if out is None or not out.isdecimal() or int(out) + _SLOT_MS_MAX <= self._now_ms:
            return
        out_ms = int(out)
        if record.property(properties.TIMER_DEL_UNIQUE_KEY) is not None:
            self._takers.setdefault(out_ms, set()).add(taker_of(record.property))
            return
        rolls = _rolls(record.property(properties.TIMER_ROLL_TIMES))
        if rolls:
            identity = _Identity(record.property(properties.REAL_TOPIC) or "", record.property(properties.UNIQUE_KEY) or "", out_ms)
            self._rolls[identity] = max(rolls, self._rolls.get(identity, 0))
        due_ms = exact_time(record.store_time_ms, record.property, out_ms, _PRECISION_MS)
        if due_ms <= self._now_ms or not self._is_wanted(record):
            return
        is_full = self._limit is not None and len(self._heap) >= self._limit + _SPARE
        if is_full and (-due_ms, -record.queue_offset) < self._heap[0][:2]:
            self._left_out = True
            return
        waiting = _Waiting(-due_ms, -record.queue_offset, record.message())
        if not self._comes(waiting.stored):
            return
        if is_full:
            self._left_out = True
            heapq.heapreplace(self._heap, waiting)
        else:
            heapq.heappush(self._heap, waiting)

    def _comes(self, stored: StoredMessage) -> bool:
        """Whether a message is delivered itself, for all that is known: it is not taken back in its slot, and was not rolled since."""
        found = stored.properties()
        out_ms = int(found[properties.TIMER_OUT_MS])
        identity = _Identity(found.get(properties.REAL_TOPIC, ""), found.get(properties.UNIQUE_KEY, ""), out_ms)
        if identity.unique_key and _rolls(found.get(properties.TIMER_ROLL_TIMES)) < self._rolls.get(identity, 0):
            return False
        return not is_taken_back(found, self._takers.get(out_ms, ()))


def _rolls(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
