"""Long polling: holds pulls that found nothing yet, and decides which to answer, and when.

Sans-IO: time comes in as `now_ms` of the monotonic clock, pulls to answer go out as return values;
sockets are the caller's. A caller that reads the queue and holds the pull in one step misses no
arrival.

Messages that do not match a pull's filter leave it held, but only until its next check, every
`check_ms`: then it is answered with the offset after them, so that its consumer advances although
nothing matches.

An arriving message is matched against the filters of the pulls that wait for it, up to a budget of
work (`FILTER_WORK_MAX`). Pulls beyond the budget count as not matching: their next check reads the
message itself.

Pulls are matched and released in batches of `WAKES_MAX`: `wake_more` continues with an arrival, the
next `expire` with a deadline. Messages that arrive in a queue before that is finished are not
matched one by one: all pulls held there are released afterwards, whatever their filters.

Invariant: a held pull is in the list of its queue, of its connection and of the moment when it is
due, or in none of them: it leaves once, by arrival, deadline or disconnect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, TypeAlias

from orbitmq.message.record_read import RecordCursor
from orbitmq.store.config import FILTER_STEP_WORK, FILTER_WORK_MAX
from orbitmq.store.reads import MessageFilter, TagsFilter
from orbitmq.store.types import QueueKey, QueueOffset

WAKES_MAX: Final = 100  # pulls matched in one batch

_NONE: Final[Sequence[PendingPull]] = ()

# Reads the record of a queue's message; None if it cannot be read.
RecordOf = Callable[[QueueKey, QueueOffset], bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LongPollingConfig:
    """How long pulls are held, and how many."""

    long_polling: bool = True
    short_polling_ms: int = 1_000  # how long a pull is held if long polling is off
    check_ms: int = 5_000
    # a consumer holds one for each of its queues, and a pull that is not held is retried at once
    held_pulls_max: int = 100_000
    held_bytes_max: int = (
        128 * 1024 * 1024
    )  # of the held requests: a pull has a few hundred bytes, and may have 16 MiB


class PendingPull:
    """A held pull from `offset` on; equal only to itself.

    `wanted` is its filter, None for any message. `resume` is called with it when it is released;
    `request` and `connection` belong to the holder. `size` is the request's size in memory.
    """

    __slots__ = (
        *("connection", "deadline_ms", "due_ms", "held_ms", "is_skipped", "offset"),
        *("queue", "request", "resume", "size", "suspend_ms", "wanted"),
    )

    def __init__(
        self,
        *,
        connection: object,
        request: object,
        size: int,
        offset: QueueOffset,
        suspend_ms: int,
        wanted: MessageFilter | None,
        resume: Resume,
    ) -> None:
        self.connection = connection
        self.request = request
        self.size = size
        self.offset = offset
        self.suspend_ms = suspend_ms
        self.wanted = wanted
        self.resume = resume
        self.queue: QueueKey | None = None  # while it is held
        self.held_ms = 0
        self.deadline_ms = 0
        self.due_ms = 0
        self.is_skipped = False  # a message did not match it


Resume: TypeAlias = Callable[[PendingPull], object]


class _Arrived:
    """An arrived message and the results of filters; its record is read once, when the first filter
    needs it.
    """

    __slots__ = ("_offset", "_queue", "_record", "_record_of", "_tags_code", "_work")

    def __init__(
        self,
        queue: QueueKey,
        offset: QueueOffset,
        tags_code: int | None,
        record_of: RecordOf | None,
    ) -> None:
        self._queue = queue
        self._offset = offset
        self._tags_code = tags_code
        self._record_of = record_of
        self._record: RecordCursor | None = None
        self._work = 0

    def is_wanted(self, wanted: MessageFilter | None) -> bool:
        if wanted is None:
            return True
        codes, tags_code = wanted.tags_codes, self._tags_code
        if not (
            codes is None or tags_code is None or tags_code in codes
        ) or not wanted.matches_entry(tags_code, None):
            return False
        if isinstance(wanted, TagsFilter):
            return True
        record = self._record or self._read()
        if record is None:
            return True
        self._work += wanted.record_cost * (FILTER_STEP_WORK + record.properties_size)
        return self._work <= FILTER_WORK_MAX and wanted.matches_record(record)

    def _read(self) -> RecordCursor | None:
        """Return the record; None if it cannot be read."""
        content = None if self._record_of is None else self._record_of(self._queue, self._offset)
        if content is None:
            self._record_of = None
            return None
        self._record = RecordCursor.on(content)
        return self._record


class _Crowd:
    """The remaining pulls that were held for a message when it arrived."""

    __slots__ = ("arrived", "later_offset", "next_offset", "rest")

    def __init__(
        self, arrived: _Arrived, next_offset: QueueOffset, waiting: Iterable[PendingPull]
    ) -> None:
        self.arrived = arrived
        self.next_offset = next_offset
        self.rest = list(waiting)[
            ::-1
        ]  # emptied one by one from its end: freeing all at once would take long
        self.later_offset: QueueOffset | None = None  # after the messages that arrived meanwhile

    def next(self, count: int) -> list[PendingPull]:
        return [self.rest.pop() for _ in range(min(count, len(self.rest)))]


class PendingPulls:
    """Holds pull requests until a message arrives or the deadline passes."""

    def __init__(
        self, config: LongPollingConfig | None = None, *, wakes_max: int = WAKES_MAX
    ) -> None:
        self.config = config or LongPollingConfig()
        self._wakes_max = wakes_max
        assert self.config.check_ms > 0, self.config
        self._by_queue: dict[QueueKey, dict[PendingPull, None]] = {}
        self._by_connection: dict[object, dict[PendingPull, None]] = {}
        self._by_due_ms: dict[int, dict[PendingPull, None]] = {}
        self._due_ms: list[int] = []  # a heap of the keys of _by_due_ms
        self._crowds: dict[QueueKey, _Crowd] = {}
        self._size = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._size

    @property
    def next_ms(self) -> int | None:
        """Return when to call `expire` next; None while no pull is held."""
        while self._due_ms and not self._by_due_ms[self._due_ms[0]]:
            del self._by_due_ms[heappop(self._due_ms)]
        return self._due_ms[0] if self._due_ms else None

    def hold(self, queue: QueueKey, pull: PendingPull, now_ms: int) -> bool:
        """Hold a pull until the queue's next message. Returns False if too many are held: then it
        must be answered at once.
        """
        assert pull.queue is None, "a pull that is held already"
        config = self.config
        if self._size >= config.held_pulls_max or self._bytes + pull.size > config.held_bytes_max:
            return False
        pull.queue = queue
        pull.held_ms = now_ms
        pull.deadline_ms = now_ms + (
            max(pull.suspend_ms, 0) if config.long_polling else config.short_polling_ms
        )
        self._by_queue.setdefault(queue, {})[pull] = None
        self._by_connection.setdefault(pull.connection, {})[pull] = None
        self._plan(pull, now_ms)
        self._size += 1
        self._bytes += pull.size
        return True

    def on_arrival(
        self,
        queue: QueueKey,
        next_offset: QueueOffset,
        tags_code: int | None,
        record_of: RecordOf | None = None,
    ) -> Sequence[PendingPull]:
        """Release the pulls that match the message before `next_offset`; the rest stay held. An
        unknown tags code, or an unreadable record, matches every filter.

        A filter on more than tags matches any message, unless `record_of` returns the record.
        """
        waiting = self._by_queue.get(queue)
        if waiting is None:  # the case for nearly every message
            return _NONE
        crowd = self._crowds.get(queue)
        if crowd is not None:
            crowd.later_offset = next_offset
            return _NONE
        arrived = _Arrived(queue, QueueOffset(next_offset - 1), tags_code, record_of)
        if len(waiting) <= self._wakes_max:
            return self._wanting(arrived, next_offset, waiting)
        crowd = self._crowds[queue] = _Crowd(arrived, next_offset, waiting)
        return self._wanting(arrived, next_offset, crowd.next(self._wakes_max))

    @property
    def has_more_to_wake(self) -> bool:
        """Whether to call `wake_more`: an arrival was not matched against all held pulls yet."""
        return bool(self._crowds)

    def wake_more(self) -> Sequence[PendingPull]:
        """Release the next matching pulls of an arrival that was not matched against all."""
        queue, crowd = next(iter(self._crowds.items()))
        part = crowd.next(self._wakes_max)
        if not part:
            del self._crowds[queue]
            if crowd.later_offset is not None:
                return self.on_arrival(queue, crowd.later_offset, None)
        return self._wanting(
            crowd.arrived, crowd.next_offset, (pull for pull in part if pull.queue == queue)
        )

    def _wanting(
        self, arrived: _Arrived, next_offset: QueueOffset, waiting: Iterable[PendingPull]
    ) -> Sequence[PendingPull]:
        """Release the pulls that match a message; mark the others as skipped."""
        released = []
        for pull in waiting:
            if next_offset > pull.offset:
                if arrived.is_wanted(pull.wanted):
                    released.append(pull)
                else:
                    pull.is_skipped = True
        for pull in released:
            self._release(pull)
        return released

    def expire(self, now_ms: int) -> list[PendingPull]:
        """Release the pulls whose deadline has passed, and those that were skipped since their last
        check.

        Handles one batch; `next_ms` tells whether there are more.
        """
        released: list[PendingPull] = []
        looked_at = 0
        while looked_at < self._wakes_max and self._due_ms and self._due_ms[0] <= now_ms:
            due = self._by_due_ms[self._due_ms[0]]
            while due and looked_at < self._wakes_max:
                pull = (
                    next(iter(due)) if len(due) <= self._wakes_max else next(reversed(due))
                )  # the last one: the first of many is slow to find
                del due[pull]
                looked_at += 1
                if pull.is_skipped or pull.deadline_ms <= now_ms:
                    released.append(pull)
                else:
                    self._plan(pull, now_ms)
            if not due:
                del self._by_due_ms[heappop(self._due_ms)]
        for pull in released:
            self._release(pull)
        return released

    def drop(self, connection: object) -> bool:
        """Drop pulls of a closed connection, one batch at a time; return whether those were all."""
        held = self._by_connection.get(connection, {})
        for _ in range(min(len(held), self._wakes_max)):
            self._release(next(reversed(held)))
        return connection not in self._by_connection

    def _plan(self, pull: PendingPull, now_ms: int) -> None:
        """Schedule the next check of the pull: at its deadline, or earlier if it may have been
        skipped.
        """
        due_ms = pull.due_ms = min(pull.deadline_ms, now_ms + self.config.check_ms)
        due = self._by_due_ms.get(due_ms)
        if due is None:
            due = self._by_due_ms[due_ms] = {}
            heappush(self._due_ms, due_ms)
        due[pull] = None

    def _release(self, pull: PendingPull) -> None:
        """Remove the pull from every list."""
        queue = pull.queue
        assert queue is not None, "a pull leaves once"
        pull.queue = None
        self._size -= 1
        self._bytes -= pull.size
        waiting = self._by_queue[queue]
        del waiting[pull]
        if not waiting:
            del self._by_queue[queue]
        of_connection = self._by_connection[pull.connection]
        del of_connection[pull]
        if not of_connection:
            del self._by_connection[pull.connection]
        due = self._by_due_ms.get(pull.due_ms)
        if due is not None:  # absent if the pull is released at its deadline
            due.pop(pull, None)
