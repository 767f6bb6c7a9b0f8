"""Files of one length, one after the other, that are one long run of bytes: the commit log. (Queues, many and small: `queue_files`.)

```
<folder>/<start, 20 digits>   each file_size bytes, sparse; the start of each is the end of the one before
```
Two numbers say how far the run goes, for all files together: `end_offset`, behind the last byte that counts, and `flushed_offset`,
up to which the disk has it. The owner moves `end_offset` once all bytes of a change are written; files that begin at or behind it are
empty, so a change that failed half-way needs no undoing here. Invariants: no gap between files; first_offset <= flushed_offset <=
end_offset <= end of the last file; only the last file on disk can be shorter than it should be, and then it is empty.

Crash rule: a file's name and length are durable before anything is written to it. `load` takes every file for full, for it does not
know the format, and none for flushed, for the page cache outlives a process: the owner finds the end, calls `truncate_to`, then
`flush`. Behind the end, what a crash or an earlier end left behind is cleared, for a record there might be taken for a new one after
the next crash (the original leaves it).

Thread rule: the loop thread owns the queue. `prepare_next` may run in an executor; a lock guards the making of files, nothing else.

Against the first design: the files have no positions of their own (above); `write` finds or makes the file itself; `begin_flush` and
`end_flush` hand the flusher its descriptors, pinned; several folders take turns by file number, sorted, as in the original.
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
    """What the file that begins at that offset is called."""
    return f"{start:0{_NAME_LENGTH}}"


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Descriptors to sync, and the end offset that is durable once all of them are."""

    descriptors: tuple[int, ...]
    end_offset: int
    files: tuple[MappedFile, ...]  # pinned until `FileQueue.end_flush`
    cuts: int  # how often the queue had been cut by then: after another one the job says nothing of what was written anew


