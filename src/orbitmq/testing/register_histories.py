"""Linearizability of a register: a value that is written and read as a whole, such as the committed
offset of a group in a queue.

A history is linearizable if each operation can be given one moment between its call and its return,
so that every read returns the last value written. The search is that of Wing and Gong: choose a
first operation among those that no other one precedes, and search the rest; visited states are
remembered, as Lowe proposes. Its cost grows exponentially with the number of concurrent operations,
so it is limited: check one register at a time, in short histories. Knows no clock: moments are
numbers that grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from orbitmq.common.errors import InvalidStateError

STATES_MAX: Final = 1_000_000


@dataclass(slots=True, eq=False, kw_only=True)
class RegisterOperation:
    """A read or write, and when it was called and returned; `value` is what was written or read.

    A write that did not return (`returned` is None) may have happened at any time after its call,
    or not at all; a read that did not return says nothing.
    """

    is_write: bool
    value: int | None
    called: int
    returned: int | None = None


class RegisterHistory:
    """Records the operations on one register in the order in which they happen."""

    def __init__(self, initial: int | None = None) -> None:
        self.initial = initial
        self.operations: list[RegisterOperation] = []
        self._moment = 0

    def call_write(self, value: int) -> RegisterOperation:
        """Record the call of a write; its effect is indeterminate until it returns."""
        return self._call(RegisterOperation(is_write=True, value=value, called=self._next_moment()))

    def call_read(self) -> RegisterOperation:
        """Record the call of a read."""
        return self._call(RegisterOperation(is_write=False, value=None, called=self._next_moment()))

    def write_returned(self, operation: RegisterOperation) -> None:
        """Record that a write succeeded."""
        self._return(operation, is_write=True)

    def read_returned(self, operation: RegisterOperation, value: int | None) -> None:
        """Record what a read returned; None if the register has no value."""
        self._return(operation, is_write=False)
        operation.value = value

    def _call(self, operation: RegisterOperation) -> RegisterOperation:
        self.operations.append(operation)
        return operation

    def _return(self, operation: RegisterOperation, *, is_write: bool) -> None:
        if operation.is_write is not is_write or operation.returned is not None:
            raise InvalidStateError(
                f"{operation} returned already, or is of the other kind: record each operation"
                " with a call of its own"
            )
        operation.returned = self._next_moment()

    def _next_moment(self) -> int:
        self._moment += 1
        return self._moment


def is_linearizable(
    history: RegisterHistory | Sequence[RegisterOperation], initial: int | None = None
) -> bool:
    """Return whether the operations on one register have a linearization; ValueError if finding out
    takes too long.
    """
    if isinstance(history, RegisterHistory):
        return is_linearizable(history.operations, history.initial)
    operations = sorted(
        (each for each in history if each.is_write or each.returned is not None),
        key=lambda each: each.called,
    )
    returned = sum(1 << at for at, each in enumerate(operations) if each.returned is not None)
    ends = [inf if each.returned is None else each.returned for each in operations]
    pending: list[tuple[int, int | None]] = [(0, initial)]  # operations done as bits, and the value
    visited = set(pending)
    while pending:
        done, value = pending.pop()
        if done & returned == returned:
            return True
        for at in _possible_next(operations, ends, done):
            operation = operations[at]
            if operation.is_write or operation.value == value:
                state = done | 1 << at, operation.value
                if state not in visited:
                    visited.add(state)
                    pending.append(state)
        if len(visited) > STATES_MAX:
            raise ValueError(
                f"no answer after {STATES_MAX} states for {len(operations)} operations: check a"
                " shorter history, or one with fewer concurrent operations"
            )
    return False


def _possible_next(
    operations: Sequence[RegisterOperation], ends: Sequence[float], done: int
) -> list[int]:
    """Return the operations that are not done, and before which no other one returned."""
    left = [at for at in range(len(operations)) if not done >> at & 1]
    first_end = min((ends[at] for at in left), default=inf)
    return [at for at in left if operations[at].called <= first_end]
