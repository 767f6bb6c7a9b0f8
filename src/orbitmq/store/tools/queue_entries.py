"""Reads the entries of many queues in parallel, with few descriptors and little memory for each."""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.store.open_files import OpenFiles
from orbitmq.store.queue_files import QueueFiles
from orbitmq.store.tools.directory import Folder
from orbitmq.store.tools.read_only import ReadOnlyLayer
from orbitmq.store.tools.sizes import Extent

_CHUNK = 4096


class QueueEntries:
    """The entries of one queue, numbered from the first ever; `first` and `end` bound what the
    files have room for.
    """

    __slots__ = ("_at", "_chunk", "_files", "_layer", "_size", "end", "first", "folder")

    def __init__(
        self,
        layer: ReadOnlyLayer,
        files: OpenFiles,
        folder: Folder,
        file_size: int,
        entry_size: int,
    ) -> None:
        self.folder = folder
        self._layer = layer
        self._size = entry_size
        self._files = QueueFiles(files, str(folder.path), file_size)
        self._files.first = folder.files[0].start if folder.files else 0
        self._files.end = folder.files[-1].start + file_size if folder.files else 0
        self.first, self.end = self._files.first // entry_size, self._files.end // entry_size
        self._at, self._chunk = 0, b""

    def read(self, number: int) -> bytes:
        """Return the entry of that number; empty if there is no file."""
        at = (number - self._at) * self._size
        if not 0 <= at < len(self._chunk):
            self._at, self._chunk, at = (
                number,
                self._files.read(number * self._size, _CHUNK // self._size * self._size),
                0,
            )
        return self._chunk[at : at + self._size]

    def from_(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Iterate over the non-zero entries from that number on; holes of files are skipped."""
        size = self._size
        for extent in self.folder.files:
            begin = max(number * size - extent.start, 0)
            if begin >= extent.length:
                continue
            descriptor = self._layer.open(extent.path)
            try:
                for at, part in self._layer.content(
                    descriptor, begin - begin % size, extent.length
                ):
                    for found, entry in self._entries(
                        descriptor, extent, at, at + len(part), number
                    ):
                        yield found, entry
                        number = found + 1  # the next part may begin in the middle of it
            finally:
                self._layer.close(descriptor)

    def _entries(
        self, descriptor: int, extent: Extent, begin: int, end: int, number: int
    ) -> Iterator[tuple[int, bytes]]:
        """Iterate over the entries that begin in bytes [begin, end) of a file, or reach into them:
        data begins at pages, not at entries.
        """
        size = self._size
        begin -= (extent.start + begin) % size
        part = self._layer.pread(descriptor, end + size - begin, begin).rstrip(b"\0")
        for at in range(0, min(len(part), end - begin), size):
            entry = part[at : at + size].ljust(size, b"\0")
            found = (extent.start + begin + at) // size
            if found >= number and any(entry):
                yield found, entry

    def place(self, number: int) -> tuple[str, int]:
        """Return the file name and the byte position of an entry."""
        position = number * self._size
        start = position - position % self._files.file_size
        return f"{start:020}", position - start

    def raw(self, position: int, length: int) -> bytes:
        """Return any bytes of the queue's files."""
        return self._files.read(position, length)
