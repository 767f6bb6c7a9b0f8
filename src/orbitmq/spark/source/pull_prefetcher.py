"""Plans the pulls for a range of a queue so that several are in flight while earlier replies are
decoded. Sans-IO.

The broker limits a reply by count and bytes, so the first reply shows how far apart the next pulls
should start. A reply that falls short is completed by another pull; one that reaches further
overlaps the next and is cut. In a filtered queue the reach of a reply is unpredictable: such pulls
go one at a time.

Invariant: the pieces taken cover [begin, end) exactly once and in order, whatever the order of the
replies, except for holes that a reply reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

COUNT_MAX: Final = 1_024  # messages per pull; brokers return fewer unless configured otherwise
WINDOW_MAX: Final = 64  # pulls in flight
_BYTES_AHEAD: Final = 4 << 20  # in flight, estimated from the last reply


class Piece(NamedTuple):
    """Stored records, of which those with an offset in [begin, end) count."""

    body: memoryview | bytes
    begin: int
    end: int


@dataclass(slots=True, eq=False)
class PlannedPull:
    """A pull meant to cover [begin, end); its reply may fall short or reach further."""

    begin: int
    end: int
    count: int
    is_sent: bool = False
    body: memoryview | bytes | None = None  # of its reply


class PullPrefetcher:
    """Decides which pulls to send for one range, and hands out their replies in order."""

    def __init__(self, begin: int, end: int, *, is_dense: bool) -> None:
        assert begin <= end, (begin, end)
        self._pulls: list[PlannedPull] = []  # not taken yet, by offset
        self._frontier = begin  # everything before it is planned or taken
        self._end = end
        self._step = 0  # messages per reply; 0 before the first reply
        self._window = 1
        self._is_dense = is_dense
        self._in_flight = 0

    @property
    def is_done(self) -> bool:
        return not self._pulls and self._frontier == self._end

    @property
    def position(self) -> int:
        """Everything before this offset was taken."""
        return self._pulls[0].begin if self._pulls else self._frontier

    def next_pull(self) -> PlannedPull | None:
        """Return the pull to send now, or None."""
        if self._in_flight >= self._window:
            return None
        pull = next((each for each in self._pulls if not each.is_sent), None)
        if pull is None:
            if self._frontier == self._end:
                return None
            step = self._step or self._end - self._frontier
            pull = PlannedPull(self._frontier, min(self._frontier + step, self._end), 0)
            pull.count = min(2 * step, self._end - self._frontier, COUNT_MAX)
            self._frontier = pull.end
            self._pulls.append(pull)
        pull.is_sent = True
        self._in_flight += 1
        return pull

    def on_reply(self, pull: PlannedPull, body: memoryview | bytes, next_offset: int) -> None:
        """Note that a pull returned `body` and that the queue continues at `next_offset`, which is
        after the pull's begin.
        """
        assert next_offset > pull.begin, (pull, next_offset)
        self._in_flight -= 1
        reached = next_offset - pull.begin
        if self._is_dense and body and (reached < pull.count or reached > self._step):
            self._step = (3 * self._step + reached + 3) // 4 if self._step else reached
            self._window = min(max(_BYTES_AHEAD // len(body), 2), WINDOW_MAX)
        if self._pulls[-1] is pull:  # nothing is planned after it
            pull.end = self._frontier = min(next_offset, self._end)
        elif next_offset < pull.end:
            rest = PlannedPull(next_offset, pull.end, min(pull.end - next_offset, COUNT_MAX))
            self._pulls.insert(self._pulls.index(pull) + 1, rest)
            pull.end = next_offset
        elif not body:  # a hole, however long
            self._frontier = min(max(self._frontier, next_offset), self._end)
        pull.body = body

    def on_failure(self, pull: PlannedPull) -> None:
        """Note that a pull returned nothing and must be sent again."""
        self._in_flight -= 1
        pull.is_sent = False

    def restart(self) -> None:
        """Send all pulls without a reply again: the connection was lost."""
        for pull in self._pulls:
            pull.is_sent = pull.body is not None
        self._in_flight = 0

    def take(self) -> Piece | None:
        """Return the next piece, or None if its reply is not here yet."""
        if not self._pulls or self._pulls[0].body is None:
            return None
        pull = self._pulls.pop(0)
        assert pull.body is not None
        return Piece(pull.body, pull.begin, pull.end)

    def copy_pending(self) -> None:
        """Copy replies that cannot be taken yet, because their buffer will be reused."""
        for pull in self._pulls:
            if isinstance(pull.body, memoryview):
                pull.body = bytes(pull.body)
