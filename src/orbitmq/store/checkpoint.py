"""The checkpoint: up to which store time log, queues and index are flushed, so that recovery knows
where to begin.

First 48 bytes of a file of 4096, big-endian:

| at | |
|---|---|
| 0 | store time of the last flushed record |
| 8 | store time of the last record whose queue entry is flushed |
| 16 | store time of the last entry of the last full index file |
| 24 | how far the master has flushed, written by a slave |
| 32 | how far all replicas have confirmed |
| 40 | log offset up to which the queues are flushed (5.5) |

Crash rule: one write of 48 bytes inside one sector, then a sync, so the file holds the old numbers
or the new. A file of another size, or with a negative number, reads as zeros, and recovery begins
at the first record.
"""

from __future__ import annotations

import logging
from pathlib import Path
from struct import Struct

from orbitmq.store.file_layer import FileLayer

_FIELDS = Struct(">6q")
_FILE_SIZE = 4096
# clocks are read before locks are taken: records this much older are in all files
_CAUTION_MS = 3_000
log = logging.getLogger(__name__)


class Checkpoint:
    """The numbers of the checkpoint file, freely settable; `write` writes them."""

    __slots__ = (
        "_layer",
        "_path",
        "confirmed_offset",
        "descriptor",
        "index_time_ms",
        "log_time_ms",
        "master_flushed_offset",
        "queues_offset",
        "queues_time_ms",
    )

    def __init__(self, layer: FileLayer, path: Path) -> None:
        self._layer = layer
        self._path = path
        self.descriptor = -1
        self._set(bytes(_FIELDS.size))

    def load(self) -> None:
        """Read the file; create it if there is none."""
        if self._path.name not in self._layer.list(self._path.parent):
            self._layer.make_folder(self._path.parent)
            self._layer.close(self._layer.open(self._path, create=True))
            self._layer.sync_dir(self._path.parent)
        self.descriptor = self._layer.open(self._path)
        size, content = (
            self._layer.size(self._path),
            self._layer.pread(self.descriptor, _FIELDS.size, 0),
        )
        if size == _FILE_SIZE and min(_FIELDS.unpack(content)) >= 0:
            self._set(content)
            return
        if size:
            log.error(
                "checkpoint_unusable file=%s size=%d content=%s", self._path, size, content.hex()
            )
        self._layer.truncate(self.descriptor, _FILE_SIZE)

    @property
    def min_time_ms(self) -> int:
        """Every record stored before this is flushed, in the log and in its queue."""
        flushed_ms: int = min(self.log_time_ms, self.queues_time_ms)
        return max(0, flushed_ms - _CAUTION_MS)

    @property
    def content(self) -> bytes:
        """The numbers as written to the file."""
        return _FIELDS.pack(
            self.log_time_ms,
            self.queues_time_ms,
            self.index_time_ms,
            self.master_flushed_offset,
            self.confirmed_offset,
            self.queues_offset,
        )

    def write(self) -> None:
        """Write the numbers to the file; they are durable once `descriptor` is synced."""
        self._layer.pwrite(self.descriptor, self.content, 0)

    def flush(self) -> None:
        """Write the numbers to the file and sync it; blocks."""
        self.write()
        self._layer.fdatasync(self.descriptor)

    def close(self) -> None:
        """Close the file, if it is open."""
        if self.descriptor >= 0:
            self._layer.close(self.descriptor)
            self.descriptor = -1

    def _set(self, content: bytes) -> None:
        (
            self.log_time_ms,
            self.queues_time_ms,
            self.index_time_ms,
            self.master_flushed_offset,
            self.confirmed_offset,
            self.queues_offset,
        ) = _FIELDS.unpack(content)
