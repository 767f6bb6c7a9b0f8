"""Queue locks: which client of a group may consume a queue in order.

Sans-IO: time comes in as `now_ms`. A lock lives for a minute after it was last asked for; whoever holds it asks again in time, and a
connection that goes does not end it, so that its messages in flight are done before another client gets the queue.

Invariant: at any moment a queue of a group has one holder or none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from orbitmq.common.slices import Slices, slices_of
from orbitmq.protocol.bodies.clients import MessageQueue

LOCK_MS_MAX: Final = 60_000
SCANNED_PER_SLICE: Final = 5_000

log = logging.getLogger(__name__)


class _Lock(NamedTuple):
    client_id: str
    user: str | None
    asked_ms: int

    def is_of(self, client_id: str, user: str | None) -> bool:
        return (self.client_id, self.user) == (client_id, user)


class QueueLocks:
    """The locks of all groups."""

    def __init__(self, lock_ms_max: int = LOCK_MS_MAX) -> None:
        self._lock_ms_max = lock_ms_max
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now_ms: int, user: str | None = None) -> list[MessageQueue]:
        """Lock the queues that nobody else holds; those that the client holds now. With access control on a client is of one user."""
        locks = self._groups.setdefault(group, {})
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.is_of(client_id, user) or self._is_over(lock, now_ms):
                if lock is None or not lock.is_of(client_id, user):
                    log.info("queue_locked group=%s queue=%s/%d client=%s", group, queue.topic, queue.queue_id, client_id)
                locks[queue] = _Lock(client_id, user, now_ms)
                held.append(queue)
        if not locks:
            del self._groups[group]
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str, user: str | None = None) -> None:
        """Give up the locks that the client holds; those of others stay."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.is_of(client_id, user):
                del locks[queue]
        if not locks:
            del self._groups[group]

    def is_locked(self, group: str, now_ms: int) -> bool:
        """Whether any queue of the group has a holder: then it consumes in order."""
        return any(not self._is_over(lock, now_ms) for lock in self._groups.get(group, {}).values())

    def holder(self, group: str, queue: MessageQueue, now_ms: int) -> str | None:
        """The client that holds a queue."""
        lock = self._groups.get(group, {}).get(queue)
        return None if lock is None or self._is_over(lock, now_ms) else lock.client_id

    def scan(self, now_ms: int) -> Slices[None]:
        """Forget the locks that are over."""
        for group in list(self._groups):
            for part in slices_of(list(self._groups.get(group, ())), SCANNED_PER_SLICE):
                locks = self._groups.get(group, {})
                for queue in part:
                    lock = locks.get(queue)
                    if lock is not None and self._is_over(lock, now_ms):
                        del locks[queue]
                if len(part) == SCANNED_PER_SLICE:
                    yield
            if group in self._groups and not self._groups[group]:
                del self._groups[group]

    def _is_over(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.asked_ms > self._lock_ms_max
