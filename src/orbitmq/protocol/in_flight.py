"""Requests in flight, by opaque.

Sans-IO: `now_ms` is an argument, waiters are return values. A waiter is any value of the caller's.
Invariant: a waiter leaves once: answered, expired, withdrawn, or because its owner (the connection)
closed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

from orbitmq.protocol.command import RemotingCommand

Waiter = TypeVar("Waiter")


def opaques() -> Iterator[int]:
    """Yield request ids: from 0 up, as signed 32-bit numbers that wrap around."""
    while True:
        yield from range(1 << 31)
        yield from range(-(1 << 31), 0)


class _Entry(NamedTuple, Generic[Waiter]):
    """A waiter with its owner and deadline."""

    owner: Hashable
    deadline_ms: int
    waiter: Waiter


class InFlight(Generic[Waiter]):
    """The requests that were sent and have no response yet."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry[Waiter]] = {}
        self._by_owner: dict[Hashable, set[int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, opaque: int, owner: Hashable, deadline_ms: int, waiter: Waiter) -> None:
        """Keep `waiter` until the response to `opaque` arrives on `owner`, or the
        deadline passes.
        """
        assert opaque not in self._entries, f"opaque {opaque} is in flight already"
        self._entries[opaque] = _Entry(owner, deadline_ms, waiter)
        self._by_owner.setdefault(owner, set()).add(opaque)

    def take(self, opaque: int, owner: Hashable) -> Waiter | None:
        """Remove and return the waiter for the response `opaque` that arrived on `owner`,
        or None.
        """
        entry = self._entries.get(opaque)
        if entry is None or entry.owner != owner:
            return None
        self._remove(opaque, entry)
        return entry.waiter

    def withdraw(self, opaque: int) -> Waiter | None:
        """Remove and return the waiter for `opaque`, or None."""
        entry = self._entries.get(opaque)
        if entry is None:
            return None
        self._remove(opaque, entry)
        return entry.waiter

    def expire(self, now_ms: int) -> list[Waiter]:
        """Remove and return the waiters whose deadline has passed."""
        expired = [
            (opaque, entry)
            for opaque, entry in self._entries.items()
            if entry.deadline_ms <= now_ms
        ]
        for opaque, entry in expired:
            self._remove(opaque, entry)
        return [entry.waiter for _, entry in expired]

    def drop(self, owner: Hashable) -> list[Waiter]:
        """Remove and return all waiters of a closed owner."""
        return [
            self._entries.pop(opaque).waiter for opaque in sorted(self._by_owner.pop(owner, ()))
        ]

    def _remove(self, opaque: int, entry: _Entry[Waiter]) -> None:
        del self._entries[opaque]
        siblings = self._by_owner[entry.owner]
        siblings.remove(opaque)
        if not siblings:
            del self._by_owner[entry.owner]


def kept_bytes(request: RemotingCommand) -> int:
    """Return roughly how many bytes a request holds while it is in flight."""
    return len(request.body or b"") + sum(
        len(name) + len(value or "") for name, value in (request.ext_fields or {}).items()
    )
