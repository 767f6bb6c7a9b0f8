"""Long polling: holds the pulls that found nothing yet, and says which to answer, and when.

Sans-IO: time comes in as `now_ms` of the monotonic clock, pulls to answer go out as return values; sockets are the caller's. Whoever looks
a message up and holds the pull in one go misses no arrival.

Messages that a pull does not want leave it held, but only until it is looked at the next time, every `check_ms`: then it is answered with
the offset behind them, so that its consumer gets on although nothing is for it.

Invariant: a held pull stands in the list of its queue, of its connection and of the moment when it is due, or in none of them: it leaves
once, by arrival, deadline or disconnect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from orbitmq.message.record_read import RecordCursor
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.frame import decode_one
from orbitmq.remoting.channel import Channel
from orbitmq.store.reads import MessageFilter, TagsFilter
from orbitmq.store.types import QueueKey, QueueOffset

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


class HeldPull:
    """A pull of a queue from `offset` on that waits, equal only to itself. `wanted` None: any message will do.

    The request may be the frame that it came in: `frame` has it as long as nobody asked for the command.
    """

    __slots__ = ("_request", "channel", "deadline_ms", "due_ms", "is_passed_over", "offset", "queue", "suspend_ms", "wanted")

    def __init__(
        self, channel: Channel, request: RemotingCommand | bytes, offset: QueueOffset, suspend_ms: int, wanted: MessageFilter | None = None
    ) -> None:
        self.channel = channel
        self._request = request
        self.offset = offset
        self.suspend_ms = suspend_ms
        self.wanted = wanted
        self.queue: QueueKey | None = None  # while it is held
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

    def _wants(self, tags_code: int | None, offset: QueueOffset, record_of: RecordOf | None) -> bool:
        wanted = self.wanted
        if wanted is None:
            return True
        codes = wanted.tags_codes
        if not (codes is None or tags_code is None or tags_code in codes) or not wanted.matches_entry(tags_code, None):
            return False
        if record_of is None or isinstance(wanted, TagsFilter):
            return True
        assert self.queue is not None, "it is held"
        record = record_of(self.queue, offset)
        return record is None or wanted.matches_record(RecordCursor.on(record))


class PullHold:
    """The pulls that wait."""

    def __init__(self, config: LongPollingConfig | None = None) -> None:
        self.config = config or LongPollingConfig()
        assert self.config.check_ms > 0, self.config
        self._by_queue: dict[QueueKey, dict[HeldPull, None]] = {}
        self._by_channel: dict[Channel, dict[HeldPull, None]] = {}
        self._by_due_ms: dict[int, dict[HeldPull, None]] = {}
        self._due_ms: list[int] = []  # a heap of the keys of _by_due_ms
        self._size = 0

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
        if self._size >= config.held_pulls_max:
            return False
        pull.queue = queue
        pull.deadline_ms = now_ms + (max(pull.suspend_ms, 0) if config.long_polling else config.short_polling_ms)
        self._by_queue.setdefault(queue, {})[pull] = None
        self._by_channel.setdefault(pull.channel, {})[pull] = None
        self._plan(pull, now_ms)
        self._size += 1
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
        released = []
        for pull in waiting:
            if next_offset > pull.offset:
                if pull._wants(tags_code, QueueOffset(next_offset - 1), record_of):
                    released.append(pull)
                else:
                    pull.is_passed_over = True
        for pull in released:
            self._release(pull)
        return released

    def expire(self, now_ms: int) -> list[HeldPull]:
        """Release the pulls whose time is over, and those that were passed over since they were looked at last."""
        released = []
        while self._due_ms and self._due_ms[0] <= now_ms:
            for pull in self._by_due_ms.pop(heappop(self._due_ms)):
                if pull.is_passed_over or pull.deadline_ms <= now_ms:
                    released.append(pull)
                else:
                    self._plan(pull, now_ms)
        for pull in released:
            self._release(pull)
        return released

    def drop(self, channel: Channel) -> None:
        """Forget the pulls of a connection that is gone."""
        for pull in list(self._by_channel.get(channel, ())):
            self._release(pull)

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
