"""Descriptors of many small files, of which a limited number is open: the least recently used one
is closed when the limit is reached.

A closed `HandledFile` is cheap, so an owner may keep a hundred thousand of them. Unsynced writes
are tracked per file: closing a descriptor loses none of them, and `begin_flush` reopens what must
be synced.

Thread rule: the loop thread, except for the descriptors of a flush job: those stay open for the
flush thread until `end_flush`.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orbitmq.common.mem import Buffer
from orbitmq.store import mapped_file
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.file_queue import file_name

OPEN_FILES_MAX = 512
_CLOSED = -1


class HandledFile:
    """One existing file, open or not; `start` identifies it to its owner."""

    __slots__ = ("descriptor", "folder", "held", "is_released", "start", "unsynced_bytes")

    def __init__(self, folder: str, start: int) -> None:
        self.folder = folder
        self.start = start
        self.descriptor = _CLOSED
        self.held = 0
        self.unsynced_bytes = 0
        self.is_released = False

    @property
    def path(self) -> Path:
        return Path(self.folder, file_name(self.start))


@dataclass(frozen=True, slots=True)
class FilesFlushJob:
    """Descriptors to sync; they stay open until `end_flush`."""

    descriptors: tuple[int, ...]
    files: tuple[HandledFile, ...]


class OpenFiles:
    """Reads and writes handled files through at most `open_files_max` descriptors, besides the held
    ones.
    """

    def __init__(self, layer: FileLayer, open_files_max: int = OPEN_FILES_MAX) -> None:
        self.layer = layer
        self._open_files_max = open_files_max
        self._open: OrderedDict[HandledFile, None] = OrderedDict()  # least recently used first
        self._unsynced: dict[HandledFile, None] = {}  # in the order of their first write

    def create(self, folder: str, start: int, size: int) -> HandledFile:
        """Create the file, sparse zeros, in an existing folder, with durable name and length."""
        file = HandledFile(folder, start)
        mapped_file.create(self.layer, file.path, start, size)
        return file

    def read(self, file: HandledFile, length: int, at: int) -> bytes:
        """Return the bytes at `at` of the file."""
        return self.layer.pread(self._descriptor(file), length, at)

    def write(self, file: HandledFile, data: Buffer, at: int) -> None:
        """Write `data` at `at` of the file and mark it unsynced."""
        descriptor = self._descriptor(file)
        file.unsynced_bytes += len(data)
        self._unsynced[file] = None
        self.layer.pwrite(descriptor, data, at)

    def clear(self, file: HandledFile, at: int, length: int) -> None:
        """Make those bytes of the file zeros."""
        self.layer.clear(self._descriptor(file), at, length)

    def sync(self, file: HandledFile) -> None:
        """Make the writes to the file durable; blocks."""
        self.layer.fdatasync(self._descriptor(file))

    def delete(self, file: HandledFile) -> None:
        """Delete the file; it needs no sync any more."""
        self._unsynced.pop(file, None)
        file.unsynced_bytes = 0
        self.layer.unlink(file.path)
        self._close(file)

    def begin_flush(
        self, bytes_min: int = 0, files_max: int = OPEN_FILES_MAX
    ) -> FilesFlushJob | None:
        """Return a job for up to `files_max` files with `bytes_min` or more unsynced bytes; None if
        there is none.

        Every job goes back through `end_flush`. Files beyond `files_max` are left to the next job.
        """
        held: list[HandledFile] = []
        for file in [file for file in self._unsynced if file.unsynced_bytes >= bytes_min][
            :files_max
        ]:
            with suppress(FileNotFoundError):  # deleted by another object of the same file
                self._descriptor(file)
                file.held += 1
                held.append(file)
            del self._unsynced[file]
            file.unsynced_bytes = 0
        return FilesFlushJob(tuple(file.descriptor for file in held), tuple(held)) if held else None

    def end_flush(self, job: FilesFlushJob) -> None:
        """Release the job's files; one that was deleted meanwhile is closed now."""
        for file in job.files:
            file.held -= 1
            if file.held == 0 and (file.is_released or file not in self._open):
                self._close(file)
        self._shrink()

    def flush(self) -> None:
        """Make everything written durable, synchronously; OSError if that fails."""
        while (job := self.begin_flush(files_max=self._open_files_max)) is not None:
            try:
                for descriptor in job.descriptors:
                    self.layer.fdatasync(descriptor)
            finally:
                self.end_flush(job)

    def release(self, file: HandledFile) -> None:
        """Mark the object as abandoned by its owner: it reopens for a flush at most, and closes
        after.
        """
        file.is_released = True
        if file.held == 0:
            self._close(file)

    def close(self) -> None:
        """Close all files; unsynced ones stay unsynced, and files reopen on use."""
        for file in tuple(self._open):
            self._close(file)

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def unsynced_count(self) -> int:
        return len(self._unsynced)

    def _descriptor(self, file: HandledFile) -> int:
        if file.descriptor == _CLOSED:
            file.descriptor = self.layer.open(file.path)
            self._remember(file)
        else:
            self._open.move_to_end(file)
        return file.descriptor

    def _remember(self, file: HandledFile) -> None:
        self._open[file] = None
        self._shrink()

    def _shrink(self) -> None:
        while len(self._open) > self._open_files_max:
            oldest = next((file for file in self._open if not file.held), None)
            if oldest is None or next(reversed(self._open)) is oldest:  # only the one in use
                return
            self._close(oldest)

    def _close(self, file: HandledFile) -> None:
        self._open.pop(file, None)
        if file.held == 0 and file.descriptor != _CLOSED:
            descriptor, file.descriptor = file.descriptor, _CLOSED
            self.layer.close(descriptor)
