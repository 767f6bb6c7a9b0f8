"""The pending transactions, and the next step for each: wait, check back with its producer, move
its half message, or give up.

Sans-IO: the content of the half queue and of the op queue goes in, and the time; steps come out.
Everything is rebuilt by reading both queues from the committed offsets on, half messages first
(`took_half`, `took_op`).

An op record ends a transaction if it names the newest copy of its half message; one that names an
older copy only says that a newer copy exists. Invariants: a transaction is tracked from its half
message until its end, by its root, the queue offset of its first half message; `floors` are the
queue offsets from which both queues have to be read to rebuild this state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.message.half_messages import Half

WINDOW_MIN: Final = 10_000  # half messages that may follow a pending one before it is moved


class PendingStep(Enum):
    """The next step for a transaction."""

    WAIT = "it is too young, or no producer of its group is online"
    ASK = "its producer is asked for its state"
    MOVE = "its half message is copied to the end of the queue, so that the floor can advance"
    GIVE_UP = "its producer is not asked any more"


class Rules(NamedTuple):
    """When producers are checked, and how often."""

    timeout_ms: (
        int  # the age at which a half message is checked, unless its properties say otherwise
    )
    checks_max: int
    age_ms_max: int  # the age at which one whose producer cannot be reached is given up


class Floors(NamedTuple):
    """The queue offsets from which on both queues are needed."""

    half: int
    op: int


class Pending:
    """The transactions that have not ended."""

    def __init__(self) -> None:
        self.next_half = 0  # the queue offset of the next half message to take in
        self._next_op = 0
        self._by_root: dict[int, Half] = {}
        self._roots: dict[int, int] = {}  # by the queue offset of the newest copy
        self._ops: deque[tuple[int, int]] = (
            deque()
        )  # queue offset, and the highest half message that it names

    def __len__(self) -> int:
        return len(self._by_root)

    def __iter__(self) -> Iterator[Half]:
        return iter(self._by_root.values())

    def roots(self) -> list[int]:
        return list(self._by_root)

    def find(self, root: int) -> Half | None:
        return self._by_root.get(root)

    # -- content of the queues

    def begin(self, floors: Floors) -> None:
        """Start with no transactions; both queues will be read from these offsets on."""
        self.next_half, self._next_op = floors

    def took_half(self, half: Half) -> None:
        """Take in a half message, or a copy of one, which replaces the previous copy."""
        self.moved(half)
        self.next_half = max(self.next_half, half.offset + 1)

    def took_op(self, op_offset: int, ended: Collection[int]) -> list[Half]:
        """Take in an op record that names these offsets; return the transactions that it ended. It
        does not end a transaction that has a newer copy.
        """
        self._next_op = max(self._next_op, op_offset + 1)
        if ended:
            self._ops.append((op_offset, max(ended)))
        roots = [self._roots.pop(offset) for offset in ended if offset in self._roots]
        return [self._by_root.pop(root) for root in roots]

    # -- actions of the broker

    def moved(self, half: Half) -> None:
        """Note that the broker itself stored a copy, which replaces the previous one."""
        before = self._by_root.get(half.root)
        if before is not None:
            del self._roots[before.offset]
        self._by_root[half.root] = half
        self._roots[half.offset] = half.root

    def trust(self, root: int) -> None:
        """Note that this transaction was certainly not committed."""
        self._by_root[root] = self._by_root[root]._replace(is_doubtful=False)

    def floors(self) -> Floors:
        """Return from where on both queues are needed; forget op records that name nothing from
        there on.
        """
        half = min((each.offset for each in self._by_root.values()), default=self.next_half)
        half = min(half, self.next_half)
        while self._ops and self._ops[0][1] < half:
            self._ops.popleft()
        return Floors(half, self._ops[0][0] if self._ops else self._next_op)

    # -- steps

    def step(self, half: Half, now_ms: int, rules: Rules, *, can_ask: bool) -> PendingStep:
        """Return the next step for a transaction, given whether its producer can be reached.

        A half message from the future, which exists if the clock was set back, counts as old
        enough.
        """
        age_ms = now_ms - half.since_ms
        if half.checks >= rules.checks_max or (age_ms > rules.age_ms_max and not can_ask):
            return PendingStep.GIVE_UP
        is_young = 0 <= age_ms <= half.immunity_ms(rules.timeout_ms)
        if can_ask and not is_young:
            return PendingStep.ASK
        return (
            PendingStep.MOVE
            if self.next_half - half.offset > max(WINDOW_MIN, 4 * len(self._by_root))
            else PendingStep.WAIT
        )
