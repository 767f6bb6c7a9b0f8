"""What replicas have acknowledged, and what a master requires of them before it acknowledges a
write.

Sans-IO: connections report offsets, the store asks (`ReplicaAcks`). SYNC_MASTER requires
`inSyncReplicas` copies, its own included. At 1, the default, the rule of 4.9 is in force: one slave
must have the message if any slave is in sync, otherwise the write is confirmed as having no replica
(SLAVE_NOT_AVAILABLE). In 5.x that default makes SYNC_MASTER wait for nothing. Below
`minInSyncReplicas` copies writes are refused. ASYNC_MASTER requires nothing.

In sync means: connected, and at most `haMaxGapNotInSync` bytes behind. A host counts once for each
member of the group that is known to live there: a slave that connects again while its old
connection is still open is one copy, not two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from orbitmq.store.types import LogOffset


class QuorumSettings(Protocol):
    """The settings that are read at each use: they may change while the broker runs."""

    @property
    def in_sync_replicas(self) -> int: ...
    @property
    def min_in_sync_replicas(self) -> int: ...
    @property
    def enable_auto_in_sync_replicas(self) -> bool: ...
    @property
    def ha_max_gap_not_in_sync(self) -> int: ...
    @property
    def slave_timeout(self) -> int: ...


@dataclass(slots=True, eq=False)
class Replica:
    """One connected slave."""

    address: str
    host: str
    acknowledged: LogOffset
    number: int = 0  # in the order of connecting


class Quorum:
    """The connected replicas of one log. Implements `store.flush.replica_acks.ReplicaAcks`."""

    def __init__(
        self,
        settings: QuorumSettings,
        *,
        is_sync_master: bool,
        log_end: Callable[[], LogOffset],
        members_at: Callable[[str], int],
    ) -> None:
        self._settings = settings
        self._is_sync_master = is_sync_master
        self._log_end = log_end
        self._members_at = members_at
        self._replicas: list[Replica] = []
        self._joined = 0

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """The connected slaves, in the order of connecting."""
        return tuple(self._replicas)

    def join(self, replica: Replica) -> None:
        """Count a slave that has reported for the first time."""
        self._joined += 1
        replica.number = self._joined
        self._replicas.append(replica)

    def leave(self, replica: Replica) -> None:
        """Forget a slave whose connection has ended."""
        if replica in self._replicas:
            self._replicas.remove(replica)

    def is_in_sync(self, replica: Replica) -> bool:
        """Return whether the slave is at most the allowed gap behind."""
        return self._log_end() - replica.acknowledged < self._settings.ha_max_gap_not_in_sync

    @property
    def in_sync_count(self) -> int:
        """How many copies are in sync, the master's included."""
        return 1 + sum(map(self.is_in_sync, self._counted()))

    @property
    def is_required(self) -> bool:
        return self._is_sync_master and self._copies() > 1

    @property
    def is_missing(self) -> bool:
        return (
            self._is_sync_master
            and self._settings.in_sync_replicas <= 1
            and self.in_sync_count == 1
        )

    @property
    def acknowledged(self) -> LogOffset:
        missing = self._copies() - 1
        offsets = sorted((each.acknowledged for each in self._counted()), reverse=True)
        return offsets[missing - 1] if 0 < missing <= len(offsets) else LogOffset(0)

    @property
    def timeout_ms(self) -> int:
        return self._settings.slave_timeout

    @property
    def refusal(self) -> str | None:
        if not self._is_sync_master or self._settings.min_in_sync_replicas <= 1:
            return None
        if (count := self.in_sync_count) >= self._settings.min_in_sync_replicas:
            return None
        return (
            f"in-sync replicas not enough: {count} of the {self._settings.min_in_sync_replicas}"
            " copies that minInSyncReplicas requires, this master's included; start the missing"
            " slaves, or see orbitmq replica list"
        )

    @property
    def slowest(self) -> Replica | None:
        """The slave in sync that is furthest behind."""
        return min(
            filter(self.is_in_sync, self._replicas),
            key=lambda each: each.acknowledged,
            default=None,
        )

    def _copies(self) -> int:
        """Return how many copies a durable write has, the master's included."""
        settings, wanted = self._settings, self._settings.in_sync_replicas
        if wanted <= 1:
            return 2 if self.in_sync_count > 1 else 1
        if settings.enable_auto_in_sync_replicas:
            return max(min(wanted, self.in_sync_count), settings.min_in_sync_replicas)
        return wanted

    def _counted(self) -> list[Replica]:
        """Return the newest connections of each host, as many as it has members."""
        if len(self._replicas) < 2:  # the common case
            return self._replicas
        by_host = defaultdict[str, list[Replica]](list)
        for replica in reversed(self._replicas):
            by_host[replica.host].append(replica)
        return [
            replica
            for host, found in by_host.items()
            for replica in found[: max(self._members_at(host), 1)]
        ]
