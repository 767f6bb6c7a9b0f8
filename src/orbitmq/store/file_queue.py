"""Files of one length that together form one long byte sequence: the commit log. (Queues, many and
small: `queue_files`.)

```
<folder>/<start, 20 digits>   file_size bytes each, sparse; each starts where the one before ends
```
Two numbers describe all files together: `end_offset`, after the last valid byte, and
`flushed_offset`, up to which bytes are durable. The owner moves `end_offset` once all bytes of a
change are written; files that begin at or after it are empty, so a change that failed half-way
needs no undo here. Invariants: no gap between files; first_offset <= flushed_offset <= end_offset
<= end of the last file; only the last file on disk can be shorter than file_size, and then it is
empty.

Crash rule: a file's name and length are durable before anything is written to it. `load` assumes
that every file is full, for it does not know the format, and that none is flushed, for the page
cache outlives a process: the owner finds the end, calls `truncate_to`, then `flush`. Leftovers
after the end are cleared, for a record there might pass for a new one after the next crash (Apache
leaves them).

Thread rule: the loop thread owns the queue. `prepare_next` may run in an executor; a lock guards
file creation, nothing else.

Several folders are used round-robin by file number, in sorted order, as in Apache.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from orbitmq.common.errors import StoreError
from orbitmq.common.mem import Buffer
from orbitmq.store import mapped_file
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.mapped_file import MappedFile

_NAME_LENGTH = 20
_REWRITE_CHUNK = 1 << 20
log = logging.getLogger(__name__)


def file_name(start: int) -> str:
    """Return the name of the file that begins at that offset."""
    return f"{start:0{_NAME_LENGTH}}"


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Descriptors to sync, and the end offset that is durable once all of them are synced."""

    descriptors: tuple[int, ...]
    end_offset: int
    files: tuple[MappedFile, ...]  # pinned until `FileQueue.end_flush`
    # How often the queue had been truncated by then. After another truncation the job says nothing
    # about the bytes written since.
    cuts: int


