"""The index: finds records by their keys, over files that follow each other; the last one takes new entries.

File names are the local time at which they were made, 17 digits, later ones greater: if the clock says otherwise, the name is one more
than the last. A record's keys may be split over two files; a record below the log offset where the index ends was indexed before, and is
passed over. The tags of a record count as a key too, which 4.9 does not do.

Crash rule: a full file is sealed, synced by the flusher and then known as safe, by the time of its last entry in the checkpoint. After
an abnormal exit, files that are not known as safe are made anew from their own entries as far as those are whole (the original deletes
them, and what they knew is lost unless it is told to dispatch all of it again). What is missing then, from `end_offset` on, has to be
dispatched again. `truncate` does the same for a log that lost its end. Damage in a file reads as fewer hits, never as an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orbitmq.common.clock import Clock
from orbitmq.common.errors import WriteFailed
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.index_file import LOG_END_UNKNOWN, IndexFile, IndexShape
from orbitmq.store.index_writer import ALL_PUT, TAGS_PREFIX, IndexWriter
from orbitmq.store.types import LogOffset, StoreTimeMs

log = logging.getLogger(__name__)
_NAME_SIZE = 17
_CLOCK_JUMP_MS_MAX = 24 * 3_600_000


class IndexHits(NamedTuple):
    """What a query found, the newest first, and up to which record the index knows."""

    offsets: list[LogOffset]
    last_time_ms: StoreTimeMs
    last_offset: LogOffset


@dataclass(frozen=True, slots=True)
class SealedFlushJob:
    """Full files to sync: after that, everything up to `safe_time_ms` is safe, which the checkpoint should say."""

    descriptors: tuple[int, ...]
    files: tuple[IndexFile, ...]
    safe_time_ms: StoreTimeMs


class Index:
    """All index files of a store."""

    def __init__(self, layer: FileLayer, folder: Path, clock: Clock, shape: IndexShape = IndexShape()) -> None:  # noqa: B008 - immutable
        self._layer = layer
        self._folder = folder
        self._clock = clock
        self._shape = shape
        self._files: list[IndexFile] = []  # the oldest first
        self._writer: IndexWriter | None = None  # of the last file, unless there is none or it is full
        self._unsynced: list[IndexFile] = []  # full, and not known as safe
        self._held: list[IndexFile] = []  # being synced: not to be closed
        self.lost_entries = False  # whether `load` or `truncate` found fewer entries than there should be

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The files, the oldest first."""
        return tuple(self._files)

    @property
    def writer(self) -> IndexWriter | None:
        """What takes new entries, None until there is a file with room."""
        return self._writer

    @property
    def end_offset(self) -> LogOffset:
        """The log offset of the last record that was indexed: dispatching again from here completes the index."""
        return self._files[-1].header.end_offset if self._files else LogOffset(0)

    def load(self, safe_time_ms: StoreTimeMs | None = None) -> None:
        """Open the files; after an abnormal exit, `safe_time_ms` says up to which time they need no check. StoreError for another size.

        Dispatch again from `end_offset` if there are `lost_entries`: a last file that is damaged has some, also after a clean stop.
        """
        names = [name for name in self._layer.list(self._folder) if self._is_ours(name)]
        for number, name in enumerate(names):
            if self._layer.size(self._folder / name) == 0:  # a crash came before it got its size
                self._unlink([name])
                continue
            file = IndexFile.open(self._layer, self._folder / name, self._shape)
            self._files.append(file)
            if safe_time_ms is not None and not self._is_safe(file, safe_time_ms):
                self._rebuild(file, behind=names[number + 1 :])
                if not file.is_full:
                    break
                file.seal()
                self._unsynced.append(file)
        while self._files and not self._files[-1].is_sound(self._latest_ms) and not self._rebuild(self._files[-1]):
            pass
        self._write_to_last()

    def truncate(self, log_end: LogOffset) -> None:
        """Forget the keys of records at `log_end` and behind."""
        while self._files and self._files[-1].header.end_offset >= log_end and not self._rebuild(self._files[-1], log_end):
            pass
        self._write_to_last()

    def put(self, record: RecordCursor) -> None:
        """Index the record by its unique key, its keys and its tags, written by the next `commit`; nothing for one that was indexed before.

        After WriteFailed the same record may be put again.
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
        """Write what was put; WriteFailed keeps it, to be tried again."""
        if self._files:
            self._files[-1].commit()

    def query(self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int) -> IndexHits:
        """Up to `limit` records stored between those times that may have the key: only hashes were compared."""
        found: list[LogOffset] = []
        for file in reversed(self._files):
            if file.matches_time(begin_ms, end_ms):
                file.query(topic, key, limit, begin_ms, end_ms, found)
            if file.header.begin_time_ms < begin_ms or len(found) >= limit:
                break
        last = self._files[-1].header if self._files else None
        return IndexHits(found, StoreTimeMs(0) if last is None else last.end_time_ms, LogOffset(0) if last is None else last.end_offset)

    def delete_before(self, log_min: LogOffset) -> int:
        """Remove files, never the last, whose records are all gone; how many."""
        count = 0
        while (path := self.detach_before(log_min)) is not None:
            self._layer.unlink(path)
            count += 1
        return count

    def detach_before(self, log_min: LogOffset) -> Path | None:
        """Take out and close one file, never the last, whose records are all gone; the caller removes it. None when there is none."""
        if len(self._files) < 2 or self._files[0].header.end_offset >= log_min:
            return None
        file = self._files[0]
        self._let_go(file)
        return file.path

    def begin_flush(self) -> SealedFlushJob | None:
        """The full files that have to be synced; None when there are none. Every job goes back through `end_flush`."""
        if not self._unsynced:
            return None
        files, self._unsynced = tuple(self._unsynced), []
        self._held += files
        return SealedFlushJob(tuple(file.descriptor for file in files), files, files[-1].header.end_time_ms)

    def end_flush(self, job: SealedFlushJob) -> None:
        """Let go of the job's files; one that was deleted meanwhile is closed now."""
        for file in job.files:
            self._held.remove(file)
            if file not in self._files:
                file.close()

    def stop(self) -> None:
        """Write everything, sync it and close the files; WriteFailed or OSError when the disk does not take it."""
        if self._writer is not None:
            self._files[-1].seal()
            self._unsynced.append(self._files[-1])
        for file in self._unsynced:
            self._layer.fdatasync(file.descriptor)
        self.close()

    def close(self) -> None:
        """Close the files as they are, as a crash would."""
        for file in self._files:
            file.close()
        self._files.clear()
        self._unsynced.clear()
        self._writer = None

    def _entries_at(self, end_offset: int) -> int:
        """How many keys of the last record are in: not all, when they were to go into two files and the second could not be made."""
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
            file = IndexFile.create(self._layer, self._folder / f"{name:0{_NAME_SIZE}}", self._shape, None if last is None else last.header)
        except OSError as error:
            raise WriteFailed(f"no index file could be made in {self._folder}: {error}; it is tried again with the next record") from error
        if last is not None and last.writer is not None:
            last.seal()
            self._unsynced.append(last)
        self._files.append(file)
        self._writer = file.writer
        log.info("index_file_added file=%s", file.path)

    @property
    def _latest_ms(self) -> int:
        """Records have no later times than this, unless they are damaged."""
        return self._clock.now_ms() + _CLOCK_JUMP_MS_MAX

    def _rebuild(self, file: IndexFile, log_end: LogOffset = LOG_END_UNKNOWN, behind: Sequence[str] = ()) -> bool:
        """Make the file anew from its entries, durably; it is deleted when none is left, then False.

        If it lost entries, the files `behind` go before it does: one that a crash brought back behind a gap would hide the gap.
        """
        before = file.header.entry_count
        if file in self._unsynced:
            self._unsynced.remove(file)
        file.rebuild(self._latest_ms, log_end)
        self._layer.fdatasync(file.descriptor)
        self.lost_entries = True
        log.warning("index_file_rebuilt file=%s entries=%d before=%d", file.path, file.header.entry_count - 1, before - 1)
        if not file.is_full:
            self._unlink(behind)
        if file.header.entry_count == 1:
            self._let_go(file)
            self._unlink([file.path.name])
            return False
        return True

    def _unlink(self, names: Sequence[str]) -> None:
        """Remove files, durably, the last first."""
        for name in reversed(names):
            self._layer.unlink(self._folder / name)
        if names:
            self._layer.sync_dir(self._folder)
            self.lost_entries = True

    def _is_safe(self, file: IndexFile, safe_time_ms: int) -> bool:
        """Whether the last file was synced; of several that end in the same millisecond that is sure of the first alone."""
        end_ms = file.header.end_time_ms
        before_ms = self._files[-2].header.end_time_ms if len(self._files) > 1 else -1
        return file.is_full and end_ms <= safe_time_ms and not before_ms == end_ms == safe_time_ms

    def _is_ours(self, name: str) -> bool:
        ours = len(name) == _NAME_SIZE and name.isascii() and name.isdigit()
        if not ours:
            log.warning("foreign_file_ignored file=%s", self._folder / name)
        return ours

    def _let_go(self, file: IndexFile) -> None:
        """Take a file out and close it, or have it closed when its flush is done."""
        self._files.remove(file)
        if file not in self._held:
            file.close()
        if file in self._unsynced:
            self._unsynced.remove(file)

    def _write_to_last(self) -> None:
        """Let new entries go to the last file, if it has room."""
        last = self._files[-1] if self._files else None
        if last is not None and last.writer is None and not last.is_full:
            last.resume()
        self._writer = None if last is None else last.writer


def tags_key(tags: str) -> str:
    """The key by which records with these tags are found."""
    return TAGS_PREFIX + tags


def _local_digits(now_ms: int) -> str:
    """A moment in local time, as the name of a file: year to millisecond, 17 digits."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
