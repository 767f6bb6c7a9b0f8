"""The index: finds records by their keys, over a sequence of files; the last one takes new entries.

File names are the local time of their creation, 17 digits, strictly increasing: if the clock says
otherwise, the name is one more than the last. A record's keys may be split over two files; a record
below the log offset where the index ends is indexed already, and is skipped. The tags of a record
count as a key too, which 4.9 does not do.

Crash rule: the manifest states the entries of each file, and their checksums (`states`). `load`
keeps the files that it proves, from the first on; the first that differs is removed with all after
it, and so are files not in the manifest: the log is dispatched again from `end_offset` then. Slots
and header of the last file follow from its entries. If no manifest covers the index (an Apache
broker's, or an older one), files are kept whose slots and header follow from their entries and that
the log confirms (`index_proof`). `truncate` removes the records of a log that lost its end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orbitmq.common.clock import Clock
from orbitmq.common.errors import WriteFailedError
from orbitmq.common.slices import Slices, finish
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.index_file import IndexFile, IndexFileState, IndexShape
from orbitmq.store.index_writer import ALL_PUT, TAGS_PREFIX, IndexWriter
from orbitmq.store.types import LogOffset, StoreTimeMs

log = logging.getLogger(__name__)
_NAME_SIZE = 17
_LOG_BEGIN = LogOffset(0)
Flaw = Callable[[IndexFile, IndexFile | None], str | None]  # why a file does not continue the last


class IndexHits(NamedTuple):
    """The result of a query, the newest first, and how far the index reaches."""

    offsets: list[LogOffset]
    last_time_ms: StoreTimeMs
    last_offset: LogOffset


@dataclass(frozen=True, slots=True)
class IndexFlushJob:
    """Files to sync; `sealed` is the last full one, which the checkpoint may claim then."""

    descriptors: tuple[int, ...]
    files: tuple[IndexFile, ...]
    sealed: IndexFile | None


class Index:
    """All index files of a store."""

    def __init__(
        self,
        layer: FileLayer,
        folder: Path,
        clock: Clock,
        shape: IndexShape = IndexShape(),  # noqa: B008
    ) -> None:
        self._layer = layer
        self._folder = folder
        self._clock = clock
        self._shape = shape
        self._files: list[IndexFile] = []  # the oldest first
        self._writer: IndexWriter | None = None  # of the last file, unless it is full
        self._unsynced: list[IndexFile] = []  # full, and not known to be durable
        self._held: list[IndexFile] = []  # being synced: must stay open
        self._states: tuple[IndexFileState, ...] | None = None  # of a stopped index

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The files, the oldest first."""
        return tuple(self._files)

    @property
    def writer(self) -> IndexWriter | None:
        """Takes new entries; None until there is a file with room."""
        return self._writer

    @property
    def end_offset(self) -> LogOffset:
        """The log offset of the last indexed record: dispatching again from here completes the
        index.
        """
        return self._files[-1].header.end_offset if self._files else LogOffset(0)

    @property
    def shape(self) -> IndexShape:
        return self._shape

    @property
    def states(self) -> tuple[IndexFileState, ...]:
        """What proves the files at the next start."""
        return tuple(file.state for file in self._files) if self._states is None else self._states

    def load(
        self,
        states: Sequence[IndexFileState] | None,
        log_min: LogOffset = _LOG_BEGIN,
        flaw_of: Flaw = lambda _file, _before: None,
    ) -> str | None:
        """Open the files that `states` prove, and remove all others; return why entries are missing
        from `end_offset` on, if they are.

        Without `states` nothing is proven: files are kept that are consistent, and in which
        `flaw_of` finds no flaw. Lost files do not count if all their records are deleted, below
        `log_min`.
        """
        self._states = None
        names = [name for name in self._layer.list(self._folder) if self._is_ours(name)]
        flaw = (
            self._keep_consistent(names, flaw_of)
            if states is None
            else self._keep_proven(names, states, log_min)
        )
        kept = {file.path.name for file in self._files}
        self._unlink([name for name in names if name not in kept])
        self._write_to_last()
        return flaw

    def truncate(self, log_end: LogOffset) -> None:
        """Drop the keys of records at or after `log_end`."""
        while self._files and (last := self._files[-1]).header.end_offset >= log_end:
            before = last.header.entry_count
            if last in self._unsynced:
                self._unsynced.remove(last)
            last.commit()
            last.rebuild(last.header, log_end)
            # Or a crash could bring back truncated entries that the manifest has.
            self._layer.fdatasync(last.descriptor)
            log.warning(
                "index_file_cut file=%s entries=%d before=%d",
                last.path,
                last.header.entry_count - 1,
                before - 1,
            )
            if last.header.entry_count > 1:
                break
            self._detach(last)
            self._unlink([last.path.name])
        self._write_to_last()

    def put(self, record: RecordCursor) -> None:
        """Index the record by its unique key, its keys and its tags, written by the next `commit`;
        does nothing if it is indexed already.

        After WriteFailedError the same record may be put again.
        """
        done, writer = 0, self._writer
        end_offset = self.end_offset if writer is None else writer.end_offset
        if record.log_offset <= end_offset:
            if record.log_offset < end_offset:
                return
            done = self._entries_at(end_offset)
        while writer is None or (done := writer.put(record, done)) != ALL_PUT:
            if writer is not None and not self._files[-1].is_full:
                self.commit()
            else:
                self._roll()
            writer = self._writer

    def commit(self) -> None:
        """Write the put entries; WriteFailedError keeps them for the next attempt."""
        if self._files:
            self._files[-1].commit()

    def query(self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int) -> IndexHits:
        """Do what `query_in_slices` does, in one go."""
        return finish(self.query_in_slices(topic, key, limit, begin_ms, end_ms))

    def query_in_slices(
        self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int
    ) -> Slices[IndexHits]:
        """Return up to `limit` records stored between those times that may have the key: only
        hashes are compared. Files added or removed meanwhile may be missed.
        """
        found: dict[LogOffset, None] = {}
        for file in reversed(self.files):
            if not file.is_closed and file.matches_time(begin_ms, end_ms):
                yield from file.query(topic, key, limit, begin_ms, end_ms, found)
            if file.header.begin_time_ms < begin_ms or len(found) >= limit:
                break
        last = self._files[-1].header if self._files else None
        return IndexHits(
            list(found),
            StoreTimeMs(0) if last is None else last.end_time_ms,
            LogOffset(0) if last is None else last.end_offset,
        )

    def delete_before(self, log_min: LogOffset) -> int:
        """Remove files, never the last, whose records are all deleted; return how many."""
        count = 0
        while (path := self.detach_before(log_min)) is not None:
            self._layer.unlink(path)
            count += 1
        return count

    def detach_before(self, log_min: LogOffset) -> Path | None:
        """Detach and close one file, never the last, whose records are all deleted, for the caller
        to remove; None if there is none.
        """
        if len(self._files) < 2 or self._files[0].header.end_offset >= log_min:
            return None
        file = self._files[0]
        self._detach(file)
        return file.path

    def begin_flush(self, *, is_thorough: bool = False) -> IndexFlushJob | None:
        """Return a job for the full files, and the last too if the flush is thorough; None if there
        are none.

        Every job goes back through `end_flush`.
        """
        files, self._unsynced = self._unsynced, []
        sealed = files[-1] if files else None
        if is_thorough and self._writer is not None and not self._files[-1].is_synced:
            files.append(self._files[-1])
        for file in files:
            file.is_synced = True
        self._held += files
        return (
            IndexFlushJob(tuple(file.descriptor for file in files), tuple(files), sealed)
            if files
            else None
        )

    def end_flush(self, job: IndexFlushJob) -> None:
        """Release the job's files; one that was deleted meanwhile is closed now."""
        for file in job.files:
            self._held.remove(file)
            if file not in self._files:
                file.close()

    def stop(self) -> None:
        """Write and sync everything and close the files; WriteFailedError or OSError if the disk
        fails.
        """
        if self._writer is not None:
            self._files[-1].seal()
            self._unsynced.append(self._files[-1])
        for file in self._unsynced:
            self._layer.fdatasync(file.descriptor)
        self._states = self.states
        self.close()

    def close(self) -> None:
        """Close the files as they are, as a crash would."""
        for file in self._files:
            file.close()
        self._files.clear()
        self._unsynced.clear()
        self._writer = None

    def _entries_at(self, end_offset: int) -> int:
        """Return how many keys of the last record are in: not all, if they needed two files and the
        second could not be created.
        """
        count = 0
        for file in reversed(self._files):
            own = file.entries_at(end_offset)
            count += own
            if own < file.header.entry_count - 1:
                break
        return count

    def _roll(self) -> None:
        """Close the last file for entries, if there is one, and add the next."""
        last = self._files[-1] if self._files else None
        name = int(_local_digits(self._clock.now_ms()))
        if last is None:
            self._layer.make_folder(self._folder)
        else:
            last.flush()
            name = max(name, int(last.path.name) + 1)
        try:
            file = IndexFile.create(
                self._layer,
                self._folder / f"{name:0{_NAME_SIZE}}",
                self._shape,
                None if last is None else last.header,
            )
        except OSError as error:
            raise WriteFailedError(
                f"no index file could be created in {self._folder}: {error}; the next record"
                " retries it"
            ) from error
        if last is not None and last.writer is not None:
            last.seal()
            self._unsynced.append(last)
        self._files.append(file)
        self._writer = file.writer
        log.info("index_file_added file=%s", file.path)

    def _keep_proven(
        self, names: Sequence[str], states: Sequence[IndexFileState], log_min: LogOffset
    ) -> str | None:
        """Keep the files that have what was written to them; the last one is rebuilt from its
        entries if only they are right.
        """
        for state in states:
            file = self._open(state.name) if state.name in names else None
            if file is not None and self._is_proven(file, state, is_last=state is states[-1]):
                self._files.append(file)
                continue
            if file is not None:
                file.close()
            if state.header.end_offset >= log_min:
                return f"{self._folder / state.name} is missing or corrupt"
        return None

    def _is_proven(self, file: IndexFile, state: IndexFileState, *, is_last: bool) -> bool:
        if not file.has_entries(state):
            return False
        has_slots = file.has_slots(state)
        if is_last and has_slots:
            file.clear_after_end()
        elif is_last:
            file.rebuild(state.header)
        return has_slots or is_last

    def _keep_consistent(self, names: Sequence[str], flaw_of: Flaw) -> str | None:
        """Keep the consistent files in which no flaw is found, without proof."""
        for name in names:
            if self._layer.size(self._folder / name) == 0:  # a crash came before it was sized
                continue
            file, before = self._open(name), self._files[-1] if self._files else None
            if file is None:  # truncated, or created with other settings
                return (
                    f"{self._folder / name} has another size than maxHashSlotNum and maxIndexNum"
                    " require"
                )
            if before is not None and not before.is_full:
                flaw: str | None = "follows a file that is not full"
            elif not file.is_consistent():
                flaw = "has other slots, or another header, than its entries imply"
            else:
                flaw = flaw_of(file, before)
            if flaw is not None:
                file.close()
                return f"{file.path} {flaw}"
            self._files.append(file)
        return None

    def _open(self, name: str) -> IndexFile | None:
        """Open a file; None if its size differs from the configured one."""
        path = self._folder / name
        return (
            IndexFile.open(self._layer, path, self._shape)
            if self._layer.size(path) == self._shape.file_size
            else None
        )

    def _unlink(self, names: Sequence[str]) -> None:
        """Remove files, durably, the last first."""
        for name in reversed(names):
            self._layer.unlink(self._folder / name)
            log.warning("index_file_removed file=%s", self._folder / name)
        if names:
            self._layer.sync_dir(self._folder)

    def _is_ours(self, name: str) -> bool:
        ours = len(name) == _NAME_SIZE and name.isascii() and name.isdigit()
        if not ours:
            log.warning("foreign_file_ignored file=%s", self._folder / name)
        return ours

    def _detach(self, file: IndexFile) -> None:
        """Remove a file from the list and close it, or let the end of its flush close it."""
        self._files.remove(file)
        if file not in self._held:
            file.close()
        if file in self._unsynced:
            self._unsynced.remove(file)

    def _write_to_last(self) -> None:
        """Direct new entries to the last file, if it has room."""
        last = self._files[-1] if self._files else None
        if last is not None and last.writer is None and not last.is_full:
            last.resume()
        self._writer = None if last is None else last.writer


def tags_key(tags: str) -> str:
    """Return the key that finds records with these tags."""
    return TAGS_PREFIX + tags


def _local_digits(now_ms: int) -> str:
    """Return a file name for a time: local, from year to millisecond, 17 digits."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
