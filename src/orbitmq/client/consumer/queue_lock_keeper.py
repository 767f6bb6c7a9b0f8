"""Locks of queues that are consumed in order: requested from their brokers, renewed, and released.

A lock counts for `LOCK_MS_MAX` after its broker last confirmed it; brokers release locks that are
not renewed for a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection
from typing import Final

from orbitmq.client.session.client_session import ClientSession
from orbitmq.common.errors import OrbitError
from orbitmq.protocol.bodies.clients import LockBatchBody, MessageQueue, decode_locked_queues
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand

LOCK_MS_MAX: Final = 30_000  # without renewal
RENEWAL_PERIOD_S: Final = 20.0
_TIMEOUT_MS: Final = 1_000

log = logging.getLogger(__name__)


class QueueLockKeeper:
    """The queue locks of one group member."""

    def __init__(self, session: ClientSession, group: str) -> None:
        self._session = session
        self._group = group
        self._locked_ms: dict[MessageQueue, int] = {}

    def is_locked(self, queue: MessageQueue) -> bool:
        """Return whether this member holds the queue's lock."""
        locked_ms = self._locked_ms.get(queue)
        return (
            locked_ms is not None and self._session.clock.monotonic_ms() - locked_ms < LOCK_MS_MAX
        )

    def locked_ms(self, queue: MessageQueue) -> int | None:
        """Return when the broker last confirmed the lock, by the monotonic clock."""
        return self._locked_ms.get(queue)

    async def lock(self, queues: Collection[MessageQueue]) -> None:
        """Request or renew locks; queues locked by other members stay theirs."""
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker_name].append(queue)
        await asyncio.gather(*(self._lock(wanted) for wanted in by_broker.values()))

    async def _lock(self, wanted: list[MessageQueue]) -> None:
        try:
            address = await self._session.broker_of(wanted[0])
            request = RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=self._body(wanted))
            response = await self._session.ask(address, request, _TIMEOUT_MS)
        except OrbitError as problem:
            log.warning(
                "queues_not_locked group=%s broker=%s why='%s'",
                self._group,
                wanted[0].broker_name,
                problem,
            )
            return
        locked = set(decode_locked_queues(response.body or b"{}"))
        now_ms = self._session.clock.monotonic_ms()
        for queue in wanted:
            if queue in locked:
                self._locked_ms[queue] = now_ms
            elif self._locked_ms.pop(queue, None) is not None:
                log.warning("lock_lost group=%s queue=%s", self._group, queue)

    async def unlock(self, queue: MessageQueue) -> None:
        """Release a lock, so that the next member need not wait for it to expire."""
        if self._locked_ms.pop(queue, None) is None:
            return
        try:
            address = await self._session.broker_of(queue)
            await self._session.ask(
                address,
                RemotingCommand.request(RequestCode.UNLOCK_BATCH_MQ, body=self._body([queue])),
                _TIMEOUT_MS,
            )
        except OrbitError as problem:
            log.warning(
                "queue_not_unlocked group=%s queue=%s why='%s'; the lock expires at its broker"
                " within a minute",
                self._group,
                queue,
                problem,
            )

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return LockBatchBody(self._group, self._session.client_id, tuple(queues)).encode()
