"""The key-value configuration: namespace -> key -> value, in memory and in one file that follows every change.

File: `{"configTable":{namespace:{key:value}}}`, compact UTF-8 JSON as RocketMQ 5.5.0 writes it, the content before the last change in
`<file>.bak`. Crash rule: that of `atomic_file`; an answer goes out after its change is on disk, so an acknowledged change survives.
Thread rule: the event loop owns the tables; only the write of finished bytes runs in another thread, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orbitmq.common import atomic_file
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import as_object, text_map

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"

log = logging.getLogger(__name__)


class KvConfig:
    """The tables, and the file that follows them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tables: dict[str, dict[str, str]] = atomic_file.read_or_backup(path, _decode) or {}
        self._changes = 0
        self._changes_written = 0
        self._writing = asyncio.Lock()

    def get(self, namespace: str, key: str) -> str | None:
        return self._tables.get(namespace, {}).get(key)

    def table(self, namespace: str) -> Mapping[str, str] | None:
        """The values of a namespace; None when it was never written to."""
        return self._tables.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; returns when it is on disk."""
        self._tables.setdefault(namespace, {})[key] = value
        await self._write()

    async def delete(self, namespace: str, key: str) -> None:
        """Forget a value; returns when that is on disk. The namespace stays, as in the original."""
        if self._tables.get(namespace, {}).pop(key, None) is not None:
            await self._write()

    def log_tables(self) -> None:
        """Write every value to the log."""
        log.info("kv_config namespaces=%d", len(self._tables))
        for namespace, table in self._tables.items():
            for key, value in table.items():
                log.info("kv_config namespace=%s key=%s value=%s", namespace, key, value)

    async def _write(self) -> None:
        """Bring the file up to date; changes that wait for the same write share it."""
        self._changes += 1
        own_change = self._changes
        async with self._writing:
            if self._changes_written >= own_change:
                return
            changes, data = self._changes, fastjson.dumps({"configTable": self._tables})
            await asyncio.to_thread(self._write_file, data)
            self._changes_written = changes

    def _write_file(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(self._path, data, keep_backup=True)


def _decode(data: bytes) -> dict[str, dict[str, str]]:
    tables = as_object(as_object(fastjson.loads(data), "kvConfig").get("configTable") or {}, "configTable")
    return {namespace: text_map(table) for namespace, table in tables.items()}
