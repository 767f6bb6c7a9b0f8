"""Read-only access to the files of a store, and whether a process has the store open.

Invariant: no call changes a byte, a length, a name or a modification time; a call that would is a
bug.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from orbitmq.common.mem import Buffer
from orbitmq.store.file_layer import OsFileLayer

_CHUNK = 1 << 20
_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, process: as Linux has it


class ReadOnlyLayer(OsFileLayer):
    """The files of this machine, opened for reading."""

    __slots__ = ()

    def open(self, path: Path, *, create: bool = False) -> int:
        assert not create, f"{path} must not be created by a read"
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def make_folder(self, folder: Path) -> None:
        self._refuse()

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        self._refuse()

    def truncate(self, descriptor: int, length: int) -> None:
        self._refuse()

    def clear(self, descriptor: int, offset: int, length: int) -> None:
        self._refuse()

    def rename(self, old: Path, new: Path) -> None:
        self._refuse()

    def unlink(self, path: Path) -> None:
        self._refuse()

    def remove_folder(self, folder: Path) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise AssertionError("a read-only store must not be changed")

    def content(self, descriptor: int, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Iterate over the bytes [begin, end) in parts, each with its position; holes are
        skipped.
        """
        while (begin := self.next_data(descriptor, begin, end)) < end:
            hole = self.next_hole(descriptor, begin, end)
            part = self.pread(descriptor, min(_CHUNK, hole - begin), begin)
            if not part:
                return
            yield begin, part
            begin += len(part)


def lock_owner(root: Path) -> int | None:
    """Return the id of the process that has the store open, or None; takes no lock.

    Not for a process that has the store open itself: closing the file would release its lock.
    """
    try:
        descriptor = os.open(root / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _whence, _start, _length, process = _FLOCK.unpack(
            fcntl.fcntl(descriptor, fcntl.F_GETLK, query)
        )
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else process
