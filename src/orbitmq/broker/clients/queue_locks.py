"""Queue locks: which client of a group may consume a queue in order.

Sans-IO: time comes in as `now_ms`. A lock expires a minute after its last request; its holder
renews it in time. A closed connection does not release it, so that its messages in flight are
finished before another client gets the queue.

A slave takes over the locks of its master. Renewals are not replicated: locks that were taken over
count as requested when the master last confirmed them, so that after a failover a holder keeps its
queues at least as long as at the old master.

Invariants: at any moment a queue of a group has at most one holder; there are at most LOCKS_MAX
locks, and LOCKS_PER_CONNECTION_MAX last requested on one connection.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from orbitmq.common.change_log import ChangeLog
from orbitmq.common.errors import Refusal, RefusedError
from orbitmq.common.slices import Slices, slices_of
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.metadata_rows import LockKey, LockRow

LOCK_MS_MAX: Final = 60_000
LOCKS_PER_CONNECTION_MAX: Final = 20_000
LOCKS_MAX: Final = 200_000  # of all groups; a lock takes some 170 bytes
SCANNED_PER_SLICE: Final = 5_000
_MASTER: Final = object()  # stands for the connection of locks that were taken over

log = logging.getLogger(__name__)


class _Lock(NamedTuple):
    client_id: str
    user: str | None
    asked_ms: int
    connection: Hashable

    def is_of(self, client_id: str, user: str | None) -> bool:
        return (self.client_id, self.user) == (client_id, user)


class QueueLocks:
    """The locks of all groups."""

    def __init__(self, lock_ms_max: int = LOCK_MS_MAX) -> None:
        self._lock_ms_max = lock_ms_max
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._asked_on: Counter[Hashable] = Counter()  # number of locks by connection
        self._count = 0
        self._confirmed_ms = 0  # when the master last confirmed the locks that were taken over
        self.changes = ChangeLog[LockKey]()  # of holders, for slaves; a renewal is no change

    def __len__(self) -> int:
        return self._count

    def lock(
        self,
        group: str,
        queues: Iterable[MessageQueue],
        client_id: str,
        now_ms: int,
        user: str | None = None,
        connection: Hashable = None,
    ) -> list[MessageQueue]:
        """Lock the queues that no other client holds; return those that the client holds now. With
        access control a client belongs to one user. Raises RefusedError if a limit is
        reached; locks taken before that stay until they expire.
        """
        locks = self._groups.setdefault(group, {})
        held, added = [], []
        try:
            for queue in queues:
                lock = locks.get(queue)
                if lock is None or lock.is_of(client_id, user) or self._is_over(lock, now_ms):
                    if lock is None or not lock.is_of(client_id, user):
                        added.append(queue)
                    if lock is None or lock.connection != connection:
                        self._check_limits(connection, is_new=lock is None)
                    if (
                        lock is None
                        or not lock.is_of(client_id, user)
                        or self._is_over(lock, now_ms)
                    ):
                        self.changes.put(LockKey(group, queue))
                    self._forget(locks, queue)
                    locks[queue] = _Lock(client_id, user, now_ms, connection)
                    self._asked_on[connection] += 1
                    self._count += 1
                    held.append(queue)
        finally:
            if not locks:
                del self._groups[group]
        if added:
            log.info(
                "queue_locked group=%s queue=%s/%d client=%s queues=%d",
                group,
                added[0].topic,
                added[0].queue_id,
                client_id,
                len(added),
            )
        return held

    def _check_limits(self, connection: Hashable, *, is_new: bool) -> None:
        if self._asked_on[connection] >= LOCKS_PER_CONNECTION_MAX:
            raise RefusedError(
                Refusal.FAILED,
                f"one connection locks at most {LOCKS_PER_CONNECTION_MAX} queues; unlock some, or"
                " use several clients",
            )
        if is_new and self._count >= LOCKS_MAX:
            raise RefusedError(
                Refusal.FAILED,
                f"{LOCKS_MAX} queues are locked, the maximum of this broker; locks that are not"
                f" renewed expire after {self._lock_ms_max // 1000} s",
            )

    def _forget(self, locks: dict[MessageQueue, _Lock], queue: MessageQueue) -> None:
        lock = locks.pop(queue, None)
        if lock is not None:
            self._count -= 1
            self._asked_on[lock.connection] -= 1
            if not self._asked_on[lock.connection]:
                del self._asked_on[lock.connection]

    def unlock(
        self, group: str, queues: Iterable[MessageQueue], client_id: str, user: str | None = None
    ) -> None:
        """Release the client's locks on these queues; those of other clients stay."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.is_of(client_id, user):
                self._forget(locks, queue)
                self.changes.remove(LockKey(group, queue))
        if not locks:
            del self._groups[group]

    def is_locked(self, group: str, now_ms: int) -> bool:
        """Return whether any queue of the group is locked: then it consumes in order."""
        return any(not self._is_over(lock, now_ms) for lock in self._groups.get(group, {}).values())

    def holder(self, group: str, queue: MessageQueue, now_ms: int) -> str | None:
        """Return the client that holds a queue."""
        lock = self._groups.get(group, {}).get(queue)
        return None if lock is None or self._is_over(lock, now_ms) else lock.client_id

    def scan(self, now_ms: int) -> Slices[None]:
        """Remove expired locks."""
        for group in list(self._groups):
            for part in slices_of(list(self._groups.get(group, ())), SCANNED_PER_SLICE):
                locks = self._groups.get(group, {})
                for queue in part:
                    lock = locks.get(queue)
                    if lock is not None and self._is_over(lock, now_ms):
                        self._forget(locks, queue)
                        self.changes.remove(LockKey(group, queue))
                if len(part) == SCANNED_PER_SLICE:
                    yield
            if group in self._groups and not self._groups[group]:
                del self._groups[group]

    # -- replication

    @property
    def keys(self) -> Iterator[LockKey]:
        """Iterate over all locks, expired ones included."""
        return (LockKey(group, queue) for group, locks in self._groups.items() for queue in locks)

    def row(self, key: LockKey, now_ms: int) -> LockRow | None:
        """Return the holder of a lock; None if it expired or was released."""
        lock = self._groups.get(key.group, {}).get(key.queue)
        if lock is None or self._is_over(lock, now_ms):
            return None
        return LockRow(key, lock.client_id, lock.user)

    def take_over(self, rows: Sequence[LockRow], removed: Iterable[LockKey], now_ms: int) -> None:
        """Apply a master's changes; no limit applies, since the master has checked it."""
        gone = [key for key in removed if key.queue in self._groups.get(key.group, {})]
        for group, queue in gone:
            self._forget(self._groups[group], queue)
            if not self._groups[group]:
                del self._groups[group]
        for (group, queue), client_id, user in rows:
            locks = self._groups.setdefault(group, {})
            self._forget(locks, queue)
            locks[queue] = _Lock(client_id, user, now_ms, _MASTER)
            self._asked_on[_MASTER] += 1
            self._count += 1
        self.changes.take_over([row.key for row in rows], gone)

    def confirm(self, now_ms: int) -> None:
        """Note that the master still has the locks that were taken over."""
        self._confirmed_ms = now_ms

    def _is_over(self, lock: _Lock, now_ms: int) -> bool:
        asked_ms = lock.asked_ms
        if lock.connection is _MASTER:
            asked_ms = max(asked_ms, self._confirmed_ms)
        return now_ms - asked_ms > self._lock_ms_max
