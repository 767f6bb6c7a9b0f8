"""Long work as a generator: each `yield` ends a slice, so the caller can run other work in between.

A slice is bounded by counting units of work, not by time: the yielding code decides, and tests can
count. Does not know how slices are run; `remoting/slices.py` runs them on the event loop.

Thread rule: state may change between two slices, so work looks things up again after a yield and
iterates over snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final, TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

SLICE_UNITS: Final = (
    250  # units of work per slice; one unit takes up to some 20 microseconds, interpreted
)
_SORTED_PER_SLICE: Final = 4000

Slices = Generator[None, None, T]


def slices_of(items: Iterable[T], size: int = SLICE_UNITS) -> Iterator[list[T]]:
    """Split `items` into lists of at most `size`; the caller yields after each."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


class SliceBudget:
    """Counts units of work whose cost differs, and says when a slice is full."""

    __slots__ = ("_spent", "_units_max")

    def __init__(self, units_max: int = SLICE_UNITS) -> None:
        self._units_max = units_max
        self._spent = 0

    def spend(self, units: int) -> bool:
        """Count `units`. Returns True if the slice is full: the caller yields, and a new one
        begins.
        """
        self._spent += units
        if self._spent < self._units_max:
            return False
        self._spent = 0
        return True


def sorted_in_slices(names: Iterable[str]) -> Slices[list[str]]:
    """Sort names in slices of some thousands."""
    runs = []
    for part in slices_of(names, _SORTED_PER_SLICE):
        runs.append(sorted(part))
        if len(part) == _SORTED_PER_SLICE:
            yield
    if len(runs) <= 1:
        return runs[0] if runs else []
    merged: list[str] = []
    for part in slices_of(merge(*runs), _SORTED_PER_SLICE):
        merged += part
        yield
    return merged


def finish(work: Slices[T]) -> T:
    """Run all slices at once, for callers that may block the thread: start-up, stop, tools and
    tests.
    """
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def to_be_finished(work: F) -> F:
    """Mark a generator function whose work must run to completion even if the requester
    disconnects: stopping halfway would do harm.
    """
    work.is_to_be_finished = True  # type: ignore[attr-defined]
    return work


def is_to_be_finished(work: Callable[..., Any]) -> bool:
    """Return whether a generator function is marked by `to_be_finished`."""
    return getattr(work, "is_to_be_finished", False)
