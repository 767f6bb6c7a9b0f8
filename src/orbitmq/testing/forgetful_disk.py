"""A disk that can forget everything unsynced: the deterministic worst case of a power loss.

A `FileLayer` on the real files that records undo information for everything since the last sync: of
a file's content and length until its `fdatasync`, of a name until `sync_dir` of its folder. Nothing
is really synced, which a single process cannot notice, and which is fast. A file whose removal is
not synced is held in `limbo`. For random faults, torn sectors and failing calls see `FaultyDisk`.

Modification times come from `clock`, so that files age with a manual clock. Thread rule: any
thread. No file may be open when `forget` is called.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from orbitmq.common.clock import Clock
from orbitmq.common.mem import Buffer
from orbitmq.store.file_layer import OsFileLayer


class _Overwritten(NamedTuple):
    """The content and length of a file before a change."""

    offset: int
    content: bytes
    length: int


@dataclass(slots=True, eq=False)
class _JournaledFile:
    """One file under any name, and how to undo its unsynced changes."""

    path: Path
    overwritten: list[_Overwritten] = field(default_factory=list)
    modified_ms: int | None = None

    def forget(self) -> None:
        """Restore its synced content."""
        if not self.overwritten:
            return
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            while self.overwritten:
                offset, content, length = self.overwritten.pop()
                os.pwrite(descriptor, content, offset)
                os.ftruncate(descriptor, length)
        finally:
            os.close(descriptor)


class _UndoableNameChange(NamedTuple):
    """An unsynced change of a name."""

    undo: Callable[[], None]
    settle: Callable[[], None]  # called when it is synced


class ForgetfulDisk(OsFileLayer):
    """A `FileLayer` whose `forget` undoes everything unsynced."""

    __slots__ = ("_clock", "_descriptors", "_files", "_limbo", "_lock", "_name_changes", "_numbers")

    def __init__(self, clock: Clock, limbo: Path) -> None:
        self._clock = clock
        self._limbo = limbo
        self._lock = threading.RLock()
        self._files: dict[Path, _JournaledFile] = {}  # opened files by their present path
        self._descriptors: dict[int, _JournaledFile] = {}
        self._name_changes: dict[
            Path, list[_UndoableNameChange]
        ] = {}  # by folder, since its last sync
        self._numbers = itertools.count()
        limbo.mkdir(parents=True, exist_ok=True)

    def forget(self) -> None:
        """Undo everything that was not synced."""
        with self._lock:
            assert not self._descriptors, (
                f"{[file.path for file in self._descriptors.values()]} are open and might still be"
                " written"
            )
            for file in self._files.values():
                file.forget()
            for changes in self._name_changes.values():
                while changes:
                    changes.pop().undo()

    # The file layer.

    def open(self, path: Path, *, create: bool = False) -> int:
        with self._lock:
            descriptor = super().open(path, create=create)
            if create:
                self._files.pop(path, None)
            file = self._descriptors[descriptor] = self._file(path)
            if create:
                self._renamed(path, undo=partial(self._remove, file))
            return descriptor

    def close(self, descriptor: int) -> None:
        with self._lock:
            del self._descriptors[descriptor]
            super().close(descriptor)

    def modified_ms(self, path: Path) -> int:
        file = self._files.get(path)
        return (
            super().modified_ms(path)
            if file is None or file.modified_ms is None
            else file.modified_ms
        )

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        with self._lock:
            self._overwrites(descriptor, offset, len(data))
            super().pwrite(descriptor, data, offset)

    def truncate(self, descriptor: int, length: int) -> None:
        with self._lock:
            self._overwrites(descriptor, length, max(os.fstat(descriptor).st_size - length, 0))
            super().truncate(descriptor, length)

    def fdatasync(self, descriptor: int) -> None:
        with self._lock:
            self._descriptors[descriptor].overwritten.clear()

    def rename(self, old: Path, new: Path) -> None:
        assert old.parent == new.parent, "names are synced by folder"
        with self._lock:
            if new.exists():
                self.unlink(new)
            file = self._file(old)
            self._move(file, new)
            self._renamed(new, undo=partial(self._move, file, old))

    def unlink(self, path: Path) -> None:
        with self._lock:
            file = self._file(path)
            self._move(file, self._limbo / str(next(self._numbers)))
            self._renamed(
                path, undo=partial(self._move, file, path), settle=partial(self._remove, file)
            )

    def sync_dir(self, folder: Path) -> None:
        with self._lock:
            for change in self._name_changes.pop(folder, ()):
                change.settle()

    # Undo records.

    def _file(self, path: Path) -> _JournaledFile:
        return self._files.setdefault(path, _JournaledFile(path))

    def _overwrites(self, descriptor: int, offset: int, length: int) -> None:
        file = self._descriptors[descriptor]
        content = self.pread(descriptor, length, offset)
        file.overwritten.append(_Overwritten(offset, content, os.fstat(descriptor).st_size))
        file.modified_ms = self._clock.now_ms()

    def _renamed(
        self, name: Path, *, undo: Callable[[], None], settle: Callable[[], None] = lambda: None
    ) -> None:
        self._name_changes.setdefault(name.parent, []).append(_UndoableNameChange(undo, settle))

    def _move(self, file: _JournaledFile, to: Path) -> None:
        to.parent.mkdir(parents=True, exist_ok=True)  # the folder may have been removed when empty
        file.path.rename(to)
        del self._files[file.path]
        file.path = to
        self._files[to] = file

    def _remove(self, file: _JournaledFile) -> None:
        file.path.unlink()
        del self._files[file.path]