class FileQueue:
    """The files of one log or queue; see above for who moves what."""

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
            raise StoreError(f"no folder to write to: all of {[str(folder) for folder in folders]} are read-only; name another")

    @property
    def first_offset(self) -> int:
        """The first byte that there is."""
        return self.files[0].start if self.files else self.end_offset

    def load(self) -> None:
        """Find the files that are there; StoreError when one has another length than it should, or when one is missing between them."""
        found = sorted(
            (name, folder)
            for folder in self._folders + self._read_only_folders
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
                    f"{after.path} follows {before.path}, which ends at {before.end}: a file is missing between them, or is there twice; "
                    "bring the missing one back, or move away what is on one side of the gap"
                )
        for folder in {file.path.parent for file in files}:  # a process may have died between the making of a file and this
            self._layer.sync_dir(folder)
        # Not before all is well: files without an end are taken for prepared ones, which are removed when the log is closed.
        self.files, self.end_offset = files, files[-1].end if files else 0
        self.read_ahead(self._reads_ahead)
        self.flushed_offset = self.first_offset

    def end_at_data(self) -> None:
        """Let the run end where nothing but zeros follows: a mapping of holes is not read, for a full disk in memory ends who does."""
        last = next((file for file in reversed(self.files) if file.next_data(0) < file.size), None)
        self.end_offset = self.first_offset if last is None else last.start + last.data_end()

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds that offset, written or not."""
        if not self.files:
            return None
        number = (offset - self.files[0].start) // self.file_size
        return self.files[number] if 0 <= number < len(self.files) else None

    def last(self) -> MappedFile | None:
        """The file that holds the last byte before the end."""
        return self.find(self.end_offset - 1)

    def view(self, offset: int, size: int) -> memoryview | None:
        """`size` bytes from `offset`, all of one file and before the end; None when they are not there, or no more."""
        file = self.find(offset)
        if file is None or size < 0 or offset + size > min(file.end, self.end_offset):
            return None
        return file.view()[offset - file.start : offset - file.start + size]

    def read_ahead(self, wanted: bool) -> None:
        """Have the system read more than it is asked for, or not; for all files, those to come too."""
        self._reads_ahead = wanted
        for file in self.files:
            file.read_ahead(wanted)

    def write(self, offset: int, data: Buffer) -> None:
        """Write `data` into the file that holds `offset`, which is made when it is the next; `end_offset` stays. OSError when it fails."""
        file = self.find(offset) or self.roll(offset - offset % self.file_size)
        file.pwrite(offset - file.start, data)

    def roll(self, start: int) -> MappedFile:
        """Add the file that begins at `start`: the prepared one when there is one, else a new one. OSError when it cannot be made."""
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
        """Make the file that will be needed next, unless that was done; for an executor. OSError when it cannot be made."""
        with self._making:
            if self._prepared is None:
                self._prepared = self._make(self.files[-1].end if self.files else self.end_offset - self.end_offset % self.file_size)

    def drop_prepared(self) -> None:
        """Remove the files that hold nothing yet, as the original does when it stops."""
        with self._making:
            if self._prepared is not None:
                self._prepared.delete()
                self._prepared = None
            while self.files and self.files[-1].start >= self.end_offset:
                self.files.pop().delete()

    def truncate_to(self, offset: int) -> None:
        """Make `offset` the end, durably: files behind it go, and what stands behind it in its own file is cleared."""
        if self.files and offset > self.files[-1].end:
            raise StoreError(f"cannot cut {self.files[-1].path.parent} at {offset}: its files end at {self.files[-1].end}")
        with self._making:
            if self._prepared is not None:
                self._prepared.delete()
                self._prepared = None
            while self.files and self.files[-1].start > offset:  # the last first: a crash in between leaves no gap
                self.files.pop().delete()
        if (file := self.find(offset)) is not None:
            file.clear(offset - file.start, file.end - offset)
            file.sync()
        self.end_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)
        self._cuts += 1

    def clear(self, begin: int, end: int) -> None:
        """Make the bytes [begin, end), as far as there are files, read as zeros."""
        for file in self._between(begin, end):
            file.clear(max(begin - file.start, 0), min(end, file.end) - max(begin, file.start))

    def rewrite(self, begin: int, end: int) -> None:
        """Write the bytes [begin, end) over themselves, so that the next sync brings them to disk whatever the system believes of them."""
        for file in self._between(begin, end):
            for at in range(max(begin - file.start, 0), min(end, file.end) - file.start, _REWRITE_CHUNK):
                file.pwrite(at, bytes(file.view()[at : min(at + _REWRITE_CHUNK, end - file.start, file.size)]))

    def sync(self, begin: int, end: int) -> None:
        """Make the bytes [begin, end), as far as there are files, durable."""
        for file in self._between(begin, end):
            file.sync()

    def oldest(self) -> MappedFile | None:
        """The first file, if it may be detached: everything in it is flushed, and the end lies behind it."""
        if not self.files or self.files[0].end > min(self.flushed_offset, self.end_offset - 1):
            return None
        return self.files[0]

    def detach_oldest(self) -> MappedFile | None:
        """Take the first file out, if it may be; the caller deletes it, in an executor if it likes."""
        return None if self.oldest() is None else self.files.pop(0)

    def delete_oldest(self) -> bool:
        """Delete the first file, unless it is still needed; whether it was deleted."""
        file = self.detach_oldest()
        if file is not None:
            file.delete()
        return file is not None

    def begin_flush(self) -> FlushJob | None:
        """What to sync so that everything up to the end is durable; None when it is. Every job goes back through `end_flush`."""
        if self.flushed_offset == self.end_offset:
            return None
        files = self._between(self.flushed_offset, self.end_offset)
        return FlushJob(tuple(file.acquire() for file in files), self.end_offset, files, self._cuts)

    def end_flush(self, job: FlushJob, error: Exception | None = None) -> None:
        """Let go of the job's files; without an error, what it covered is flushed."""
        for file in job.files:
            file.release()
        if error is None and job.cuts == self._cuts:
            self.flushed_offset = max(self.flushed_offset, job.end_offset)

    def flush(self) -> None:
        """Make everything up to the end durable, here and now; OSError when that fails."""
        self.sync(self.flushed_offset, self.end_offset)
        self.flushed_offset = self.end_offset

    def close(self) -> None:
        """Give back every descriptor and mapping; they open again when they are needed."""
        for file in self.files:
            file.close()

    def _between(self, begin: int, end: int) -> tuple[MappedFile, ...]:
        """The files that hold any byte of [begin, end)."""
        return tuple(file for file in self.files if file.start < end and begin < file.end) if begin < end else ()

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
                f"{path} has {size} bytes, every file here should have {self.file_size}: configure the file size that the store was "
                "written with, or move this file away"
            )
        if start % self.file_size:
            raise StoreError(f"{path} is not named after a multiple of {self.file_size}: configure the file size of this store")
        return MappedFile(self._layer, path, start, size)

    def _make(self, start: int) -> MappedFile:
        folder = self._folder_for(start)
        self._layer.make_folder(folder)
        return mapped_file.create(self._layer, folder / file_name(start), start, self.file_size)

    def _folder_for(self, start: int) -> Path:
        """Folders take turns; one on a full disk is passed over, unless all are."""
        if len(self._folders) == 1:
            return self._folders[0]
        for folder in self._folders:
            self._layer.make_folder(folder)
        with_room = [folder for folder in self._folders if self._layer.disk_ratio(folder) <= self.full_ratio] or self._folders
        return with_room[start // self.file_size % len(with_room)]
