"""Requests that wait for their answer, by opaque.

Sans-IO: `now_ms` comes in, waiters go out. A waiter is whatever the caller wants back. Invariant: a waiter leaves once: answered,
expired, withdrawn, or because its owner (the connection) died.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

from orbitmq.protocol.command import RemotingCommand

Waiter = TypeVar("Waiter")


def opaques() -> Iterator[int]:
    """Request ids: from 0 up, a signed 32-bit number that wraps around."""
    while True:
        yield from range(1 << 31)
        yield from range(-(1 << 31), 0)


class _Entry(NamedTuple, Generic[Waiter]):
    owner: Hashable
    deadline_ms: int
    waiter: Waiter


class InFlight(Generic[Waiter]):
    """The requests sent to peers and not answered yet."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry[Waiter]] = {}
        self._by_owner: dict[Hashable, set[int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, opaque: int, owner: Hashable, deadline_ms: int, waiter: Waiter) -> None:
        """Keep `waiter` until the answer to `opaque` comes on `owner`, or the deadline passes."""
        assert opaque not in self._entries, f"opaque {opaque} is in flight already"
        self._entries[opaque] = _Entry(owner, deadline_ms, waiter)
        self._by_owner.setdefault(owner, set()).add(opaque)

    def take(self, opaque: int, owner: Hashable) -> Waiter | None:
        """The waiter for the answer `opaque` that came on `owner`; None when nobody waits for it there."""
        entry = self._entries.get(opaque)
        if entry is None or entry.owner != owner:
            return None
        self._remove(opaque, entry)
        return entry.waiter

    def withdraw(self, opaque: int) -> Waiter | None:
        """The waiter for `opaque`, who waits no longer; None when nobody waits for it."""
        entry = self._entries.get(opaque)
        if entry is None:
            return None
        self._remove(opaque, entry)
        return entry.waiter

    def expire(self, now_ms: int) -> list[Waiter]:
        """The waiters whose deadline has passed."""
        expired = [(opaque, entry) for opaque, entry in self._entries.items() if entry.deadline_ms <= now_ms]
        for opaque, entry in expired:
            self._remove(opaque, entry)
        return [entry.waiter for _, entry in expired]

    def drop(self, owner: Hashable) -> list[Waiter]:
        """All waiters of an owner that died."""
        return [self._entries.pop(opaque).waiter for opaque in sorted(self._by_owner.pop(owner, ()))]

    def _remove(self, opaque: int, entry: _Entry[Waiter]) -> None:
        del self._entries[opaque]
        siblings = self._by_owner[entry.owner]
        siblings.remove(opaque)
        if not siblings:
            del self._by_owner[entry.owner]


def kept_bytes(request: RemotingCommand) -> int:
    """How many bytes a request keeps as long as it is in flight, roughly."""
    return len(request.body or b"") + sum(len(name) + len(value or "") for name, value in (request.ext_fields or {}).items())
