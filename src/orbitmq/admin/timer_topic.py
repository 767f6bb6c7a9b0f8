"""Computes the pending messages of a broker's timer topic: the next to be delivered, as the broker
would deliver them.

Sans-IO: records go in, in queue order. The topic contains delivered messages, recalls of others,
and every copy of a message that was rolled. Kept are the messages due first, up to a limit, and
what excludes others: the recalls in each slot, and how often messages were rolled. Memory grows
with that, not with the number of pending messages.

Invariant: `found` is exact if `is_exact`. If not, too many of the messages due first turned out to
be undeliverable: call `restart` and add all records again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

from orbitmq.broker.delay.timer.rules import RecallKey, exact_time, is_recalled, recall_key_of
from orbitmq.message import properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.stored_message import StoredMessage

_PRECISION_MS: Final = 1000
_SLOT_MS_MAX: Final = 60_000  # what timerPrecisionMs may be at most
_SPARE: Final = 100  # kept beyond the limit, since some may be undeliverable


class _Identity(NamedTuple):
    """What all copies of a rolled message share."""

    topic: str
    unique_key: str
    out_ms: int


class _PendingTimer(NamedTuple):
    """A candidate message; the last due sorts first."""

    minus_due_ms: int
    minus_queue_offset: int
    stored: StoredMessage


class TimerTopic:
    """The pending messages of a timer topic that `is_wanted` selects, up to `limit`."""

    def __init__(
        self, now_ms: int, limit: int | None, is_wanted: Callable[[RecordCursor], bool]
    ) -> None:
        self._now_ms = now_ms
        self._limit = limit
        self._is_wanted = is_wanted
        self._record = RecordCursor()
        self._recalls: dict[int, set[RecallKey]] = {}  # by slot
        self._rolls: dict[_Identity, int] = {}  # rolls of each message
        self._heap: list[_PendingTimer] = []
        self._is_incomplete = False

    def add(self, records: bytes | bytearray) -> None:
        """Process the next records of the queue."""
        record, at = self._record, 0
        while at < len(records) and (size := record.read(records, at, len(records), False)) > 0:
            self._add(record)
            at += size

    def found(self) -> list[tuple[StoredMessage, int]]:
        """Return the pending messages with their due times, the next due first."""
        pending = sorted(
            (each for each in self._heap if self._is_deliverable(each.stored)), reverse=True
        )
        return [(each.stored, -each.minus_due_ms) for each in pending[: self._limit]]

    @property
    def is_exact(self) -> bool:
        """Whether `found` is exact."""
        return not self._is_incomplete or len(self.found()) == self._limit

    def restart(self) -> None:
        """Prepare to read the queue again from its start; known recalls and rolls stay."""
        self._heap, self._is_incomplete = [], False

    def _add(self, record: RecordCursor) -> None:
        out = record.property(properties.TIMER_OUT_MS)
        if out is None or not out.isdecimal() or int(out) + _SLOT_MS_MAX <= self._now_ms:
            return
        out_ms = int(out)
        if record.property(properties.TIMER_DEL_UNIQUE_KEY) is not None:
            self._recalls.setdefault(out_ms, set()).add(recall_key_of(record.property))
            return
        rolls = _rolls(record.property(properties.TIMER_ROLL_TIMES))
        if rolls:
            identity = _Identity(
                record.property(properties.REAL_TOPIC) or "",
                record.property(properties.UNIQUE_KEY) or "",
                out_ms,
            )
            self._rolls[identity] = max(rolls, self._rolls.get(identity, 0))
        due_ms = exact_time(record.store_time_ms, record.property, out_ms, _PRECISION_MS)
        if due_ms <= self._now_ms or not self._is_wanted(record):
            return
        is_full = self._limit is not None and len(self._heap) >= self._limit + _SPARE
        if is_full and (-due_ms, -record.queue_offset) < self._heap[0][:2]:
            self._is_incomplete = True
            return
        candidate = _PendingTimer(-due_ms, -record.queue_offset, record.message())
        if not self._is_deliverable(candidate.stored):
            return
        if is_full:
            self._is_incomplete = True
            heapq.heapreplace(self._heap, candidate)
        else:
            heapq.heappush(self._heap, candidate)

    def _is_deliverable(self, stored: StoredMessage) -> bool:
        """Return whether a message will be delivered as far as known: neither recalled nor rolled
        since.
        """
        found = stored.properties()
        out_ms = int(found[properties.TIMER_OUT_MS])
        identity = _Identity(
            found.get(properties.REAL_TOPIC, ""), found.get(properties.UNIQUE_KEY, ""), out_ms
        )
        if identity.unique_key and _rolls(found.get(properties.TIMER_ROLL_TIMES)) < self._rolls.get(
            identity, 0
        ):
            return False
        return not is_recalled(found, self._recalls.get(out_ms, ()))


def _rolls(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
