"""How far a group has consumed its queues, kept by the broker, or in a file of this machine where each member reads everything.

Offsets are remembered here and brought to where they are kept from time to time; what is not brought yet comes again after a crash.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from orbitmq.client.queue_offsets import begin_offset, set_group_offset
from orbitmq.client.session import ClientSession
from orbitmq.common import atomic_file
from orbitmq.common.errors import OrbitError
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.admin_topics import queue_table, read_offset, read_queue_table
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import as_object

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Where a group's offsets are."""

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


class _Remembered:
    """Offsets by queue."""

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


class BrokerOffsets(_Remembered):
    """Kept by the broker of each queue, for all members of the group."""

    def __init__(self, session: ClientSession, group: str) -> None:
        super().__init__()
        self._session = session
        self._group = group
        self._persisted: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, may_go_back: bool = False) -> None:
        super().update(queue, offset, may_go_back=may_go_back)
        if may_go_back:
            self._persisted.pop(queue, None)  # somebody moved it: what the broker was told before counts no more

    async def read(self, queue: MessageQueue) -> int | None:
        offset = await begin_offset(self._session, self._group, queue)
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


class FileOffsets(_Remembered):
    """Kept in a file as the Java client's, whose `offsets.json` is read and written."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._writes = asyncio.Lock()
        self._offsets.update(atomic_file.read_or_backup(path, _decode) or {})

    async def read(self, queue: MessageQueue) -> int | None:
        return self.known(queue)

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._offsets.update(offsets)
        await self.persist(offsets)

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        async with self._writes:
            content = fastjson.dumps_pretty({"offsetTable": queue_table(self._offsets)})
            await asyncio.to_thread(self._write, content)

    def forget(self, queue: MessageQueue) -> None:
        """It stays: the file has the offsets of all queues, and is written as a whole."""

    def _write(self, content: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(self._path, content)


def _decode(content: bytes) -> dict[MessageQueue, int]:
    return read_queue_table(as_object(fastjson.loads(content), "offsets").get("offsetTable"), read_offset)
