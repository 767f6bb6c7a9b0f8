"""One store, one process: the lock on its folder, and the mark that tells a crash from a clean
stop.

`lock`: 4 bytes `lock`, the first of them locked while the store is open, with the same kind of lock
as Apache's, so that neither opens what the other has open. Such locks belong to the process: a list
here detects two stores of one process in one folder, and no other code in the process may open the
file, for closing it would release the lock. `abort`: the process id; the file exists while the
store is open, so if it exists at start, the last process did not stop cleanly.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from orbitmq.common.errors import StoreError, StoreLockedError
from orbitmq.store.file_layer import FileLayer

_LOCK_TEXT = b"lock"
_held: set[Path] = set()  # folders locked by this process


class StoreLock:
    """The lock of one store folder, from `acquire` to `release`."""

    def __init__(self, layer: FileLayer, root: Path) -> None:
        self._layer = layer
        self._root = root.resolve()
        self._descriptor = -1

    def acquire(self) -> None:
        """Lock the folder; StoreLockedError if it is locked already."""
        path = self._root / "lock"
        if self._root in _held:
            raise StoreLockedError(
                f"this process has the store {self._root} open already: stop it before opening it"
                " again"
            )
        self._layer.make_folder(self._root)
        descriptor = self._layer.open(path, create=path.name not in self._layer.list(self._root))
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except OSError as error:
            self._layer.close(descriptor)
            raise StoreLockedError(
                f"another process has the store {self._root} open (lock on {path}): stop it, or use"
                " another folder"
            ) from error
        try:
            self._layer.pwrite(descriptor, _LOCK_TEXT, 0)
        except OSError as error:
            self._layer.close(descriptor)
            raise StoreError(
                f"the store {self._root} cannot be locked: {path} was not written: {error}; check"
                " the disk"
            ) from error
        self._descriptor = descriptor
        _held.add(self._root)

    def release(self) -> None:
        """Unlock the folder; does nothing if it is not locked."""
        if self._descriptor >= 0:
            self._layer.close(self._descriptor)
            self._descriptor = -1
            _held.discard(self._root)


class AbortMark:
    """The file that exists while a store is open."""

    def __init__(self, layer: FileLayer, root: Path) -> None:
        self._layer = layer
        self._path = root / "abort"

    def is_set(self) -> bool:
        """Whether the last process that opened the store did not stop it cleanly."""
        return self._path.name in self._layer.list(self._path.parent)

    def set(self) -> None:
        """Mark the store as open, durably."""
        descriptor = self._layer.open(self._path, create=not self.is_set())
        try:
            self._layer.truncate(descriptor, 0)
            self._layer.pwrite(descriptor, str(os.getpid()).encode(), 0)
        except OSError as error:
            if error.errno != errno.ENOSPC:  # only the file's existence matters
                raise
        finally:
            self._layer.close(descriptor)
        self._layer.sync_dir(self._path.parent)

    def clear(self) -> None:
        """Mark the store as cleanly stopped, durably."""
        self._layer.unlink(self._path)
        self._layer.sync_dir(self._path.parent)
