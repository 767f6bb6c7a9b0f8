"""Which transactions have not ended, and what is to be done about each: to wait, to ask its producer, to move its half message, to give up.

Sans-IO: what is in the half queue and in the op queue goes in, and the time; what to do comes out. The whole of it is rebuilt from both
queues by reading them from the committed offsets on, half messages first (`took_half`, `took_op`).

An op record ends a transaction if it names the newest copy of its half message; that of an older copy says only that there is a newer.
Invariants: a transaction is here from its half message on until it ends, under its root; whatever lies before `floors` is not needed to
rebuild this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.message.half_messages import Half

WINDOW_MIN: Final = 10_000  # so many half messages may lie behind one that waits before it is moved


class Step(Enum):
    """What to do about a transaction now."""

    WAIT = "it is too young, or nobody can be asked"
    ASK = "its producer is asked"
    MOVE = "its half message is stored once more, so that what lies behind it can be left behind"
    GIVE_UP = "nobody is asked any more"


class Rules(NamedTuple):
    """When producers are asked, and how often."""

    timeout_ms: int  # how old a half message has to be, if it says nothing else
    checks_max: int
    age_ms_max: int  # one whose producer cannot be asked is given up then


class Floors(NamedTuple):
    """From where on both queues are needed."""

    half: int
    op: int


class Pending:
    """The transactions that have not ended."""

    def __init__(self) -> None:
        self.next_half = 0  # the queue offset from which on half messages were not taken yet
        self._next_op = 0
        self._by_root: dict[int, Half] = {}
        self._roots: dict[int, int] = {}  # by the offset of the newest copy
        self._ops: deque[tuple[int, int]] = deque()  # queue offset, and the highest half message that it names

    def __len__(self) -> int:
        return len(self._by_root)

    def __iter__(self) -> Iterator[Half]:
        return iter(self._by_root.values())

    def roots(self) -> list[int]:
        return list(self._by_root)

    def find(self, root: int) -> Half | None:
        return self._by_root.get(root)

    # -- what is in the queues

    def begin(self, floors: Floors) -> None:
        """Nothing is known yet; both queues will be read from there on."""
        self.next_half, self._next_op = floors

    def took_half(self, half: Half) -> None:
        """A half message, or a copy of one, which takes the place of what was known of it."""
        self.moved(half)
        self.next_half = max(self.next_half, half.offset + 1)

    def took_op(self, op_offset: int, ended: Collection[int]) -> list[Half]:
        """An op record that names these; those that ended by it. Of a transaction that has a newer copy it says nothing."""
        self._next_op = max(self._next_op, op_offset + 1)
        if ended:
            self._ops.append((op_offset, max(ended)))
        roots = [self._roots.pop(offset) for offset in ended if offset in self._roots]
        return [self._by_root.pop(root) for root in roots]

    # -- what is done

    def moved(self, half: Half) -> None:
        """The broker itself stored a copy: it is what there is of that transaction now."""
        before = self._by_root.get(half.root)
        if before is not None:
            del self._roots[before.offset]
        self._by_root[half.root] = half
        self._roots[half.offset] = half.root

    def trust(self, root: int) -> None:
        """It is certain that this one was not committed."""
        self._by_root[root] = self._by_root[root]._replace(is_doubtful=False)

    def floors(self) -> Floors:
        """From where on both queues are needed; op records that name nothing from there on are forgotten."""
        half = min((each.offset for each in self._by_root.values()), default=self.next_half)
        half = min(half, self.next_half)
        while self._ops and self._ops[0][1] < half:
            self._ops.popleft()
        return Floors(half, self._ops[0][0] if self._ops else self._next_op)

    # -- what to do

    def step(self, half: Half, now_ms: int, rules: Rules, *, can_ask: bool) -> Step:
        """What to do about a transaction at a time when its producer can be asked, or not.

        A half message that came in the future, since our clock was set back, is as old as any.
        """
        age_ms = now_ms - half.since_ms
        if half.checks >= rules.checks_max or (age_ms > rules.age_ms_max and not can_ask):
            return Step.GIVE_UP
        is_young = 0 <= age_ms <= half.immunity_ms(rules.timeout_ms)
        if can_ask and not is_young:
            return Step.ASK
        return Step.MOVE if self.next_half - half.offset > max(WINDOW_MIN, 4 * len(self._by_root)) else Step.WAIT
