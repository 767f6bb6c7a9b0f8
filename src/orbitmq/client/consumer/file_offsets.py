"""Offsets of a broadcast group: a local file in the format of the Java client's `offsets.json`.

From `open` to `close` one consumer owns the file: a lock on `<file>.lock` keeps out others, in this
process or another, that would overwrite its offsets. The lock ends with its process, however that
ends; the lock file stays.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from orbitmq.client.consumer.offset_store import CachedOffsets
from orbitmq.common import atomic_file
from orbitmq.common.errors import ConfigurationError, InvalidStateError
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.admin_topics import queue_table, read_offset, read_queue_table
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import as_object


class FileOffsets(CachedOffsets):
    """The offsets of one broadcast consumer, stored in a local file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._lock: int | None = None  # descriptor of the lock file
        self._writes = asyncio.Lock()

    def open(self) -> None:
        """Lock and read the file; raise InvalidStateError if another consumer owns it."""
        if self._lock is not None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(
                self._path.with_name(self._path.name + ".lock"),
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
                0o666,
            )
        except OSError as problem:
            text = (
                f"the offsets of the broadcast group cannot be stored in {self._path}: {problem};"
                " set offsets_folder"
            )
            raise ConfigurationError(text) from problem
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._offsets.update(atomic_file.read_or_backup(self._path, _decode) or {})
        except BlockingIOError:
            os.close(descriptor)
            raise InvalidStateError(
                "another consumer already stores the offsets of this broadcast group in"
                f" {self._path}: give each consumer its own instance_name or offsets_folder"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        self._lock = descriptor

    async def close(self) -> None:
        """Stop writing, and release the file."""
        async with self._writes:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    async def read(self, queue: MessageQueue) -> int | None:
        return self.known(queue)

    async def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        self._offsets.update(offsets)
        await self.persist(offsets)

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        async with self._writes:
            if self._lock is not None:
                content = fastjson.dumps_pretty({"offsetTable": queue_table(self._offsets)})
                writing = asyncio.create_task(
                    asyncio.to_thread(atomic_file.write, self._path, content)
                )
                try:
                    await asyncio.shield(writing)
                except asyncio.CancelledError:
                    await asyncio.wait([writing])  # keep the lock while the thread still writes
                    raise

    def forget(self, queue: MessageQueue) -> None:
        """Do nothing: the file holds the offsets of all queues and is written as a whole."""


def _decode(content: bytes) -> dict[MessageQueue, int]:
    return read_queue_table(
        as_object(fastjson.loads(content), "offsets").get("offsetTable"), read_offset
    )
