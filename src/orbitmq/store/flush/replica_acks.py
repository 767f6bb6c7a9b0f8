"""What the store needs to know of replicas: which part of its log enough of them have.

The owner of the connections to replicas implements this; a store without any has `NO_REPLICAS`.
"""

from __future__ import annotations

from typing import Final, Protocol

from orbitmq.store.types import LogOffset


class ReplicaAcks(Protocol):
    """The acknowledgements of replicas, and what writes require of them, at this moment."""

    @property
    def is_required(self) -> bool:
        """Whether a write is durable only when enough replicas have it."""
        ...

    @property
    def is_missing(self) -> bool:
        """Whether writes should have a replica, and are confirmed as having none."""
        ...

    @property
    def acknowledged(self) -> LogOffset:
        """Up to which offset enough replicas have the log."""
        ...

    @property
    def timeout_ms(self) -> int:
        """How long a write waits for replicas."""
        ...

    @property
    def refusal(self) -> str | None:
        """Why writes are refused: there are too few replicas; None if there are enough."""
        ...


class _NoReplicas:
    """A log with one copy."""

    is_required = False
    is_missing = False
    acknowledged = LogOffset(0)
    timeout_ms = 0
    refusal = None


NO_REPLICAS: Final[ReplicaAcks] = _NoReplicas()
