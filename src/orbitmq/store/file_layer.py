"""All file system calls of the store behind one seam, so that tests can make each of them fail.

Knows descriptors and paths, no formats. A call completes or raises OSError. All calls are safe from
any thread; the caller decides which thread uses which descriptor.
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
        """Return a read-write descriptor; with `create` the file must not exist yet."""
        ...

    def close(self, descriptor: int) -> None: ...

    def size(self, path: Path) -> int:
        """Return the file's length in bytes."""
        ...

    def modified_ms(self, path: Path) -> int:
        """Return when the file was last written, in ms since 1970."""
        ...

    def list(self, folder: Path) -> list[str]:
        """Return the names in `folder`, sorted; an empty list if there is no such folder."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Create the folder and its missing parents, durably."""
        ...

    def pwrite(self, descriptor: int, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`; after OSError any part of it may be written."""
        ...

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        """Return the bytes at `offset`: fewer than `length` only at the end of the file."""
        ...

    def checksum(self, path: str, size: int, length: int) -> int | None:
        """Return the CRC-32 of the first `length` bytes of a file of `size` bytes; None if there is
        no such file.

        One call that takes the path as text: a start calls it for up to a hundred thousand files.
        """
        ...

    def map(self, descriptor: int, length: int) -> mmap.mmap:
        """Map the first `length` bytes, shared and read-only: later writes show in the mapping."""
        ...

    def truncate(self, descriptor: int, length: int) -> None:
        """Set the file's length; added bytes read as zeros and take no space."""
        ...

    def clear(self, descriptor: int, offset: int, length: int) -> None:
        """Make `length` bytes from `offset` read as zeros; holes stay holes, existing zeros are not
        rewritten.
        """
        ...

    def next_data(self, descriptor: int, offset: int, end: int) -> int:
        """Return the first offset from `offset` on that may hold non-zero bytes, at most `end`."""
        ...

    def next_hole(self, descriptor: int, offset: int, end: int) -> int:
        """Return the first offset from `offset` on that takes no space on disk, at most `end`."""
        ...

    def fdatasync(self, descriptor: int) -> None:
        """Make the file's content and length durable; after OSError its durability is unknown."""
        ...

    def rename(self, old: Path, new: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder, if it exists."""
        ...

    def sync_dir(self, folder: Path) -> None:
        """Make the names in `folder` durable."""
        ...

    def disk_ratio(self, folder: Path) -> float:
        """Return the used share of the disk below `folder`, between 0 and 1."""
        ...


class OsFileLayer:
    """The files of this machine."""

    __slots__ = ()

    def open(self, path: Path, *, create: bool = False) -> int:
        return os.open(
            path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0), 0o644
        )

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
        if written < len(data):  # a nearly full disk: the next call completes or raises the cause
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
            while at < length and (
                chunk := os.pread(descriptor, min(_CHECKSUM_CHUNK, length - at), at)
            ):
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
            hole = self.next_hole(descriptor, offset, end)
            chunk = self.pread(descriptor, min(_CLEAR_CHUNK, hole - offset), offset)
            if chunk.count(0) < len(chunk):
                self.pwrite(descriptor, bytes(len(chunk)), offset)
            offset += len(chunk)

    def next_data(self, descriptor: int, offset: int, end: int) -> int:
        try:
            return min(os.lseek(descriptor, offset, os.SEEK_DATA), end)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end of the file
                return end
            raise

    def next_hole(self, descriptor: int, offset: int, end: int) -> int:
        # The end of the file counts as a hole.
        return min(os.lseek(descriptor, offset, os.SEEK_HOLE), end)

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
        return usage.used / (usage.used + usage.free)  # space reserved for root counts as neither
