"""How far a group has consumed its queues, kept by the broker, or in a file of this machine where each member reads everything.

Offsets are remembered here and brought to where they are kept from time to time; what is not brought yet comes again after a crash.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Final, Protocol

from orbitmq.client.session import ClientSession
from orbitmq.common import atomic_file
from orbitmq.common.errors import OrbitError, RequestRefused
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.admin_topics import queue_table
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import as_object, integer
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

_READ_TIMEOUT_MS: Final = 5_000
_INT64: Final = 1 << 63
log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Where a group's offsets are."""

    async def read(self, queue: MessageQueue) -> int | None:
        """How far the group is, None when it never consumed the queue; OrbitError when nobody can tell now."""
        ...

    def update(self, queue: MessageQueue, offset: int, *, may_go_back: bool = False) -> None:
        """Remember it; going back only when that is meant."""
        ...

    def known(self, queue: MessageQueue) -> int | None: ...

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Bring what is remembered of these to where it is kept; what fails is tried again the next time."""
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

    async def read(self, queue: MessageQueue) -> int | None:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        request = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        try:
            response = await self._session.ask(await self._session.broker_of(queue), request, _READ_TIMEOUT_MS)
        except RequestRefused as refused:
            if refused.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        offset = QueryConsumerOffsetResponseHeader.from_fields(response.ext_fields).offset
        self.update(queue, offset, may_go_back=True)
        return offset

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        changed = {queue: offset for queue in queues if (offset := self.known(queue)) is not None and self._persisted.get(queue) != offset}
        await asyncio.gather(*(self._write(queue, offset) for queue, offset in changed.items()))

    async def _write(self, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        try:
            address = await self._session.broker_of(queue)
            await self._session.ask(address, RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header))
        except OrbitError as problem:
            log.warning("offset_not_persisted queue=%s offset=%d why='%s'", queue, offset, problem)
        else:
            self._persisted[queue] = offset

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

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        async with self._writes:
            content = fastjson.dumps_pretty({"offsetTable": queue_table(self._offsets)})
            await asyncio.to_thread(self._write, content)

    def _write(self, content: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(self._path, content)


def _decode(content: bytes) -> dict[MessageQueue, int]:
    members = as_object(fastjson.loads(content), "offsets")
    table = as_object(members.get("offsetTable") or {}, "offsetTable")
    return {MessageQueue.from_json(queue): integer(table, queue, 0, _INT64) for queue in table}
