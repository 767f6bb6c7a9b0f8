"""Long polling: holds the pulls that found nothing yet, and says which to answer, and when.

Sans-IO: time comes in as `now_ms` of the monotonic clock, pulls to answer go out as return values; sockets are the caller's. Whoever looks
a message up and holds the pull in one go misses no arrival.

Messages that a pull does not want leave it held, but only until it is looked at the next time, every `check_ms`: then it is answered with
the offset behind them, so that its consumer gets on although nothing is for it.

A message is put to the filters of all pulls that wait for it as long as that is reasonable (`FILTER_WORK_MAX`). The rest is treated as if
they did not want it: the next check answers them, and looks at the message itself.

A crowd is looked at and released in parts of `WAKES_MAX`: the rest of an arrival by `wake_more`, of a moment by the next `expire`. While
the rest of one arrival is under way in a queue, further ones are taken together: after it all that wait there are released, whatever
they want.

Invariant: a held pull stands in the list of its queue, of its connection and of the moment when it is due, or in none of them: it leaves
once, by arrival, deadline or disconnect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from orbitmq.message.record_read import RecordCursor
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.frame import decode_one
from orbitmq.protocol.in_flight import kept_bytes
from orbitmq.remoting.channel import Channel
from orbitmq.store.config import FILTER_STEP_WORK, FILTER_WORK_MAX
from orbitmq.store.reads import MessageFilter, TagsFilter
from orbitmq.store.types import QueueKey, QueueOffset

WAKES_MAX: Final = 100  # pulls that are looked at in one go

_NONE: Final[Sequence[HeldPull]] = ()

# The record of a message of a queue; None when it cannot be read.
RecordOf = Callable[[QueueKey, QueueOffset], bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LongPollingConfig:
    """How long, and how many, pulls may wait for a message that is not there yet."""

    long_polling: bool = True
    short_polling_ms: int = 1_000  # how long a pull waits when long polling is off
    check_ms: int = 5_000
    held_pulls_max: int = 100_000  # a consumer holds one for each of its queues, and one that is turned away asks again at once
    held_bytes_max: int = 128 * 1024 * 1024  # of their requests: a pull has a few hundred bytes, and may have 16 MiB


class HeldPull:
    """A pull of a queue from `offset` on that waits, equal only to itself. `wanted` None: any message will do.

    The request may be the frame that it came in: `frame` has it as long as nobody asked for the command.
    """

    __slots__ = (
        *("_request", "channel", "deadline_ms", "due_ms", "held_ms", "is_passed_over"),
        *("offset", "queue", "size", "suspend_ms", "wanted"),
    )

    def __init__(
        self, channel: Channel, request: RemotingCommand | bytes, offset: QueueOffset, suspend_ms: int, wanted: MessageFilter | None = None
    ) -> None:
        self.channel = channel
        self._request = request
        self.offset = offset
        self.suspend_ms = suspend_ms
        self.wanted = wanted
        self.size = len(request) if isinstance(request, bytes) else kept_bytes(request)
        self.queue: QueueKey | None = None  # while it is held
        self.held_ms = 0
        self.deadline_ms = 0
        self.due_ms = 0
        self.is_passed_over = False  # by a message that it does not want

    @property
    def frame(self) -> bytes | None:
        return self._request if isinstance(self._request, bytes) else None

    @property
    def request(self) -> RemotingCommand:
        request = decode_one(self._request) if isinstance(self._request, bytes) else self._request
        self._request = request
        return request


class _Arrived:
    """A message that arrived, and what filters say of it: its record is read once, when the first of them looks at it."""

    __slots__ = ("_offset", "_queue", "_record", "_record_of", "_tags_code", "_work")

    def __init__(self, queue: QueueKey, offset: QueueOffset, tags_code: int | None, record_of: RecordOf | None) -> None:
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
        if not (codes is None or tags_code is None or tags_code in codes) or not wanted.matches_entry(tags_code, None):
            return False
        if isinstance(wanted, TagsFilter):
            return True
        record = self._record or self._read()
        if record is None:
            return True
        self._work += wanted.record_cost * (FILTER_STEP_WORK + record.properties_size)
        return self._work <= FILTER_WORK_MAX and wanted.matches_record(record)

    def _read(self) -> RecordCursor | None:
        """The record; None when it cannot be read."""
        content = None if self._record_of is None else self._record_of(self._queue, self._offset)
        if content is None:
            self._record_of = None
            return None
        self._record = RecordCursor.on(content)
        return self._record


class _Crowd:
    """The rest of the pulls that waited for a message when it arrived."""

    __slots__ = ("arrived", "later_offset", "next_offset", "rest")

    def __init__(self, arrived: _Arrived, next_offset: QueueOffset, waiting: Iterable[HeldPull]) -> None:
        self.arrived = arrived
        self.next_offset = next_offset
        self.rest = list(waiting)[::-1]  # let go of one by one, from its end: all at once would take long
        self.later_offset: QueueOffset | None = None  # behind what arrived meanwhile

    def next(self, count: int) -> list[HeldPull]:
        return [self.rest.pop() for _ in range(min(count, len(self.rest)))]


class PullHold:
    """The pulls that wait."""

    def __init__(self, config: LongPollingConfig | None = None, *, wakes_max: int = WAKES_MAX) -> None:
        self.config = config or LongPollingConfig()
        self._wakes_max = wakes_max
        assert self.config.check_ms > 0, self.config
        self._by_queue: dict[QueueKey, dict[HeldPull, None]] = {}
        self._by_channel: dict[Channel, dict[HeldPull, None]] = {}
        self._by_due_ms: dict[int, dict[HeldPull, None]] = {}
        self._due_ms: list[int] = []  # a heap of the keys of _by_due_ms
        self._crowds: dict[QueueKey, _Crowd] = {}
        self._size = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._size

    @property
    def next_ms(self) -> int | None:
        """When to call `expire` next; None while nothing waits."""
        while self._due_ms and not self._by_due_ms[self._due_ms[0]]:
            del self._by_due_ms[heappop(self._due_ms)]
        return self._due_ms[0] if self._due_ms else None

    def hold(self, queue: QueueKey, pull: HeldPull, now_ms: int) -> bool:
        """Let a pull wait for the queue's next message; no when too many wait already: then it is to be answered at once."""
        assert pull.queue is None, "a pull that is held already"
        config = self.config
        if self._size >= config.held_pulls_max or self._bytes + pull.size > config.held_bytes_max:
            return False
        pull.queue = queue
        pull.held_ms = now_ms
        pull.deadline_ms = now_ms + (max(pull.suspend_ms, 0) if config.long_polling else config.short_polling_ms)
        self._by_queue.setdefault(queue, {})[pull] = None
        self._by_channel.setdefault(pull.channel, {})[pull] = None
        self._plan(pull, now_ms)
        self._size += 1
        self._bytes += pull.size
        return True

    def on_arrival(
        self, queue: QueueKey, next_offset: QueueOffset, tags_code: int | None, record_of: RecordOf | None = None
    ) -> Sequence[HeldPull]:
        """Release the pulls that want the message before `next_offset`; the rest stay held. A code, or a record, that is lost may be any.

        Who filters by more than tags wants whatever may be, unless `record_of` says what the message is.
        """
        waiting = self._by_queue.get(queue)
        if waiting is None:  # of nearly every message
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
        """Whether to call `wake_more`: an arrival has not been put to all that wait for it."""
        return bool(self._crowds)

    def wake_more(self) -> Sequence[HeldPull]:
        """Release the next pulls that want a message for which a crowd waits."""
        queue, crowd = next(iter(self._crowds.items()))
        part = crowd.next(self._wakes_max)
        if not part:
            del self._crowds[queue]
            if crowd.later_offset is not None:
                return self.on_arrival(queue, crowd.later_offset, None)
        return self._wanting(crowd.arrived, crowd.next_offset, (pull for pull in part if pull.queue == queue))

    def _wanting(self, arrived: _Arrived, next_offset: QueueOffset, waiting: Iterable[HeldPull]) -> Sequence[HeldPull]:
        """Release the pulls that want a message; note of the others that it passed them over."""
        released = []
        for pull in waiting:
            if next_offset > pull.offset:
                if arrived.is_wanted(pull.wanted):
                    released.append(pull)
                else:
                    pull.is_passed_over = True
        for pull in released:
            self._release(pull)
        return released

    def expire(self, now_ms: int) -> list[HeldPull]:
        """Release the pulls whose time is over, and those that were passed over since they were looked at last.

        Looks at some of them; `next_ms` tells that there are more.
        """
        released: list[HeldPull] = []
        looked_at = 0
        while looked_at < self._wakes_max and self._due_ms and self._due_ms[0] <= now_ms:
            due = self._by_due_ms[self._due_ms[0]]
            while due and looked_at < self._wakes_max:
                pull = (
                    next(iter(due)) if len(due) <= self._wakes_max else next(reversed(due))
                )  # of a crowd the last: the first is slow to find
                del due[pull]
                looked_at += 1
                if pull.is_passed_over or pull.deadline_ms <= now_ms:
                    released.append(pull)
                else:
                    self._plan(pull, now_ms)
            if not due:
                del self._by_due_ms[heappop(self._due_ms)]
        for pull in released:
            self._release(pull)
        return released

    def drop(self, channel: Channel) -> bool:
        """Forget pulls of a connection that is gone, some at a time; whether that were all."""
        held = self._by_channel.get(channel, {})
        for _ in range(min(len(held), self._wakes_max)):
            self._release(next(reversed(held)))
        return channel not in self._by_channel

    def _plan(self, pull: HeldPull, now_ms: int) -> None:
        """Look at the pull at its deadline, or earlier when it may have been passed over."""
        due_ms = pull.due_ms = min(pull.deadline_ms, now_ms + self.config.check_ms)
        due = self._by_due_ms.get(due_ms)
        if due is None:
            due = self._by_due_ms[due_ms] = {}
            heappush(self._due_ms, due_ms)
        due[pull] = None

    def _release(self, pull: HeldPull) -> None:
        """Take the pull out of every list."""
        queue = pull.queue
        assert queue is not None, "a pull leaves once"
        pull.queue = None
        self._size -= 1
        self._bytes -= pull.size
        waiting = self._by_queue[queue]
        del waiting[pull]
        if not waiting:
            del self._by_queue[queue]
        of_channel = self._by_channel[pull.channel]
        del of_channel[pull]
        if not of_channel:
            del self._by_channel[pull.channel]
        due = self._by_due_ms.get(pull.due_ms)
        if due is not None:  # it is gone when the pull's time is what releases it
            due.pop(pull, None)
