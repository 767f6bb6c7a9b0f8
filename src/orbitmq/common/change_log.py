"""The changes of a table, numbered, so that a follower asks only for what changed after a number.

Sans-IO; knows keys, not rows. Every key has the number of its last change, and keys are in that
order, so a large answer can be cut anywhere: the next one continues after the last number that was
sent, and a key that changed meanwhile comes later. Removed keys are remembered up to a limit; a
follower that is behind that gets the whole table. While it does, only keys matter that were removed
since it began.

Thread rule: the loop thread owns it. Invariants: numbers ascend in the order of the keys; a number
is used once; 0 is before all changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

REMOVED_MAX: Final = 10_000  # removed keys that are remembered

K = TypeVar("K", bound=Hashable)


class Position(NamedTuple):
    """Up to which change a follower has a table; `begun` is the last change before it began to get
    the whole table, 0 after it has got it.
    """

    number: int = 0
    begun: int = 0


class NumberedKey(NamedTuple, Generic[K]):
    """A key, and the number of its last change."""

    key: K
    number: int


class ChangedKeys(NamedTuple, Generic[K]):
    """Keys in the order of their last change; `is_whole`: all keys of the table follow, since the
    changes after the requested number are not known.
    """

    keys: list[NumberedKey[K]]
    is_whole: bool


class ChangeLog(Generic[K]):
    """Numbers the changes of one table. `own_changes` counts those that were made here, not taken
    over from a master.
    """

    __slots__ = ("_forgotten", "_numbers", "_removed", "_removed_max", "number", "own_changes")

    def __init__(self, removed_max: int = REMOVED_MAX) -> None:
        self.number = 1  # of the last change
        self.own_changes = 0
        self._removed_max = removed_max
        self._numbers: dict[K, int] = {}  # of all keys, and of the removed ones
        self._removed: dict[K, int] = {}
        self._forgotten = 1  # the number of the last removal that is not remembered

    def put(self, key: K) -> None:
        """Note that the row of a key was added or changed."""
        self.own_changes += 1
        self._put(key)

    def put_all(self, keys: Iterable[K]) -> None:
        """Note that the rows of these keys were added or changed."""
        before = self.number
        self._put_all(keys)
        self.own_changes += self.number - before

    def remove(self, *keys: K) -> None:
        """Note that the rows of these keys were removed."""
        for key in keys:
            self.own_changes += 1
            self._remove(key)

    def take_over(self, put: Iterable[K], removed: Iterable[K]) -> None:
        """Note changes that a master made."""
        self._put_all(put)
        for key in removed:
            self._remove(key)

    def since(self, position: Position, count_max: int) -> ChangedKeys[K]:
        """Return the first keys that changed after a position, at most `count_max`."""
        number, begun = position
        if number == self.number:
            return ChangedKeys([], False)
        is_known = 0 < number < self.number and self._forgotten <= max(number, begun)
        is_whole = not is_known
        begin = 0 if is_whole else bisect_right(list(self._numbers.values()), number)
        found = islice(self._numbers.items(), begin, begin + count_max)
        return ChangedKeys([NumberedKey(*each) for each in found], is_whole)

    def _put(self, key: K) -> None:
        self.number += 1
        self._numbers.pop(key, None)  # moves it to the end
        self._numbers[key] = self.number
        if self._removed:
            self._removed.pop(key, None)

    def _put_all(self, keys: Iterable[K]) -> None:
        """Do what `_put` does, for tens of thousands of keys in a few calls."""
        new = dict.fromkeys(keys)
        for known in (self._numbers, self._removed):
            for key in new.keys() & known.keys():
                del known[key]
        first, self.number = self.number + 1, self.number + len(new)
        self._numbers.update(zip(new, range(first, self.number + 1), strict=True))

    def _remove(self, key: K) -> None:
        self._put(key)
        self._removed[key] = self.number
        if len(self._removed) > self._removed_max:
            oldest = next(iter(self._removed))
            self._forgotten = self._removed.pop(oldest)
            del self._numbers[oldest]
