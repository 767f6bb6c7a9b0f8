"""Lets changes of a broker that run in slices come one after the other.

Sans-IO: whoever has to wait yields until it is its turn. Readers do not wait. Invariant: a broker name is held by at most one piece of
work; several names are taken all at once, so nobody waits for somebody who waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

from orbitmq.common.slices import Slices

T = TypeVar("T")


class BrokerTurns:
    """The broker names that a change is under way for."""

    def __init__(self) -> None:
        self._held: set[str] = set()

    def wait(self, names: Collection[str]) -> Slices[None]:
        """Wait until nothing is under way for any of the names; to be followed by `hold` within the same slice."""
        while not self._held.isdisjoint(names):
            yield

    def wait_for(self, find: Callable[[], T], names_of: Callable[[T], Collection[str]]) -> Slices[T]:
        """Wait as `wait` does for the names of what `find` finds, which is asked again after each slice."""
        while not self._held.isdisjoint(names_of(found := find())):
            yield
        return found

    @contextmanager
    def hold(self, names: Collection[str]) -> Iterator[None]:
        """Keep other changes of these brokers waiting."""
        assert self._held.isdisjoint(names), "a change is under way for one of them"
        held = frozenset(names)
        self._held |= held
        try:
            yield
        finally:
            self._held -= held
