"""How far a group has consumed its queues, kept by the broker, or where each member reads everything in a file (`file_offsets.py`).

Offsets are remembered here and brought to where they are kept from time to time; what is not brought yet comes again after a crash.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from orbitmq.client.queue_offsets import begin_offset, group_offset, set_group_offset
from orbitmq.client.remembered_offsets import RememberedOffsets
from orbitmq.client.session import ClientSession
from orbitmq.common.errors import OrbitError
from orbitmq.protocol.bodies.clients import MessageQueue

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Where a group's offsets are."""

    def open(self) -> None:
        """Begin; WrongCall when somebody else uses what only one may."""
        ...

    async def close(self) -> None:
        """End; nothing is kept any more."""
        ...

    async def read(self, queue: MessageQueue) -> int | None:
        """Where the group goes on, None when it may choose where to begin; OrbitError when nobody can tell now."""
        ...

    def update(self, queue: MessageQueue, offset: int, *, may_go_back: bool = False) -> None:
        """Remember it; going back only when that is meant."""
        ...

    def known(self, queue: MessageQueue) -> int | None: ...

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Bring what is remembered of these to where it is kept; what fails is tried again the next time."""
        ...

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Remember offsets, which may go back, and bring them to where they are kept now; an error when that failed."""
        ...

    def forget(self, queue: MessageQueue) -> None: ...


class BrokerOffsets(RememberedOffsets):
    """Kept by the broker of each queue, for all members of the group."""

    def __init__(self, session: ClientSession, group: str, *, reads_young: bool = True) -> None:
        """`reads_young`: a group that never consumed a queue begins at its first message if that is still at hand."""
        super().__init__()
        self._ask = begin_offset if reads_young else group_offset
        self._session = session
        self._group = group
        self._persisted: dict[MessageQueue, int] = {}

    def open(self) -> None:
        """Brokers are always there."""

    async def close(self) -> None:
        """Brokers go on."""

    def update(self, queue: MessageQueue, offset: int, *, may_go_back: bool = False) -> None:
        super().update(queue, offset, may_go_back=may_go_back)
        if may_go_back:
            self._persisted.pop(queue, None)  # somebody moved it: what the broker was told before counts no more

    async def read(self, queue: MessageQueue) -> int | None:
        offset = await self._ask(self._session, self._group, queue)
        if offset is not None:
            self.update(queue, offset, may_go_back=True)
        if offset:  # a 0 may be the broker's rule for young queues, and kept nowhere yet
            self._persisted[queue] = offset
        return offset

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._offsets.update(offsets)
        for result in await asyncio.gather(*(self._write(*entry) for entry in offsets.items()), return_exceptions=True):
            if result is not None:
                raise result

    async def _write(self, queue: MessageQueue, offset: int) -> None:
        await set_group_offset(self._session, self._group, queue, offset)
        self._persisted[queue] = offset

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        changed = {queue: offset for queue in queues if (offset := self.known(queue)) is not None and self._persisted.get(queue) != offset}
        await asyncio.gather(*(self._try(queue, offset) for queue, offset in changed.items()))

    async def _try(self, queue: MessageQueue, offset: int) -> None:
        try:
            await self._write(queue, offset)
        except OrbitError as problem:
            log.warning("offset_not_persisted queue=%s offset=%d why='%s'", queue, offset, problem)

    def forget(self, queue: MessageQueue) -> None:
        super().forget(queue)
        self._persisted.pop(queue, None)
