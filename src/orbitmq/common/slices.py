"""Long work as a generator: each `yield` ends a slice, so that its caller can let others run in between.

A slice is bounded by counting units of work, not by time: the code that yields decides, and tests count. Knows nothing of who runs
the slices; `remoting/slices.py` runs them on the event loop.

Thread rule: state may change between two slices: work looks things up again after a yield, and iterates over snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final, TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

SLICE_UNITS: Final = 250  # units of work in a slice, where a unit costs up to some 20 microseconds, interpreted
_SORTED_PER_SLICE: Final = 4000

Slices = Generator[None, None, T]


def slices_of(items: Iterable[T], size: int = SLICE_UNITS) -> Iterator[list[T]]:
    """Cut `items` into lists of at most `size`; the caller yields after each."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def sorted_in_slices(names: Iterable[str]) -> Slices[list[str]]:
    """Sort names, some thousands at a time."""
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
    """Run all slices at once, for callers that may keep the thread: start-up, stop, tools and tests."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def to_be_finished(work: F) -> F:
    """Mark a generator function whose work goes on, once begun, when whoever asked for it is gone: a half of it would do harm."""
    work.is_to_be_finished = True  # type: ignore[attr-defined]
    return work


def is_to_be_finished(work: Callable[..., Any]) -> bool:
    """Whether a generator function is marked so."""
    return getattr(work, "is_to_be_finished", False)
