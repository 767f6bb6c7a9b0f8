"""Committed offsets of a group, stored by the broker, or for broadcast groups in a local file
(`file_offsets.py`).

Offsets are cached here and persisted periodically; messages after the last persisted offset are
redelivered after a crash.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from orbitmq.client.consumer.queue_offsets import begin_offset, group_offset, set_group_offset
from orbitmq.client.session.client_session import ClientSession
from orbitmq.common.errors import OrbitError
from orbitmq.protocol.bodies.clients import MessageQueue

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Stores the committed offsets of a group."""

    def open(self) -> None:
        """Open the store; raise InvalidStateError if another consumer owns it exclusively."""
        ...

    async def close(self) -> None:
        """Close the store; nothing is persisted any more."""
        ...

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the group's offset, or None if it has none and may choose where to start.

        Raises OrbitError if it cannot be determined at the moment.
        """
        ...

    def update(self, queue: MessageQueue, offset: int, *, may_go_back: bool = False) -> None:
        """Cache an offset; a smaller one only with `may_go_back`."""
        ...

    def known(self, queue: MessageQueue) -> int | None: ...

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Persist the cached offsets of these queues; failures are retried next time."""
        ...

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Cache offsets, possibly smaller ones, and persist them now; raise if that fails."""
        ...

    def forget(self, queue: MessageQueue) -> None: ...


class CachedOffsets:
    """Offsets by queue in memory; they decrease only on request."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, may_go_back: bool = False) -> None:
        known = self._offsets.get(queue)
        if known is None or may_go_back or offset > known:
            self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)


class BrokerOffsets(CachedOffsets):
    """Offsets stored by the broker of each queue, shared by all members of the group."""

    def __init__(self, session: ClientSession, group: str, *, reads_young: bool = True) -> None:
        """`reads_young`: start an unconsumed queue at its first message if still available."""
        super().__init__()
        self._ask = begin_offset if reads_young else group_offset
        self._session = session
        self._group = group
        self._persisted: dict[MessageQueue, int] = {}

    def open(self) -> None:
        """Do nothing: brokers need no opening."""

    async def close(self) -> None:
        """Do nothing: brokers need no closing."""

    def update(self, queue: MessageQueue, offset: int, *, may_go_back: bool = False) -> None:
        super().update(queue, offset, may_go_back=may_go_back)
        if may_go_back:
            self._persisted.pop(queue, None)  # the offset was reset: persist it in any case

    async def read(self, queue: MessageQueue) -> int | None:
        offset = await self._ask(self._session, self._group, queue)
        if offset is not None:
            self.update(queue, offset, may_go_back=True)
        if offset:  # 0 may be the broker's default for young queues, not a stored offset
            self._persisted[queue] = offset
        return offset

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._offsets.update(offsets)
        for result in await asyncio.gather(
            *(self._write(*entry) for entry in offsets.items()), return_exceptions=True
        ):
            if result is not None:
                raise result

    async def _write(self, queue: MessageQueue, offset: int) -> None:
        await set_group_offset(self._session, self._group, queue, offset)
        self._persisted[queue] = offset

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        changed = {
            queue: offset
            for queue in queues
            if (offset := self.known(queue)) is not None and self._persisted.get(queue) != offset
        }
        await asyncio.gather(*(self._try(queue, offset) for queue, offset in changed.items()))

    async def _try(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self._write(queue, offset)
        except OrbitError as problem:
            log.warning("offset_not_persisted queue=%s offset=%d why='%s'", queue, offset, problem)

    def forget(self, queue: MessageQueue) -> None:
        super().forget(queue)
        self._persisted.pop(queue, None)
