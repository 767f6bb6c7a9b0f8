"""One fixed-length file of a `FileQueue`: written through a descriptor, read through a read-only
mapping.

Knows bytes and positions, no formats and no order of files: the queue tracks how far its files are
written and flushed. Thread rule: the loop thread calls everything; the flush thread receives only
the number of a pinned descriptor; `delete` of a file that left its queue may run in an executor.

Descriptor and mapping open on first use, and `close` releases both: a closed file reopens on its
next use, so a cache of many queues may close files freely (after a flush: a disk error may not
reach a descriptor opened later). Readers need no count: a slice of `view()` keeps the mapping alive
even after the file was closed or deleted. Only descriptor numbers need a guard, because the system
reuses them after a close: `acquire` and `release`.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from pathlib import Path

from orbitmq.common.mem import Buffer
from orbitmq.store.file_layer import FileLayer

_CLOSED = -1


class MappedFile:
    """The bytes [start, start + size) of a queue of files."""

    __slots__ = (
        "_close_wanted",
        "_descriptor",
        "_layer",
        "_pins",
        "_reads_ahead",
        "_view",
        "path",
        "size",
        "start",
    )

    def __init__(self, layer: FileLayer, path: Path, start: int, size: int) -> None:
        self.path = path
        self.start = start
        self.size = size
        self._layer = layer
        self._descriptor = _CLOSED
        self._view: memoryview | None = None
        self._pins = 0
        self._close_wanted = False
        self._reads_ahead = True

    def __repr__(self) -> str:
        return f"MappedFile({self.path} start={self.start} size={self.size})"

    @property
    def end(self) -> int:
        """The offset after the last byte of the file."""
        return self.start + self.size

    @property
    def modified_ms(self) -> int:
        """When the file was last written, by the file system's clock."""
        return self._layer.modified_ms(self.path)

    @property
    def is_open(self) -> bool:
        return self._descriptor != _CLOSED or self._view is not None

    def pwrite(self, position: int, data: Buffer) -> None:
        """Write all of `data` at `position` of this file; after OSError any part of it may be
        written.
        """
        assert 0 <= position <= self.size - len(data), (
            f"{len(data)} bytes at {position} of {self!r}"
        )
        self._layer.pwrite(self._open(), data, position)

    def clear(self, position: int, length: int) -> None:
        """Make `length` bytes from `position` read as zeros, without taking space."""
        self._layer.clear(self._open(), position, length)

    def view(self) -> memoryview:
        """The whole file, read-only; later writes show in it."""
        if self._view is None:
            self._view = memoryview(self._layer.map(self._open(), self.size))
            if not self._reads_ahead:
                self._advise(self._view)
        return self._view

    def read_ahead(self, wanted: bool) -> None:
        """Turn the system's readahead for this file on or off."""
        self._reads_ahead = wanted
        if self._view is not None:
            self._advise(self._view)

    def _advise(self, view: memoryview) -> None:
        content = view.obj
        assert isinstance(content, mmap.mmap), "files are read through maps"
        content.madvise(mmap.MADV_NORMAL if self._reads_ahead else mmap.MADV_RANDOM)

    def next_data(self, position: int) -> int:
        """Return the first position from `position` on that may hold non-zero bytes, at most the
        size.
        """
        return self._layer.next_data(self._open(), position, self.size)

    def next_hole(self, position: int) -> int:
        """Return the first position from `position` on that takes no space on disk, at most the
        size.
        """
        return self._layer.next_hole(self._open(), position, self.size)

    def data_end(self) -> int:
        """Return the position after the last one that may hold non-zero bytes."""
        low, high = 0, self.size
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.next_data(middle) == self.size else (middle + 1, high)
        return low

    def sync(self) -> None:
        """Make everything written so far durable; blocks."""
        self._layer.fdatasync(self._open())

    def acquire(self) -> int:
        """Pin and return the descriptor; it stays open until every `acquire` has its `release`."""
        descriptor = self._open()
        self._pins += 1
        return descriptor

    def release(self) -> None:
        assert self._pins > 0, f"{self!r} was released more often than acquired"
        self._pins -= 1
        if self._pins == 0 and self._close_wanted:
            self.close()

    def close(self) -> None:
        """Release the mapping, which lives until its last reader is gone, and the descriptor, once
        it is unpinned.
        """
        self._view = None
        self._close_wanted = self._pins > 0
        if not self._close_wanted and self._descriptor != _CLOSED:
            descriptor, self._descriptor = self._descriptor, _CLOSED
            self._layer.close(descriptor)

    def delete(self) -> None:
        """Close the file and delete it, durably."""
        self.close()
        self._layer.unlink(self.path)
        self._layer.sync_dir(self.path.parent)

    def _open(self) -> int:
        self._close_wanted = False
        if self._descriptor == _CLOSED:
            self._descriptor = self._layer.open(self.path)
        return self._descriptor


def create(layer: FileLayer, path: Path, start: int, size: int) -> MappedFile:
    """Create a sparse file of zeros, with durable name and length; a failure leaves no file behind,
    as far as the disk allows.
    """
    descriptor = layer.open(path, create=True)
    try:
        try:
            layer.truncate(descriptor, size)
            layer.fdatasync(descriptor)
        finally:
            layer.close(descriptor)
        layer.sync_dir(path.parent)
    except OSError:
        with suppress(OSError):
            layer.unlink(path)
        raise
    return MappedFile(layer, path, start, size)
