"""The files of one queue as one sequence of bytes: files of one size, each named by the position of
its first byte, without gaps.

Two numbers, `first` and `end`, describe all of them, so there is no object per file: at most the
last written and the last read file are kept, and their descriptors belong to `OpenFiles`. Reads are
`pread`, not mappings, which a hundred thousand queues could not have. (The commit log, of few
mapped files, uses `FileQueue` instead.)

Crash rule: bytes are written before `end` moves; after the end the last file is all zeros, and no
files follow it. `load` assumes that all files are full, because lengths say nothing: the owner
finds the end and sets it with `cut`, which also clears what follows, so that truncated data does
not reappear (Apache leaves it there).

Every file has a running checksum of its bytes below the end, updated with each write: `state`
proves at the next start that they are unchanged (`queue_manifest`). Files found by `load` have no
checksums.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from orbitmq.common.crc import crc32
from orbitmq.common.errors import StoreError
from orbitmq.common.mem import Buffer
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.file_queue import file_name
from orbitmq.store.open_files import HandledFile, OpenFiles

_NAME_SIZE = 20


class FilesState(NamedTuple):
    """Bytes [first, end) of one queue, and the CRC-32 of those in each file."""

    first: int = 0
    end: int = 0
    checksums: tuple[int, ...] = ()


def proven(layer: FileLayer, folder: str, file_size: int, state: FilesState) -> int:
    """Return how many of the files of `state` in a queue's folder have its bytes; creates no object
    for the queue.
    """
    start = state.first
    for number, checksum in enumerate(state.checksums):
        if (
            layer.checksum(
                f"{folder}/{file_name(start)}", file_size, min(state.end - start, file_size)
            )
            != checksum
        ):
            return number
        start += file_size
    return len(state.checksums)


class QueueFiles:
    """Bytes [first, end) of one queue; both are 0 if there are no files. The first file may be
    empty unless it begins at 0.
    """

    __slots__ = (
        "_checksums",
        "_files",
        "_last",
        "_other",
        "_stale",
        "end",
        "file_size",
        "first",
        "folder",
    )

    def __init__(self, files: OpenFiles, folder: str, file_size: int) -> None:
        self._files = files
        self.folder = folder
        self.file_size = file_size
        self.first = self.end = 0
        self._checksums: list[int] | None = []  # of each file; None: unknown
        self._stale: set[int] = set()  # files in the folder that may be overwritten
        self._last: HandledFile | None = None  # written last
        self._other: HandledFile | None = None  # the last read of the others

    def load(self) -> None:
        """Find the files; delete an empty last one; StoreError for a wrong length or a gap."""
        layer, folder = self._files.layer, Path(self.folder)
        starts = sorted(int(name) for name in self._names())
        if starts and layer.size(folder / file_name(starts[-1])) == 0:
            layer.unlink(folder / file_name(starts.pop()))
        for number, start in enumerate(starts):
            path = folder / file_name(start)
            size = layer.size(path)
            if size != self.file_size:
                raise StoreError(
                    f"{path} has {size} bytes where {self.file_size} are configured: set the size"
                    " that the store was made with, or rebuild the queue from the commit"
                    " log: orbitmq store repair"
                )
            if start != starts[0] + number * self.file_size or start % self.file_size:
                raise StoreError(
                    f"{path} does not follow the file before it: one is missing. Restore it, or"
                    " rebuild the queue from the commit log: orbitmq store repair"
                )
        self.first = starts[0] if starts else 0
        self.end = starts[-1] + self.file_size if starts else 0
        self._checksums = None if starts else []

    @property
    def state(self) -> FilesState | None:
        """What proves the content at the next start; None if that is unknown."""
        return (
            None
            if self._checksums is None
            else FilesState(self.first, self.end, tuple(self._checksums))
        )

    def proven(self, state: FilesState) -> int:
        """Return how many of the files of `state`, from the first, have the right length and
        checksum.
        """
        return proven(self._files.layer, self.folder, self.file_size, state)

    def adopt(self, state: FilesState) -> None:
        """Continue with files that were proven to have that state; remove others, and clear what
        follows the end.
        """
        self.first, self.end, self._checksums = state.first, state.end, list(state.checksums)
        self.remove_others()
        self._clear_after_end()

    def reuse(self) -> None:
        """Overwrite the files in the folder instead of creating new ones, for which a full disk may
        have no room.
        """
        layer, folder = self._files.layer, Path(self.folder)
        self._stale = {
            int(name) for name in self._names() if layer.size(folder / name) == self.file_size
        }
        self._remove_but(self._stale)

    def remove_others(self) -> None:
        """Remove the files in the folder that are not in use."""
        self._remove_but({*self.starts, self.first} if self.first or self.end else set())
        self._stale = set()
        with suppress(OSError):  # not empty
            self._files.layer.remove_folder(Path(self.folder))

    def _remove_but(self, kept: set[int]) -> None:
        """Remove all other files in the folder, the last first."""
        layer, folder = self._files.layer, Path(self.folder)
        for name in reversed(self._names()):
            if int(name) not in kept:
                layer.unlink(folder / name)
                layer.sync_dir(folder)

    def _names(self) -> list[str]:
        return [
            name
            for name in self._files.layer.list(Path(self.folder))
            if len(name) == _NAME_SIZE and name.isdecimal()
        ]

    @property
    def starts(self) -> range:
        """The positions where the files begin."""
        return range(self.first, self.end, self.file_size)

    def read(self, position: int, length: int) -> bytes:
        """Return the bytes [position, position+length) below the end; none for a position out of
        range.
        """
        length = min(length, self.end - position)
        if position < self.first or length <= 0:
            return b""
        at = position % self.file_size
        if at + length <= self.file_size:
            return self._files.read(self._file(position - at), length, at)
        parts = []
        while length > 0:
            step = min(length, self.file_size - at)
            parts.append(self._files.read(self._file(position - at), step, at))
            position, length, at = position + step, length - step, 0
        return b"".join(parts)

    def append(self, data: Buffer, position: int) -> None:
        """Write `data` at `position`, into as many files as it takes: at the end or, if there are
        no files, where any file may begin.

        After OSError nothing is changed, and the call can be repeated.
        """
        last, size = self._last, len(data)
        if (
            last is not None
            and position == self.end
            and last.start < position
            and position + size <= last.start + self.file_size
        ):
            self._files.write(last, data, position - last.start)
            self.end = position + size
            if self._checksums is not None:
                self._checksums[-1] = crc32(data, self._checksums[-1])
            return
        first = self.first if self.end else position
        assert position in (first, self.end), "bytes are contiguous"
        assert first % self.file_size == 0, "a file begins at a multiple of its size"
        end, made = position + len(data), []
        checksums = None if self._checksums is None else list(self._checksums)
        try:
            with memoryview(data) as view:
                for start in range(position - position % self.file_size, end, self.file_size):
                    if not self._exists(start):
                        made.append(start)
                        self._make(start)
                        if checksums is not None:
                            checksums.append(0)
                    at, part_end = max(start, position), min(start + self.file_size, end)
                    with view[at - position : part_end - position] as part:
                        self._files.write(self._file(start), part, at - start)
                        if checksums is not None:
                            checksums[-1] = crc32(part, checksums[-1])
        except OSError:
            for start in reversed(made):
                with suppress(OSError):
                    self._delete(start)
            raise
        self.first, self.end, self._checksums = first, end, checksums

    def cut(self, end: int) -> None:
        """Truncate to `end`: files that begin there or later are removed, from the last; the rest
        of the one before is cleared.

        A first file that does not begin at 0 stays, empty, so that positions do not restart at 0.
        """
        if end == self.end:
            self._clear_after_end()
            return
        for start in reversed(self.starts):
            if start < end or start == self.first > 0:
                break
            self._delete(start)
            # Or a crash could bring the last back without those before it.
            self._files.layer.sync_dir(Path(self.folder))
        self.end = max(end, self.first)
        self._clear_after_end()
        if self._checksums is not None:
            starts = self.starts
            del self._checksums[len(starts) or (1 if self.first else 0) :]
            if self._checksums:
                last = starts[-1] if starts else self.first
                self._checksums[-1] = crc32(self.read(last, self.end - last))

    def drop_first(self) -> None:
        """Remove the first file; it must not be the last one."""
        assert self.end - self.first > self.file_size, "the last file stays"
        self._delete(self.first)
        # Or a crash could bring it back without the next one.
        self._files.layer.sync_dir(Path(self.folder))
        self.first += self.file_size
        if self._checksums is not None:
            del self._checksums[0]

    def destroy(self) -> None:
        """Remove all files, and the folder if it is empty then."""
        for start in reversed(self.starts or (self.first,)):
            if self._exists(start):
                self._delete(start)
                self._files.layer.sync_dir(Path(self.folder))
        self.first, self.end, self._checksums = 0, 0, []
        with suppress(OSError):  # never created, or not empty
            self._files.layer.remove_folder(Path(self.folder))

    def _clear_after_end(self) -> None:
        """Clear what follows the end in the last file."""
        at = self.end % self.file_size
        if at or self.first == self.end > 0:
            self._files.clear(self._file(self.end - at), at, self.file_size - at)

    def _exists(self, start: int) -> bool:
        """Whether a file begins at `start`, which is not before the first."""
        return start < self.end or start == self.first > 0

    def _file(self, start: int) -> HandledFile:
        """Return the existing file that begins at `start`."""
        last = self._last
        if last is not None and last.start == start:
            return last
        other = self._other
        if other is None or other.start != start:
            if last is None and start + self.file_size >= self.end:
                self._last = last = HandledFile(self.folder, start)
                return last
            if other is not None:
                self._files.release(other)
            self._other = other = HandledFile(self.folder, start)
        return other

    def _make(self, start: int) -> None:
        """Create the file that begins at `start`, the new last one."""
        if self.first == self.end:
            self._files.layer.make_folder(Path(self.folder))
        if start in self._stale:
            self._stale.remove(start)
            file = HandledFile(self.folder, start)
            self._files.clear(file, 0, self.file_size)
        else:
            file = self._files.create(self.folder, start, self.file_size)
        last, self._last = self._last, file
        if last is not None:
            self._files.release(last)

    def _delete(self, start: int) -> None:
        file = self._file(start)
        self._files.delete(file)
        if self._last is file:
            self._last = None
        if self._other is file:
            self._other = None
