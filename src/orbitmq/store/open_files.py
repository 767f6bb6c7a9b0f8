"""Descriptors of many small files, of which only some are open: the one used longest ago is closed when the limit is reached.

A `HandledFile` is cheap while it is closed, so whoever owns a hundred thousand of them may keep them. What was written and not synced yet
is known here, by file: closing a descriptor loses none of it, and `begin_flush` opens what has to be synced again.

Threads: all of it belongs to the loop thread, but for the descriptors of a flush job: those stay open for the flusher until `end_flush`.
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
    """One file that exists, open or not: `start` is what its owner knows it by."""

    __slots__ = ("descriptor", "folder", "held", "is_let_go", "start", "unsynced_bytes")

    def __init__(self, folder: str, start: int) -> None:
        self.folder = folder
        self.start = start
        self.descriptor = _CLOSED
        self.held = 0
        self.unsynced_bytes = 0
        self.is_let_go = False

    @property
    def path(self) -> Path:
        return Path(self.folder, file_name(self.start))


@dataclass(frozen=True, slots=True)
class FilesFlushJob:
    """Descriptors to sync; they stay open until the job is back."""

    descriptors: tuple[int, ...]
    files: tuple[HandledFile, ...]


class OpenFiles:
    """Reads and writes of handled files, by at most `open_files_max` descriptors besides those that are held."""

    def __init__(self, layer: FileLayer, open_files_max: int = OPEN_FILES_MAX) -> None:
        self.layer = layer
        self._open_files_max = open_files_max
        self._open: OrderedDict[HandledFile, None] = OrderedDict()  # the one used longest ago first
        self._unsynced: dict[HandledFile, None] = {}  # in the order of their first write

    def create(self, folder: str, start: int, size: int) -> HandledFile:
        """Make the file, zeros that take no space, in a folder that is there; its name and length are durable."""
        file = HandledFile(folder, start)
        mapped_file.create(self.layer, file.path, start, size)
        return file

    def read(self, file: HandledFile, length: int, at: int) -> bytes:
        """The bytes at `at` of the file."""
        return self.layer.pread(self._descriptor(file), length, at)

    def write(self, file: HandledFile, data: Buffer, at: int) -> None:
        """Write `data` at `at` of the file; it is unsynced from now on."""
        descriptor = self._descriptor(file)
        file.unsynced_bytes += len(data)
        self._unsynced[file] = None
        self.layer.pwrite(descriptor, data, at)

    def clear(self, file: HandledFile, at: int, length: int) -> None:
        """Make those bytes of the file zeros."""
        self.layer.clear(self._descriptor(file), at, length)

    def sync(self, file: HandledFile) -> None:
        """Make what was written to the file, and cleared in it, durable; blocks."""
        self.layer.fdatasync(self._descriptor(file))

    def delete(self, file: HandledFile) -> None:
        """Remove the file; nobody needs to sync it any more."""
        self._unsynced.pop(file, None)
        file.unsynced_bytes = 0
        self.layer.unlink(file.path)
        self._close(file)

    def begin_flush(self, bytes_min: int = 0, files_max: int = OPEN_FILES_MAX) -> FilesFlushJob | None:
        """What to sync of files that have `bytes_min` or more unsynced bytes, up to `files_max`; None when there is none.

        Every job goes back through `end_flush`. Files that a job has no room for are in the next.
        """
        held: list[HandledFile] = []
        for file in [file for file in self._unsynced if file.unsynced_bytes >= bytes_min][:files_max]:
            with suppress(FileNotFoundError):  # deleted by another object of the same file
                self._descriptor(file)
                file.held += 1
                held.append(file)
            del self._unsynced[file]
            file.unsynced_bytes = 0
        return FilesFlushJob(tuple(file.descriptor for file in held), tuple(held)) if held else None

    def end_flush(self, job: FilesFlushJob) -> None:
        """Let go of the job's files; one that was deleted meanwhile is closed now."""
        for file in job.files:
            file.held -= 1
            if file.held == 0 and (file.is_let_go or file not in self._open):
                self._close(file)
        self._shrink()

    def flush(self) -> None:
        """Make everything written durable, here and now; OSError when that fails."""
        while (job := self.begin_flush(files_max=self._open_files_max)) is not None:
            try:
                for descriptor in job.descriptors:
                    self.layer.fdatasync(descriptor)
            finally:
                self.end_flush(job)

    def let_go(self, file: HandledFile) -> None:
        """Its owner will not use this object again; it is opened for a flush at most, and closed after."""
        file.is_let_go = True
        if file.held == 0:
            self._close(file)

    def close(self) -> None:
        """Close all files; what is unsynced stays unsynced, and files open again when they are used."""
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
            if oldest is None or next(reversed(self._open)) is oldest:  # all are held, but for the one in use
                return
            self._close(oldest)

    def _close(self, file: HandledFile) -> None:
        self._open.pop(file, None)
        if file.held == 0 and file.descriptor != _CLOSED:
            descriptor, file.descriptor = file.descriptor, _CLOSED
            self.layer.close(descriptor)