class FileQueue:
    """The files of one log."""

    __slots__ = (
        "_cuts",
        "_folders",
        "_layer",
        "_making",
        "_prepared",
        "_read_only_folders",
        "_reads_ahead",
        "end_offset",
        "file_size",
        "files",
        "flushed_offset",
        "full_ratio",
    )

    def __init__(
        self,
        layer: FileLayer,
        folders: Sequence[Path],
        file_size: int,
        *,
        read_only_folders: Sequence[Path] = (),
        full_ratio: float = 1.0,
    ) -> None:
        self.file_size = file_size
        self.files: list[MappedFile] = []
        self.end_offset = 0
        self.flushed_offset = 0
        self._layer = layer
        self._read_only_folders = tuple(sorted(set(read_only_folders)))
        self._folders = tuple(sorted(set(folders) - set(read_only_folders)))
        self.full_ratio = full_ratio
        self._cuts = 0
        self._making = threading.Lock()
        self._prepared: MappedFile | None = None
        self._reads_ahead = True
        if not self._folders:
            raise StoreError(
                f"no folder to write to: all of {[str(folder) for folder in folders]} are"
                " read-only; name another"
            )

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders that may hold files, including the read-only ones."""
        return self._folders + self._read_only_folders

    @property
    def first_offset(self) -> int:
        """The first byte that exists."""
        return self.files[0].start if self.files else self.end_offset

    def load(self) -> None:
        """Find the existing files; StoreError if one has a wrong length or is missing in
        between.
        """
        found = sorted(
            (name, folder)
            for folder in self.folders
            for name in self._layer.list(folder)
            if self._is_ours(folder, name)
        )
        if found and self._layer.size(found[-1][1] / found[-1][0]) == 0:
            name, folder = found.pop()
            log.warning("empty_file_deleted file=%s", folder / name)
            self._layer.unlink(folder / name)
            self._layer.sync_dir(folder)
        files = [self._loaded(name, folder) for name, folder in found]
        for before, after in pairwise(files):
            if after.start != before.end:
                raise StoreError(
                    f"{after.path} follows {before.path}, which ends at {before.end}: a file is"
                    " missing between them, or is there twice; bring the missing one back, or move"
                    " away what is on one side of the gap"
                )
        for folder in {file.path.parent for file in files}:
            # A process may have died between creating a file and syncing its folder.
            self._layer.sync_dir(folder)
        # Only when all is well: files without an end count as prepared ones, which are removed when
        # the log is closed.
        self.files, self.end_offset = files, files[-1].end if files else 0
        self.read_ahead(self._reads_ahead)
        self.flushed_offset = self.first_offset

    def end_at_data(self) -> None:
        """Move the end before the trailing zeros: reading a mapped hole kills the process on a full
        memory disk.
        """
        last = next((file for file in reversed(self.files) if file.next_data(0) < file.size), None)
        self.end_offset = self.first_offset if last is None else last.start + last.data_end()

    def find(self, offset: int) -> MappedFile | None:
        """Return the file that holds that offset, written or not."""
        if not self.files:
            return None
        number = (offset - self.files[0].start) // self.file_size
        return self.files[number] if 0 <= number < len(self.files) else None

    def last(self) -> MappedFile | None:
        """Return the file that holds the last byte before the end."""
        return self.find(self.end_offset - 1)

    def view(self, offset: int, size: int) -> memoryview | None:
        """Return `size` bytes from `offset`; None unless they all are before the end and in one
        existing file.
        """
        file = self.find(offset)
        if file is None or size < 0 or offset + size > min(file.end, self.end_offset):
            return None
        return file.view()[offset - file.start : offset - file.start + size]

    def read_ahead(self, wanted: bool) -> None:
        """Turn the system's readahead on or off, for present and future files."""
        self._reads_ahead = wanted
        for file in self.files:
            file.read_ahead(wanted)

    def write(self, offset: int, data: Buffer) -> None:
        """Write `data` into the file that holds `offset`, created if it is the next; `end_offset`
        stays. OSError if that fails.
        """
        file = self.find(offset) or self.roll(offset - offset % self.file_size)
        file.pwrite(offset - file.start, data)

    def roll(self, start: int) -> MappedFile:
        """Add the file that begins at `start`: the prepared one if there is one, else a new one.
        OSError if it cannot be created.
        """
        expected = self.files[-1].end if self.files else start - start % self.file_size
        assert start == expected, f"a file at {start}, expected at {expected}"
        with self._making:
            prepared, self._prepared = self._prepared, None
            if prepared is not None and prepared.start != start:  # the queue begins elsewhere
                prepared.delete()
                prepared = None
            if not self.files:
                self.end_offset = self.flushed_offset = max(self.end_offset, start)
            self.files.append(prepared or self._make(start))
            self.files[-1].read_ahead(self._reads_ahead)
        log.info("file_added file=%s prepared=%s", self.files[-1].path, prepared is not None)
        return self.files[-1]

    def prepare_next(self) -> None:
        """Create the next file ahead of time, once; may run in an executor. OSError if it cannot be
        created.
        """
        with self._making:
            if self._prepared is None:
                self._prepared = self._make(
                    self.files[-1].end
                    if self.files
                    else self.end_offset - self.end_offset % self.file_size
                )

    def drop_prepared(self) -> None:
        """Remove the files that hold nothing yet, as Apache does on stop."""
        with self._making:
            if self._prepared is not None:
                self._prepared.delete()
                self._prepared = None
            while self.files and self.files[-1].start >= self.end_offset:
                self.files.pop().delete()

    def truncate_to(self, offset: int) -> None:
        """Make `offset` the end, durably: delete the files after it, and clear the rest of its own
        file.
        """
        if self.files and offset > self.files[-1].end:
            raise StoreError(
                f"cannot truncate {self.files[-1].path.parent} at {offset}: its files end at"
                f" {self.files[-1].end}"
            )
        with self._making:
            if self._prepared is not None:
                self._prepared.delete()
                self._prepared = None
            # The last first: a crash in between leaves no gap.
            while self.files and self.files[-1].start > offset:
                self.files.pop().delete()
        if (file := self.find(offset)) is not None:
            file.clear(offset - file.start, file.end - offset)
            file.sync()
        self.end_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)
        self._cuts += 1

    def clear(self, begin: int, end: int) -> None:
        """Make the bytes [begin, end) read as zeros, as far as there are files."""
        for file in self._between(begin, end):
            file.clear(max(begin - file.start, 0), min(end, file.end) - max(begin, file.start))

    def rewrite(self, begin: int, end: int) -> None:
        """Write the bytes [begin, end) over themselves, so that the next sync writes them to disk
        even if the system believes them clean.

        Holes stay holes: filling one takes space, which a full disk does not have.
        """
        for file in self._between(begin, end):
            at, stop = max(begin - file.start, 0), min(end, file.end) - file.start
            while (at := file.next_data(at)) < stop:
                chunk_end = min(at + _REWRITE_CHUNK, file.next_hole(at), stop)
                file.pwrite(at, bytes(file.view()[at:chunk_end]))
                at = chunk_end

    def sync(self, begin: int, end: int) -> None:
        """Make the bytes [begin, end) durable, as far as there are files."""
        for file in self._between(begin, end):
            file.sync()

    def oldest(self) -> MappedFile | None:
        """Return the first file if it may be detached: it is flushed, and the end is after it."""
        if not self.files or self.files[0].end > min(self.flushed_offset, self.end_offset - 1):
            return None
        return self.files[0]

    def detach_oldest(self) -> MappedFile | None:
        """Remove the first file from the queue, if allowed; the caller deletes it, possibly in an
        executor.
        """
        return None if self.oldest() is None else self.files.pop(0)

    def delete_oldest(self) -> bool:
        """Delete the first file, unless it is still needed; return whether it was deleted."""
        file = self.detach_oldest()
        if file is not None:
            file.delete()
        return file is not None

    def begin_flush(self) -> FlushJob | None:
        """Return what to sync to make everything durable; None if it is. Every job goes back
        through `end_flush`.
        """
        if self.flushed_offset == self.end_offset:
            return None
        files = self._between(self.flushed_offset, self.end_offset)
        return FlushJob(tuple(file.acquire() for file in files), self.end_offset, files, self._cuts)

    def end_flush(self, job: FlushJob, error: Exception | None = None) -> None:
        """Release the job's files; without an error, what it covered is flushed."""
        for file in job.files:
            file.release()
        if error is None and job.cuts == self._cuts:
            self.flushed_offset = max(self.flushed_offset, job.end_offset)

    def flush(self) -> None:
        """Make everything up to the end durable, synchronously; OSError if that fails."""
        self.sync(self.flushed_offset, self.end_offset)
        self.flushed_offset = self.end_offset

    def close(self) -> None:
        """Close every descriptor and mapping; they reopen on use."""
        for file in self.files:
            file.close()

    def _between(self, begin: int, end: int) -> tuple[MappedFile, ...]:
        """The files that hold any byte of [begin, end)."""
        return (
            tuple(file for file in self.files if file.start < end and begin < file.end)
            if begin < end
            else ()
        )

    def _is_ours(self, folder: Path, name: str) -> bool:
        ours = len(name) == _NAME_LENGTH and name.isascii() and name.isdigit()
        if not ours:
            log.warning("foreign_file_ignored file=%s", folder / name)
        return ours

    def _loaded(self, name: str, folder: Path) -> MappedFile:
        path, start = folder / name, int(name)
        size = self._layer.size(path)
        if size != self.file_size:
            raise StoreError(
                f"{path} has {size} bytes, every file here should have {self.file_size}: configure"
                " the file size that the store was written with (mappedFileSizeCommitLog). If that"
                " is the right one, the file was truncated or extended: restore it from a replica"
                " or a backup, or repair it: orbitmq store repair --config <the broker's"
                " configuration>"
            )
        if start % self.file_size:
            raise StoreError(
                f"{path} is not named after a multiple of {self.file_size}: configure the file size"
                " of this store"
            )
        return MappedFile(self._layer, path, start, size)

    def _make(self, start: int) -> MappedFile:
        folder = self._folder_for(start)
        self._layer.make_folder(folder)
        return mapped_file.create(self._layer, folder / file_name(start), start, self.file_size)

    def _folder_for(self, start: int) -> Path:
        """Choose a folder round-robin; one on a full disk is skipped, unless all are full."""
        if len(self._folders) == 1:
            return self._folders[0]
        for folder in self._folders:
            self._layer.make_folder(folder)
        with_room = [
            folder for folder in self._folders if self._layer.disk_ratio(folder) <= self.full_ratio
        ] or self._folders
        return with_room[start // self.file_size % len(with_room)]
