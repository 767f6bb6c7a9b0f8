"""Serializes changes of a broker that run in slices.

Sans-IO: a change that must wait yields. Readers do not wait. Invariant: a broker name is held by at
most one change; several names are acquired at once, so there is no deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

from orbitmq.common.slices import Slices

T = TypeVar("T")


class BrokerTurns:
    """The broker names with a change in progress."""

    def __init__(self) -> None:
        self._held: set[str] = set()

    def wait(self, names: Collection[str]) -> Slices[None]:
        """Wait until no change is in progress for any of the names; `hold` must follow within the
        same slice.
        """
        while not self._held.isdisjoint(names):
            yield

    def wait_for(
        self, find: Callable[[], T], names_of: Callable[[T], Collection[str]]
    ) -> Slices[T]:
        """Wait as `wait` does for the names of what `find` returns, which is called again after
        each slice.
        """
        while not self._held.isdisjoint(names_of(found := find())):
            yield
        return found

    @contextmanager
    def hold(self, names: Collection[str]) -> Iterator[None]:
        """Block other changes of these brokers."""
        assert self._held.isdisjoint(names), "a change is in progress for one of them"
        held = frozenset(names)
        self._held |= held
        try:
            yield
        finally:
            self._held -= held
