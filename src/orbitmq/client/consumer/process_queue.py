"""The messages of one queue between pull and commit.

Pure. Messages arrive in offset order; taken messages may be finished in any order. Invariant:
`commit_offset` never passes an unfinished message, so that resuming there misses none.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orbitmq.client.checks import require_at_least
from orbitmq.client.messages import ReceivedMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLimits:
    """How much of a queue is cached before pulling pauses."""

    count_max: int = 1_000
    bytes_max: int = 100 << 20
    # Offsets between the first unfinished message and the last; only without ordering.
    span_max: int = 2_000

    def __post_init__(self) -> None:
        require_at_least(1, self, "count_max", "bytes_max", "span_max")


class ProcessQueue:
    """The unfinished messages of one queue, and its commit offset."""

    def __init__(self) -> None:
        self._unfinished: OrderedDict[int, ReceivedMessage] = OrderedDict()
        self._waiting: deque[ReceivedMessage] = deque()
        self._next_offset: int | None = None
        self.size = 0  # body bytes of unfinished messages

    def __len__(self) -> int:
        return len(self._unfinished)

    @property
    def waiting_count(self) -> int:
        """The number of messages not taken yet."""
        return len(self._waiting)

    @property
    def commit_offset(self) -> int | None:
        """The offset at which another member would resume; None before the first pull."""
        return next(iter(self._unfinished), self._next_offset)

    @property
    def position(self) -> int | None:
        """The offset of the next message that `take` returns; None before the first pull."""
        return self._waiting[0].queue_offset if self._waiting else self._next_offset

    @property
    def span(self) -> int:
        """The distance from the first unfinished message to the last."""
        return (
            next(reversed(self._unfinished)) - next(iter(self._unfinished))
            if self._unfinished
            else 0
        )

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        """Add the messages of a pull, and note where the next one starts."""
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
        """Return the next untaken messages; they stay unfinished until `finish` or `give_back`."""
        if count_max >= len(self._waiting):
            taken = list(self._waiting)
            self._waiting.clear()
            return taken
        return [self._waiting.popleft() for _ in range(count_max)]

    def finish(self, messages: Iterable[ReceivedMessage]) -> None:
        """Finish messages: consumed, sent back, or given up."""
        for message in messages:
            self.finish_one(message)

    def finish_one(self, message: ReceivedMessage) -> None:
        """Finish one message."""
        if self._unfinished.pop(message.stored.queue_offset, None) is not None:
            self.size -= message.body_size

    def __contains__(self, offset: int) -> bool:
        """Return whether the message at an offset is cached and unfinished."""
        return offset in self._unfinished

    @property
    def first(self) -> ReceivedMessage | None:
        """The first unfinished message, which holds back the commit offset."""
        return next(iter(self._unfinished.values()), None)

    def give_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Return taken, unfinished messages to the front, in their order."""
        self._waiting.extendleft(reversed(messages))

    def pressure(self, limits: CacheLimits, *, in_order: bool) -> str | None:
        """Explain why no more should be pulled now; return None if there is room."""
        if len(self) > limits.count_max:
            return f"{len(self)} messages are unfinished, more than {limits.count_max}"
        if self.size > limits.bytes_max:
            return f"{self.size} bytes are unfinished, more than {limits.bytes_max}"
        if not in_order and self.span > limits.span_max:
            return (
                f"the first unfinished message is {self.span} offsets before the last, more than"
                f" {limits.span_max}"
            )
        return None
