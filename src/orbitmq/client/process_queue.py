"""The messages of one queue between pull and commit.

Pure. Messages come in the order of their offsets; those that are taken may be finished in any order. Invariant: `commit_offset` never
passes a message that is not finished, so whoever begins there again misses none.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.setting_checks import at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLimits:
    """How much of a queue is kept before it is pulled no further."""

    count_max: int = 1_000
    bytes_max: int = 100 << 20
    span_max: int = 2_000  # between the first message that is not finished and the last one; only where the order does not count

    def __post_init__(self) -> None:
        at_least(1, self, "count_max", "bytes_max", "span_max")


class ProcessQueue:
    """See above."""

    def __init__(self) -> None:
        self._unfinished: OrderedDict[int, ReceivedMessage] = OrderedDict()
        self._waiting: deque[ReceivedMessage] = deque()
        self._next_offset: int | None = None
        self.size = 0  # bytes of the bodies of what is not finished

    def __len__(self) -> int:
        return len(self._unfinished)

    @property
    def waiting_count(self) -> int:
        """How many nobody has taken yet."""
        return len(self._waiting)

    @property
    def commit_offset(self) -> int | None:
        """Where somebody else would go on; None while nothing came."""
        return next(iter(self._unfinished), self._next_offset)

    @property
    def position(self) -> int | None:
        """The offset of the next message that `take` gives, or will give; None while nothing came."""
        return self._waiting[0].queue_offset if self._waiting else self._next_offset

    @property
    def span(self) -> int:
        """How far the last message is from the first that is not finished."""
        return next(reversed(self._unfinished)) - next(iter(self._unfinished)) if self._unfinished else 0

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        """Take in what a pull brought, and where it goes on."""
        begin, unfinished, size = self._next_offset or 0, self._unfinished, 0
        for message in messages:
            offset = message.stored.queue_offset
            if offset >= begin and offset not in unfinished:
                unfinished[offset] = message
                self._waiting.append(message)
                size += message.body_size
        self.size += size
        self._next_offset = max(next_offset, begin)

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """The next messages that nobody has taken; they are unfinished until `finish`, or go back by `give_back`."""
        if count_max >= len(self._waiting):
            taken = list(self._waiting)
            self._waiting.clear()
            return taken
        return [self._waiting.popleft() for _ in range(count_max)]

    def finish(self, messages: Iterable[ReceivedMessage]) -> None:
        """These are done with: consumed, sent back, or given up."""
        for message in messages:
            self.finish_one(message)

    def finish_one(self, message: ReceivedMessage) -> None:
        """This one is done with."""
        if self._unfinished.pop(message.stored.queue_offset, None) is not None:
            self.size -= message.body_size

    def __contains__(self, offset: int) -> bool:
        """Whether the message at an offset is here and not finished."""
        return offset in self._unfinished

    @property
    def first(self) -> ReceivedMessage | None:
        """The first message that is not finished: nothing behind it is committed."""
        return next(iter(self._unfinished.values()), None)

    def give_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """These were taken and not finished: they come first again, in the same order."""
        self._waiting.extendleft(reversed(messages))

    def pressure(self, limits: CacheLimits, *, in_order: bool) -> str | None:
        """Why no more should be pulled now; None when there is room."""
        if len(self) > limits.count_max:
            return f"{len(self)} messages are not finished, more than {limits.count_max}"
        if self.size > limits.bytes_max:
            return f"{self.size} bytes are not finished, more than {limits.bytes_max}"
        if not in_order and self.span > limits.span_max:
            return f"the first message that is not finished is {self.span} before the last, more than {limits.span_max}"
        return None
