"""The files of a store, to be looked at and nothing else; and whether somebody has the store open.

Invariant: no call changes a byte, a length, a name or a time of modification; what would is an error of the program.
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
    """This machine's files, opened for reading."""

    __slots__ = ()

    def open(self, path: Path, *, create: bool = False) -> int:
        assert not create, f"{path} would be made by a look"
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
        raise AssertionError("a store that is looked at is not changed")

    def content(self, descriptor: int, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The bytes [begin, end) in parts, each with its position; holes are passed over."""
        while (begin := self.next_data(descriptor, begin, end)) < end:
            hole = os.lseek(descriptor, begin, os.SEEK_HOLE)  # the end of the file is one
            part = self.pread(descriptor, min(_CHUNK, hole - begin, end - begin), begin)
            if not part:
                return
            yield begin, part
            begin += len(part)


def lock_owner(root: Path) -> int | None:
    """The process that has the store open, None when nobody has; asking takes no lock.

    To be asked by a process that has not the store open itself: closing the file would give its lock up.
    """
    try:
        descriptor = os.open(root / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _whence, _start, _length, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else process
