"""The golden stores as folders that can be opened, with the settings they were made with and what
the real client read from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from orbitmq.message.properties import INNER_BASE, INNER_NUM, KEYS, UNIQUE_KEY
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.stored_message import StoredMessage
from support.common.golden_data import files

ARCHIVES = ("store-4.9.8", "store-5.5.0")
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAYS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
TRANSACTION_BITS, COMMITTED, ROLLED_BACK = 0xC, 0x8, 0xC
INNER_BATCH = 0x80


class GoldenRecord(NamedTuple):
    """What dispatch needs of a record."""

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    size: int
    tags_code: int
    store_time_ms: int
    sys_flag: int
    unique_key: str | None
    keys: str | None
    inner_base: int
    inner_count: int  # 0: no inner batch
    message: StoredMessage

    @property
    def has_entry(self) -> bool:
        return self.sys_flag & TRANSACTION_BITS in (0, COMMITTED)

    @property
    def is_indexed(self) -> bool:
        return self.sys_flag & TRANSACTION_BITS != ROLLED_BACK

    @property
    def index_keys(self) -> list[str]:
        return [key for key in (self.unique_key, *(self.keys or "").split(" ")) if key]


@cache
def folders() -> tuple[str, ...]:
    """Every store directory: `<archive>/<variant>/store`, and `…/recovered` of those that were
    killed.
    """
    return tuple(
        sorted(
            {
                "/".join(path.split("/")[:3])
                for archive in ARCHIVES
                for path in files(archive)
                if path.count("/") > 2
            }
        )
    )


def read_back() -> tuple[str, ...]:
    """Those that a manifest is of: of a store that was killed, what the original made of it."""
    return tuple(
        folder
        for folder in folders()
        if folder.replace("/store", "/recovered") not in set(folders()) - {folder}
    )


def settings(folder: str) -> dict[str, Any]:
    """The broker's settings when it wrote that store."""
    archive, variant, _ = folder.split("/")
    config = json.loads(files(archive)[f"{archive}/config.json"])
    return {**config, **config["variants"].get(variant, {})}


def manifest(folder: str) -> dict[str, Any]:
    """What the real client read from that store."""
    archive, variant, _ = folder.split("/")
    found: dict[str, Any] = json.loads(files(archive)[f"{archive}/{variant}/manifest.json"])
    return found


def content(folder: str, below: str) -> dict[str, bytes]:
    """The files of a store below one of its folders, by their path there."""
    prefix = f"{folder}/{below}/"
    return {
        path.removeprefix(prefix): data
        for path, data in files(folder.split("/")[0]).items()
        if path.startswith(prefix)
    }


def unpack(folder: str, target: Path) -> Path:
    """Write a store into `target`, and return that."""
    for path, data in files(folder.split("/")[0]).items():
        if path.startswith(f"{folder}/"):
            file = target / path.removeprefix(f"{folder}/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    return target


@cache
def records(folder: str) -> tuple[GoldenRecord, ...]:
    """Every good record of the commit log, to its end."""
    return tuple(_records(folder))


def log_end(folder: str) -> int:
    """Where the log ends: behind its last good record."""
    last = records(folder)[-1]
    return last.log_offset + last.size


def _records(folder: str) -> Iterator[GoldenRecord]:
    cursor = RecordCursor()
    for name, data in sorted(content(folder, "commitlog").items()):
        at = 0
        while (result := cursor.read(data, at, len(data))) > 0:
            topic = cursor.topic().decode()
            code = (
                cursor.tags_code()
                if topic != SCHEDULE_TOPIC
                else cursor.store_time_ms + 1000 * DELAYS_S[cursor.queue_id]
            )
            yield GoldenRecord(
                topic,
                cursor.queue_id,
                cursor.queue_offset,
                int(name) + at,
                cursor.size,
                code,
                cursor.store_time_ms,
                cursor.sys_flag,
                cursor.property(UNIQUE_KEY),
                cursor.property(KEYS),
                int(cursor.property(INNER_BASE) or 0),
                int(cursor.property(INNER_NUM) or 0) if cursor.sys_flag & INNER_BATCH else 0,
                cursor.message(),
            )
            at += result
        if result < 0:
            return
