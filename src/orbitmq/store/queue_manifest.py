"""The manifest of queues and index: the state of their files when it was written, so that the next
start can prove that they are unchanged.

```
<root>/queues.manifest    one line of JSON, a line feed, the line's CRC-32 in 8 hexadecimal digits
```
It states: up to `log_offset` every record is in its queue and in the index; of each queue, the
bytes of its files up to there or further, with a CRC-32 for each file; of each index file, its
header, and a CRC-32 of its entries and of its slots. Queues and entries only grow at their end, so
a manifest stays true while messages are added; any other change of a file changes a checksum. The
checksum of the last bytes of the log before `log_offset` ties the manifest to its log. Apache's
brokers ignore the file.

Crash rule: written to a temporary file and renamed, after the files it describes are synced. One
that is missing, incomplete or of another log proves nothing: queues and index are rebuilt from the
log then.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from orbitmq.common.crc import crc32
from orbitmq.store.batch_consume_queue import ENTRY_SIZE as BATCH_ENTRY_SIZE
from orbitmq.store.consume_queue import ENTRY_SIZE
from orbitmq.store.entry_queue import QueueState
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.index_file import IndexFileState, IndexHeader, IndexShape
from orbitmq.store.queue_files import FilesState
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset

FILE_NAME: Final = "queues.manifest"
_VERSION: Final = 1
_CHECKSUM_SIZE: Final = 9
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogTail:
    """The bytes of the log before `end`, and their checksum."""

    end: LogOffset
    size: int = 0
    checksum: int = 0


@dataclass(frozen=True, slots=True)
class IndexState:
    """The files of the index, the oldest first."""

    shape: IndexShape
    files: tuple[IndexFileState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`topics` maps each topic to the log offset where its life began; None if topics were unknown,
    and all records were dispatched.
    """

    log_tail: LogTail
    file_sizes: tuple[int, int, int]  # of consume queues, ext files and batch consume queues
    topics: Mapping[str, int] | None = None
    plain: Mapping[QueueKey, QueueState] = field(default_factory=dict)
    batch: Mapping[QueueKey, QueueState] = field(default_factory=dict)
    index: IndexState | None = None  # None: nothing is known of the index

    @property
    def log_offset(self) -> LogOffset:
        """Everything before is in queues and index."""
        return self.log_tail.end


def write(layer: FileLayer, root: Path, manifest: Manifest) -> None:
    """Replace the manifest in `root`, durably; OSError leaves the previous one. Blocks."""
    path, beside = root / FILE_NAME, root / (FILE_NAME + ".tmp")
    if beside.name in layer.list(root):
        layer.unlink(beside)
    descriptor = layer.open(beside, create=True)
    try:
        layer.pwrite(descriptor, encode(manifest), 0)
        layer.fdatasync(descriptor)
    finally:
        layer.close(descriptor)
    layer.rename(beside, path)
    layer.sync_dir(root)


def exists(layer: FileLayer, root: Path) -> bool:
    """Whether there is a manifest in `root`, usable or not: only this implementation writes one."""
    return FILE_NAME in layer.list(root)


def read(layer: FileLayer, root: Path) -> Manifest | None:
    """Return the manifest in `root`; None if there is none, or it is incomplete."""
    path = root / FILE_NAME
    if path.name not in layer.list(root):
        return None
    descriptor = layer.open(path)
    try:
        data = layer.pread(descriptor, layer.size(path), 0)
    finally:
        layer.close(descriptor)
    try:
        return decode(data)
    except (ValueError, TypeError, KeyError) as error:
        log.warning("manifest_unusable file=%s reason=%r", path, error)
        return None


def encode(manifest: Manifest) -> bytes:
    tail = manifest.log_tail
    text = json.dumps(
        {
            "version": _VERSION,
            "logTail": [tail.end, tail.size, tail.checksum],
            "fileSizes": manifest.file_sizes,
            "topics": None if manifest.topics is None else dict(manifest.topics),
            "plain": _rows(manifest.plain),
            "batch": _rows(manifest.batch),
            "batchOffsets": [[*key, state.next_offset] for key, state in manifest.batch.items()],
            "index": (
                None if manifest.index is None else [manifest.index.shape, manifest.index.files]
            ),
        },
        separators=(",", ":"),
    ).encode()
    return b"%s\n%08x" % (text, crc32(text))


def decode(data: bytes) -> Manifest:
    """Decode a manifest; ValueError, TypeError or KeyError if the bytes are not one."""
    text, checksum = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:]
    if checksum != b"\n%08x" % crc32(text):
        raise ValueError("its checksum is wrong")
    members = json.loads(text)
    if members["version"] != _VERSION:
        raise ValueError(f"its version is {members['version']}, {_VERSION} is known")
    queue_size, ext_size, batch_size = members["fileSizes"]
    return Manifest(
        log_tail=LogTail(*members["logTail"]),
        file_sizes=(queue_size, ext_size, batch_size),
        topics=members["topics"],
        plain=_states(members["plain"], ENTRY_SIZE),
        batch=_batch_states(members["batch"], members.get("batchOffsets", ())),
        index=_index(members.get("index")),  # absent in older manifests
    )


def _rows(states: Mapping[QueueKey, QueueState]) -> list[Any]:
    return [[*key, state.physical_end, state.entries, state.units] for key, state in states.items()]


def _states(rows: list[Any], message_size: int) -> dict[QueueKey, QueueState]:
    """Return the states of queues by key; each message takes `message_size` bytes of a queue."""
    return {
        QueueKey(topic, queue_id): QueueState(
            _files(entries),
            None if units is None else _files(units),
            physical_end,
            QueueOffset(entries[1] // message_size),
        )
        for topic, queue_id, physical_end, entries, units in rows
    }


def _batch_states(rows: list[Any], offsets: Iterable[list[Any]]) -> dict[QueueKey, QueueState]:
    """Return the states of batch queues; an older manifest without `batchOffsets` does not have the
    message counts: at least one per batch.
    """
    states = _states(rows, BATCH_ENTRY_SIZE)
    for topic, queue_id, next_offset in offsets:
        key = QueueKey(topic, queue_id)
        states[key] = states[key]._replace(next_offset=QueueOffset(next_offset))
    return states


def _files(row: list[Any]) -> FilesState:
    first, end, checksums = row
    return FilesState(first, end, tuple(checksums))


def _index(row: list[Any] | None) -> IndexState | None:
    if row is None:
        return None
    shape, files = row
    states = (
        IndexFileState(name, IndexHeader(*header), entries, slots)
        for name, header, entries, slots in files
    )
    return IndexState(IndexShape(*shape), tuple(states))
