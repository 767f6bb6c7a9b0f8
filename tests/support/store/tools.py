"""What the tests of the store's tools share: golden and own stores as folders, damage to plant, and
what is in a store before and after.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orbitmq.message import hosts, properties
from orbitmq.message.record_write import MessageRecord
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.index_file import IndexShape
from orbitmq.store.message_store import MessageStore
from orbitmq.store.tools import dump
from orbitmq.store.tools.check import Checked, check
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.findings import Finding, Severity
from orbitmq.store.tools.repair import Plan, Repair, plan
from orbitmq.store.tools.sizes import StoreLayout
from orbitmq.testing.manual_clock import ManualClock
from support.store import golden_stores

HOST = hosts.pack("192.0.2.1", 10911)
LOG_FILE_SIZE = 4096
CLEAN_5 = "store-5.5.0/clean/store"


_HOLD = """
import sys
from pathlib import Path
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.store_lock import StoreLock
StoreLock(OsFileLayer(), Path(sys.argv[1])).acquire()
print("held", flush=True)
input()
"""


@contextmanager
def held(root: Path) -> Iterator[int]:
    """Another process has the store open; its number."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder.pid
        holder.communicate("\n")


def directory(root: Path, **told: Any) -> StoreDirectory:
    return StoreDirectory(StoreLayout(root=root, **told))


def checked(root: Path, **told: Any) -> Checked:
    return check(directory(root, **told))


def golden(root: Path, folder: str = CLEAN_5) -> Path:
    return golden_stores.unpack(folder, root / "store")


def mend(root: Path, *, truncate_damage: bool = False, **told: Any) -> tuple[Plan, Checked, Path]:
    """Check and repair: what was planned, what a check finds then, and where the copies are."""
    store = directory(root, **told)
    found = check(store)
    planned = plan(found, truncate_damage=truncate_damage)
    work = Repair(store, found, ManualClock())
    work.run(planned.steps)
    return planned, checked(root, **told), work.backup.folder


def damage(found: Checked) -> list[Finding]:
    """All findings but notes."""
    return [finding for finding in found.findings if finding.severity is not Severity.NOTE]


def kinds(found: Checked) -> set[str]:
    return {finding.kind for finding in found.findings}


def flip(path: Path, at: int, bits: int = 0x01) -> None:
    """Change bits of one byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def overwrite(path: Path, at: int, content: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(content)] = content
    path.write_bytes(data)


def tree(root: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its content and the time it was written."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


def queued(root: Path, **told: Any) -> dict[str, list[tuple[int, bytes]]]:
    """The messages of every queue, with their offsets there."""
    store = directory(root, **told)
    return {
        f"{key.topic}/{key.queue_id}": [
            (message.queue_offset, message.body) for message in dump.from_queue(store, key, 0)
        ]
        for key in sorted({*store.plain, *store.batch})
    }


def own_config(root: Path, **changes: Any) -> StoreConfig:
    settings: dict[str, Any] = {
        "commit_log_file_size": LOG_FILE_SIZE, "queue_file_size": 200, "index_shape": IndexShape(11, 60),
    }  # fmt: skip
    return StoreConfig(root=root, **(settings | changes))


def own_store(root: Path, clock: ManualClock, **changes: Any) -> MessageStore:
    """A store of ours below `root`, open."""
    store = MessageStore(OsFileLayer(), clock, own_config(root, **changes), HOST)
    store.open()
    return store


def put(store: MessageStore, number: int, topic: str = "Orders", queue_id: int = 0) -> int:
    """Put one message with keys and tags; its offset in the log."""
    names = {
        properties.UNIQUE_KEY: f"U{number:08}",
        properties.KEYS: f"k{number} shared",
        properties.TAGS: f"T{number % 3}",
    }
    body = f"body {number} ".encode() * 5
    message = MessageRecord(
        topic.encode(),
        body,
        born_host=HOST,
        born_time_ms=1,
        queue_id=queue_id,
        properties=properties.encode(names),
    )
    return store.put(message).offset


def filled(root: Path, count: int = 60, **changes: Any) -> list[int]:
    """A store of ours with messages in two queues, stopped; the offsets of their records."""
    clock = ManualClock()
    store = own_store(root, clock, **changes)
    offsets = []
    for number in range(count):
        clock.advance_ms(700)
        offsets.append(put(store, number, queue_id=number % 2))
    store.close()
    return offsets
