"""Every call that the store makes to the operating system's files, behind one seam, so that tests can make each of them fail.

Knows descriptors and paths, no formats. A call does all that it says or raises OSError. All of them may be called from any thread;
who may call what on which descriptor is the rule of the caller.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from orbitmq.common.crc import crc32
from orbitmq.common.mem import Buffer

_CLEAR_CHUNK = 1 << 20
_CHECKSUM_CHUNK = 1 << 20


class FileLayer(Protocol):
    """Files and folders of one machine."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """A descriptor to read and write the file; with `create` the file must not exist yet."""
        ...

    def close(self, descriptor: int) -> None: ...

    def size(self, path: Path) -> int:
        """The length of the file in bytes."""
        ...

    def modified_ms(self, path: Path) -> int:
        """When the file was written to last, ms since 1970."""
        ...

    def list(self, folder: Path) -> list[str]:
        """The names in `folder`, sorted; none when there is no such folder."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Make the folder and those above it that are missing, durably."""
        ...

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`; after OSError any part of it may be there."""
        ...

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        """The bytes at `offset`, fewer than `length` only where the file ends."""
        ...

    def checksum(self, path: str, size: int, length: int) -> int | None:
        """The CRC-32 of the first `length` bytes of a file of `size` bytes; None when there is no such file.

        One call, and the path as text: a start makes it for each of a hundred thousand files.
        """
        ...

    def map(self, descriptor: int, length: int) -> mmap.mmap:
        """The first `length` bytes, shared and read-only: what is written to the file shows in it."""
        ...

    def truncate(self, descriptor: int, length: int) -> None:
        """Give the file that length; what is added reads as zeros and takes no space."""
        ...

    def clear(self, descriptor: int, offset: int, length: int) -> None:
        """Make `length` bytes from `offset` read as zeros; holes stay holes, zeros are not written again."""
        ...

    def next_data(self, descriptor: int, offset: int, end: int) -> int:
        """The first offset from `offset` on that may hold anything but zeros; `end` when there is none before it."""
        ...

    def fdatasync(self, descriptor: int) -> None:
        """Make content and length of the file durable; after OSError nobody knows what is."""
        ...

    def rename(self, old: Path, new: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder that is empty, if it is there."""
        ...

    def sync_dir(self, folder: Path) -> None:
        """Make the names in `folder` durable."""
        ...

    def disk_ratio(self, folder: Path) -> float:
        """Which part of the disk below `folder` is used, between 0 and 1."""
        ...


class OsFileLayer:
    """The files of this machine."""

    __slots__ = ()

    def open(self, path: Path, *, create: bool = False) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0), 0o644)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def list(self, folder: Path) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(folder))
        except FileNotFoundError:
            return []

    def make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        self.sync_dir(folder.parent)

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        written = os.pwrite(descriptor, data, offset)
        if written < len(data):  # a disk about to be full takes a part first, and says why with the next call
            with memoryview(data) as view:
                while written < len(data):
                    written += os.pwrite(descriptor, view[written:], offset + written)

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        return os.pread(descriptor, length, offset)

    def checksum(self, path: str, size: int, length: int) -> int | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if os.fstat(descriptor).st_size != size:
                return None
            found = at = 0
            while at < length and (chunk := os.pread(descriptor, min(_CHECKSUM_CHUNK, length - at), at)):
                found, at = crc32(chunk, found), at + len(chunk)
            return found
        finally:
            os.close(descriptor)

    def map(self, descriptor: int, length: int) -> mmap.mmap:
        return mmap.mmap(descriptor, length, access=mmap.ACCESS_READ)

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def clear(self, descriptor: int, offset: int, length: int) -> None:
        end = offset + length
        while (offset := self.next_data(descriptor, offset, end)) < end:
            hole = os.lseek(descriptor, offset, os.SEEK_HOLE)  # the end of the file is one
            chunk = self.pread(descriptor, min(_CLEAR_CHUNK, hole - offset, end - offset), offset)
            if chunk.count(0) < len(chunk):
                self.pwrite(descriptor, bytes(len(chunk)), offset)
            offset += len(chunk)

    def next_data(self, descriptor: int, offset: int, end: int) -> int:
        try:
            return min(os.lseek(descriptor, offset, os.SEEK_DATA), end)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end of the file
                return end
            raise

    def fdatasync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def remove_folder(self, folder: Path) -> None:
        with suppress(FileNotFoundError):
            folder.rmdir()

    def sync_dir(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def disk_ratio(self, folder: Path) -> float:
        usage = shutil.disk_usage(folder)
        return usage.used / (usage.used + usage.free)  # what only root may use counts for neither
