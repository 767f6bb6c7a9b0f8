"""Follows a topic: yields messages as they arrive in all its queues, including queues added later;
in order within each queue.

An unreachable broker is retried until it is back. A slow reader slows down the pulls; nothing is
dropped.
"""

from __future__ import annotations

import asyncio
from typing import Final, Self

from orbitmq.admin.offsets import OffsetOperations
from orbitmq.admin.positions import Position
from orbitmq.client.consumer.pulling import pull
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.session.client_session import ClientSession
from orbitmq.common.errors import NotFoundError, OrbitError, RemoteError
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.subscriptions import SubscriptionData

TOOLS_GROUP: Final = "TOOLS_CONSUMER"  # predefined at every broker, for reading outside of groups
_SUSPEND_MS: Final = 15_000
_AGAIN_S: Final = 1.0
_NEW_QUEUES_S: Final = 10.0
_HELD_MAX: Final = 1_000


class Follower:
    """An asynchronous iterator over new messages of a topic, from `start` to `close`."""

    def __init__(
        self, session: ClientSession, offsets: OffsetOperations, wanted: SubscriptionData
    ) -> None:
        self._session = session
        self._offsets = offsets
        self._wanted = wanted
        self._arrived: asyncio.Queue[ReceivedMessage | OrbitError] = asyncio.Queue(_HELD_MAX)
        self._readers: dict[MessageQueue, asyncio.Task[None]] = {}
        self._watcher: asyncio.Task[None] | None = None

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues being read."""
        return sorted(self._readers)

    async def start(self, begin: Position) -> None:
        """Find the start offset of each queue, and read from there."""
        queues = await self._offsets.queues(self._wanted.topic)
        offsets = await asyncio.gather(*(self._offsets.at(queue, begin) for queue in queues))
        for queue, offset in zip(queues, offsets, strict=True):
            self._readers[queue] = asyncio.create_task(self._read(queue, offset))
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop reading."""
        tasks = [*self._readers.values(), *([self._watcher] if self._watcher else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        found = await self._arrived.get()
        if isinstance(found, OrbitError):
            raise found
        return found

    async def _read(self, queue: MessageQueue, offset: int) -> None:
        broker_id = 0
        while True:
            try:
                found = await pull(
                    self._session,
                    TOOLS_GROUP,
                    queue,
                    offset,
                    self._wanted,
                    suspend_ms=_SUSPEND_MS,
                    broker_id=broker_id,
                )
            except (RemoteError, NotFoundError):
                await asyncio.sleep(_AGAIN_S)
                continue
            except OrbitError as problem:
                await self._arrived.put(problem)
                return
            offset, broker_id = found.next_offset, found.broker_id
            for message in found.messages:
                await self._arrived.put(message)

    async def _watch(self) -> None:
        """Read queues that are added later from their beginning."""
        while True:
            await asyncio.sleep(_NEW_QUEUES_S)
            try:
                queues = await self._offsets.queues(self._wanted.topic)
            except (RemoteError, NotFoundError):
                continue
            for queue in queues:
                if queue not in self._readers:
                    self._readers[queue] = asyncio.create_task(self._read(queue, 0))
