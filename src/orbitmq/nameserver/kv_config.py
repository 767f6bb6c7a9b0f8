"""The key-value configuration: namespace -> key -> value, in memory and in one file that follows
every change.

File: `{"configTable":{namespace:{key:value}}}`, compact UTF-8 JSON as RocketMQ 5.5.0 writes it, the
previous content in `<file>.bak`. Crash rule: that of `atomic_file`; a change is visible, and
acknowledged, once it is on disk: one that cannot be saved did not happen. Thread rule: the event
loop owns the tables; only the write of encoded bytes runs in another thread, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from orbitmq.common import atomic_file
from orbitmq.common.slices import Slices, slices_of
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import as_object, text_map
from orbitmq.remoting.slices import finish_between

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
_LOGGED_PER_SLICE: Final = 50

log = logging.getLogger(__name__)


class _Change:
    """A value to set, or with None to delete, and its outcome."""

    __slots__ = ("failure", "is_over", "key", "namespace", "value")

    def __init__(self, namespace: str, key: str, value: str | None) -> None:
        self.namespace = namespace
        self.key = key
        self.value = value
        self.is_over = False
        self.failure: BaseException | None = None


class KvConfig:
    """The tables, and the file that follows them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tables: dict[str, dict[str, str]] = (
            atomic_file.read_or_backup(path, _decode) or {}
        )  # replaced, never changed
        self._pending: list[_Change] = []
        self._writing = asyncio.Lock()

    def get(self, namespace: str, key: str) -> str | None:
        return self._tables.get(namespace, {}).get(key)

    def table(self, namespace: str) -> Mapping[str, str] | None:
        """Return the values of a namespace; None if it was never written to."""
        return self._tables.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; return once it is durable. OSError: it could not be saved, and nothing was
        changed.
        """
        await self._apply(_Change(namespace, key, value))

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a value; return once that is durable. The namespace stays, as in Apache. OSError
        as for `put`.
        """
        await self._apply(_Change(namespace, key, None))

    def log_tables(self) -> Slices[None]:
        """Log every value, in slices."""
        tables = self._tables
        log.info("kv_config namespaces=%d", len(tables))
        values = (
            (namespace, key, value)
            for namespace, table in tables.items()
            for key, value in table.items()
        )
        for part in slices_of(values, _LOGGED_PER_SLICE):
            for namespace, key, value in part:
                log.info("kv_config namespace=%s key=%s value=%s", namespace, key, value)
            yield

    async def _apply(self, change: _Change) -> None:
        """Write a change to disk, then publish it; changes that wait for the same write share it,
        and its failure.
        """
        self._pending.append(change)
        async with self._writing:
            if not change.is_over:
                await self._write_pending()
        if change.failure is not None:
            raise change.failure

    async def _write_pending(self) -> None:
        changes, self._pending = self._pending, []
        tables = _changed(self._tables, changes)
        failure: BaseException | None = None
        try:
            if tables != self._tables:
                data = await finish_between(fastjson.dumps_in_slices({"configTable": tables}))
                await asyncio.to_thread(self._write_file, data)
                self._tables = tables
        except OSError as error:
            log.error(
                "kv_config_not_saved file=%s changes=%d reason=%r", self._path, len(changes), error
            )
            failure = error
        except BaseException as error:  # cancelled: the state of the file is unknown
            failure = error
            raise
        finally:
            for change in changes:
                change.is_over, change.failure = True, failure

    def _write_file(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(self._path, data, keep_backup=True)


def _changed(
    tables: Mapping[str, dict[str, str]], changes: Sequence[_Change]
) -> dict[str, dict[str, str]]:
    """Return the tables with these changes applied in order; those of other namespaces are the same
    objects.
    """
    touched = {change.namespace for change in changes}
    changed: dict[str, dict[str, str]] = {
        name: dict(table) if name in touched else table for name, table in tables.items()
    }
    for change in changes:
        if change.value is not None:
            changed.setdefault(change.namespace, {})[change.key] = change.value
        else:
            changed.get(change.namespace, {}).pop(change.key, None)
    return changed


def _decode(data: bytes) -> dict[str, dict[str, str]]:
    tables = as_object(
        as_object(fastjson.loads(data), "kvConfig").get("configTable") or {}, "configTable"
    )
    return {namespace: text_map(table) for namespace, table in tables.items()}
