"""Which pulls to send for a range of a queue, so that several are on their way while the first is still read. Sans-IO.

A broker decides itself how much it gives at once, by count and by bytes, so the first answer shows how far apart the next pulls begin. An
answer that reaches less far is completed by another pull; what reaches further overlaps the next one, and is cut. Of a queue whose messages
are filtered nobody knows how far an answer reaches: such pulls go one after the other.

Invariant: the pieces taken cover [begin, end) once, in order, whatever order answers come in; but for holes that an answer told of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

COUNT_MAX: Final = 1_024  # of one pull; brokers give less unless they are configured to give more
WINDOW_MAX: Final = 64  # pulls on their way
_BYTES_AHEAD: Final = 4 << 20  # of their answers, as large as the last one was


class Piece(NamedTuple):
    """Records of which those from offset `begin` up to and without `end` count."""

    body: memoryview | bytes
    begin: int
    end: int


@dataclass(slots=True, eq=False)
class Ask:
    """A pull that is to cover [begin, end), which its answer may not reach or may pass."""

    begin: int
    end: int
    count: int
    is_sent: bool = False
    body: memoryview | bytes | None = None  # of its answer


class AskAhead:
    """See above."""

    def __init__(self, begin: int, end: int, *, is_dense: bool) -> None:
        assert begin <= end, (begin, end)
        self._line: list[Ask] = []  # all that is not taken yet, in the order of offsets
        self._frontier = begin  # what is before it was asked for, or taken
        self._end = end
        self._step = 0  # how many messages an answer brings; 0 while no answer came
        self._window = 1
        self._is_dense = is_dense
        self._in_flight = 0

    @property
    def is_over(self) -> bool:
        return not self._line and self._frontier == self._end

    @property
    def position(self) -> int:
        """Everything before it was taken."""
        return self._line[0].begin if self._line else self._frontier

    def next_ask(self) -> Ask | None:
        """The pull to send now, if there is one."""
        if self._in_flight >= self._window:
            return None
        ask = next((each for each in self._line if not each.is_sent), None)
        if ask is None:
            if self._frontier == self._end:
                return None
            step = self._step or self._end - self._frontier
            ask = Ask(self._frontier, min(self._frontier + step, self._end), 0)
            ask.count = min(2 * step, self._end - self._frontier, COUNT_MAX)
            self._frontier = ask.end
            self._line.append(ask)
        ask.is_sent = True
        self._in_flight += 1
        return ask

    def answered(self, ask: Ask, body: memoryview | bytes, next_offset: int) -> None:
        """A pull brought `body`, and there is nothing more before `next_offset`, which is behind its begin."""
        assert next_offset > ask.begin, (ask, next_offset)
        self._in_flight -= 1
        reached = next_offset - ask.begin
        if self._is_dense and body and (reached < ask.count or reached > self._step):
            self._step = (3 * self._step + reached + 3) // 4 if self._step else reached
            self._window = min(max(_BYTES_AHEAD // len(body), 2), WINDOW_MAX)
        if self._line[-1] is ask:  # nothing was asked for behind it
            ask.end = self._frontier = min(next_offset, self._end)
        elif next_offset < ask.end:
            rest = Ask(next_offset, ask.end, min(ask.end - next_offset, COUNT_MAX))
            self._line.insert(self._line.index(ask) + 1, rest)
            ask.end = next_offset
        elif not body:  # a hole, however long
            self._frontier = min(max(self._frontier, next_offset), self._end)
        ask.body = body

    def failed(self, ask: Ask) -> None:
        """A pull brought nothing: it is to be sent again."""
        self._in_flight -= 1
        ask.is_sent = False

    def restart(self) -> None:
        """No answer comes any more to what was sent: send it again."""
        for ask in self._line:
            ask.is_sent = ask.body is not None
        self._in_flight = 0

    def take(self) -> Piece | None:
        """The next piece, if it is there."""
        if not self._line or self._line[0].body is None:
            return None
        ask = self._line.pop(0)
        assert ask.body is not None
        return Piece(ask.body, ask.begin, ask.end)

    def keep(self) -> None:
        """Copy what cannot be taken yet: the memory that it came in is used again."""
        for ask in self._line:
            if isinstance(ask.body, memoryview):
                ask.body = bytes(ask.body)
