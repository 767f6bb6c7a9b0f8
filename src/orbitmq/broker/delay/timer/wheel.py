"""The timer wheel: for each slot of time, where its entries begin and end in the timer log, and how
many messages it holds.

The file `timerwheel` has 1,209,600 slots of 32 bytes, big-endian; the slot of a time is at (time /
precision) mod 1,209,600:

| at | size | |
|---|---|---|
| 0 | 8 | time / precision: a slot of another time is empty |
| 8 | 8 | position of its first entry |
| 16 | 8 | position of its last entry |
| 24 | 4 | number of messages, less the recalled ones |
| 28 | 4 | 0 |

Only slots with messages are in memory, so memory grows with the number of slots in use, not of
messages. Crash rule: changed slots are written after the log that they point into is flushed, and
before the check point says so; so a slot on disk may be ahead of the check point, never behind it,
and `rewind` takes it back. Removed slots stay in the file as slots of the past: after the clock was
set back, `write` first erases those that would lie in the future again. Thread rule: the loop
thread, except that a worker writes what `changes` returned.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.broker.delay.timer.log import DELETE, NO_POSITION, TimerEntry
from orbitmq.store.file_layer import FileLayer

SLOTS: Final = 2 * 7 * 86_400
_SLOT: Final = Struct(">qqqii")
_FILE_SIZE: Final = SLOTS * _SLOT.size
_CHUNK: Final = 1 << 20
_SPANS_MS: Final = (60_000, 1_000)  # multiples of every precision


class Slot(NamedTuple):
    """Where the entries of a slot are, and how many messages it holds."""

    first: int
    last: int
    held: int


EMPTY: Final = Slot(NO_POSITION, NO_POSITION, 0)


class TimerWheel:
    """The slots by the time at which they begin."""

    def __init__(self, precision_ms: int) -> None:
        self.precision_ms = precision_ms
        self._slots: dict[int, Slot] = {}
        self._times: list[
            int
        ] = []  # a heap of the times in `_slots`, and of some that were removed
        self._changed: set[int] = set()
        self.count = 0  # of messages in all slots
        # The same by the minute and by the second in which the slots begin.
        self._spans: dict[int, Counter[int]] = {
            span_ms: Counter() for span_ms in _SPANS_MS if span_ms > precision_ms
        }

    def __len__(self) -> int:
        return len(self._slots)

    def slot(self, time_ms: int) -> Slot:
        return self._slots.get(time_ms, EMPTY)

    def first_time(self) -> int | None:
        """Return the time of the first slot with messages."""
        while self._times and self._times[0] not in self._slots:
            heapq.heappop(self._times)
        return self._times[0] if self._times else None

    def due_within(self, now_ms: int, bounds_s: Sequence[int]) -> list[tuple[int, int]]:
        """Return, for each bound in ascending order, how many messages are due between the previous
        bound and it.
        """
        edges_ms = [self.time_of(now_ms + 1000 * bound_s) for bound_s in (0, *bounds_s)]
        return [
            (bound_s, self._held_between(*pair))
            for bound_s, pair in zip(bounds_s, pairwise(edges_ms), strict=True)
        ]

    def _held_between(self, begin_ms: int, end_ms: int) -> int:
        """Return how many messages the slots between two times hold; sums of whole spans are kept,
        so a day takes about a thousand lookups.
        """
        held, at = 0, begin_ms
        while at < end_ms:
            for span_ms, counts in self._spans.items():
                if at % span_ms == 0 and at + span_ms <= end_ms:
                    held += counts[at]
                    at += span_ms
                    break
            else:
                held += self.slot(at).held
                at += self.precision_ms
        return held

    def add(self, entry: TimerEntry, position: int) -> None:
        """Note the entry at that position as the last of its slot."""
        time_ms = self.time_of(entry.enqueued_ms + entry.delay_ms)
        first, _, held = self._slots.get(time_ms, EMPTY)
        self._put(
            time_ms,
            Slot(position if first == NO_POSITION else first, position, held + _weight(entry)),
        )

    def remove(self, time_ms: int) -> None:
        """Forget a slot; it stays in the file as one of the past."""
        slot = self._slots.pop(time_ms, None)
        if slot is not None:
            self._hold(time_ms, -slot.held)

    def remove_before(self, time_ms: int) -> None:
        """Forget all slots before that time."""
        while (first := self.first_time()) is not None and first < time_ms:
            self.remove(first)

    def times(self, begin_ms: int, end_ms: int | None = None) -> list[int]:
        """Return the times of the slots with messages in order, from one time to another or to the
        end.
        """
        return sorted(
            time_ms
            for time_ms in self._slots
            if begin_ms <= time_ms and (end_ms is None or time_ms < end_ms)
        )

    def time_of(self, time_ms: int) -> int:
        """Return when the slot of a time begins."""
        return time_ms // self.precision_ms * self.precision_ms

    def rewind(self, end: int, read: Callable[[int], TimerEntry | None]) -> bool:
        """Remove the entries from position `end` on. Returns False if the entries cannot be read;
        then the wheel has to be rebuilt.
        """
        for time_ms, slot in [
            (time_ms, slot) for time_ms, slot in self._slots.items() if slot.last >= end
        ]:
            last, held = slot.last, slot.held
            while last >= end:
                entry = read(last)
                if (
                    entry is None
                    or self.time_of(entry.slot_ms) != time_ms
                    or entry.previous >= last
                ):
                    return False
                last, held = entry.previous, held - _weight(entry)
            if last == NO_POSITION:
                self.remove(time_ms)
            else:
                self._put(time_ms, Slot(slot.first, last, held))
        return True

    def clear(self) -> None:
        self._slots, self._times, self._changed, self.count = {}, [], set(), 0
        for counts in self._spans.values():
            counts.clear()

    def changes(self) -> Mapping[int, Slot]:
        """Return the slots that changed since the last call."""
        changed = {
            time_ms: self._slots[time_ms] for time_ms in self._changed if time_ms in self._slots
        }
        self._changed = set()
        return changed

    def changes_lost(self, changes: Iterable[int]) -> None:
        """Keep changes that could not be written for the next call of `changes`."""
        self._changed.update(changes)

    def load(self, layer: FileLayer, path: Path, not_before_ms: int) -> bool:
        """Read the slots from a time on. Returns False if the file is missing or has another
        length.
        """
        if path.name not in layer.list(path.parent) or layer.size(path) != _FILE_SIZE:
            return False
        descriptor = layer.open(path)
        try:
            for unit, slot in _slots_of(layer, descriptor):
                if unit * self.precision_ms >= not_before_ms:
                    self._put(unit * self.precision_ms, slot)
        finally:
            layer.close(descriptor)
        self._changed = set()
        return True

    def _put(self, time_ms: int, slot: Slot) -> None:
        if time_ms not in self._slots:
            heapq.heappush(self._times, time_ms)
        self._hold(time_ms, slot.held - self.slot(time_ms).held)
        self._slots[time_ms] = slot
        self._changed.add(time_ms)

    def _hold(self, time_ms: int, change: int) -> None:
        """Add to the message counts."""
        self.count += change
        for span_ms, counts in self._spans.items():
            begin_ms = time_ms - time_ms % span_ms
            counts[begin_ms] += change
            if not counts[begin_ms]:
                del counts[begin_ms]


def write(
    layer: FileLayer,
    path: Path,
    precision_ms: int,
    slots: Mapping[int, Slot],
    stale: Sequence[range] = (),
) -> None:
    """Write slots into the file, created if missing, and sync it. Slots of the times in `stale` are
    erased. Blocks; runs in a worker.
    """
    if path.name not in layer.list(path.parent):
        layer.make_folder(path.parent)
        layer.close(layer.open(path, create=True))
        layer.sync_dir(path.parent)
    descriptor = layer.open(path)
    try:
        if layer.size(path) != _FILE_SIZE:
            layer.truncate(descriptor, _FILE_SIZE)
        if stale:
            for unit in [
                unit
                for unit, _ in _slots_of(layer, descriptor)
                if any(unit * precision_ms in times for times in stale)
            ]:
                layer.pwrite(descriptor, bytes(_SLOT.size), unit % SLOTS * _SLOT.size)
        for time_ms, slot in slots.items():
            unit = time_ms // precision_ms
            layer.pwrite(
                descriptor,
                _SLOT.pack(unit, slot.first, slot.last, slot.held, 0),
                unit % SLOTS * _SLOT.size,
            )
        layer.fdatasync(descriptor)
    finally:
        layer.close(descriptor)


def _slots_of(layer: FileLayer, descriptor: int) -> Iterator[tuple[int, Slot]]:
    """Yield the time / precision of each slot in the file, and the slot."""
    at = 0
    while (
        at := layer.next_data(descriptor, at, _FILE_SIZE) // _SLOT.size * _SLOT.size
    ) < _FILE_SIZE:
        chunk = layer.pread(descriptor, min(_CHUNK, _FILE_SIZE - at), at)
        for number, (unit, first, last, count, _) in enumerate(
            _SLOT.iter_unpack(chunk), at // _SLOT.size
        ):
            if unit > 0 and unit % SLOTS == number and last >= 0:
                yield unit, Slot(first, last, count)
        at += len(chunk)


def _weight(entry: TimerEntry) -> int:
    """Return what an entry adds to its slot's count: a recall subtracts the message it recalls."""
    return -1 if entry.magic & DELETE else 1
