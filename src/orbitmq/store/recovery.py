"""Recovery: where the log ends, and queues and index brought up to it; after a clean stop and after a crash.

Two passes over the last part of the log. The first finds the end: it goes from a file that the checkpoint, or the position of the queues,
says is safe, as far as records are good. The second dispatches that part again, which queues and index take as often as it comes.

Rule for a record that is not good: what follows is lost with it, as by the original, only if nothing follows. If a good record stands
behind it in the same file (it says its own offset, its body has its checksum, and it is not older than the last one before), or the next
file begins with one, the log is damaged, not torn: `DamagedLog` names the place, and `truncate_damage` is the answer that gives up
what is behind. The original leaves bytes of records that it gave up behind the end of the log: after a clean stop, records of which the
checkpoint knows nothing are such.

Crash rule: every step can be repeated; the log is cut before anything is put into queues or index.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orbitmq.common.errors import StoreError
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.index import Index
from orbitmq.store.mapped_file import MappedFile
from orbitmq.store.queues import Queues
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs

log = logging.getLogger(__name__)

Progress = Callable[[LogOffset, LogOffset], None]  # how far, of how far
_MAGIC_FIRST_BYTES = b"\xda\xa3\x20"
_FILES_AFTER_CLEAN_STOP = 3


class DamagedLog(StoreError):
    """The log has a record that is not good, and good ones behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What recovery found."""

    clean: bool
    scanned_from: LogOffset
    end: LogOffset
    records: int
    lost_reason: str | None  # why the log ends where it does, None when it ends where nothing was written


class Recovery:
    """One start."""

    def __init__(
        self, log: CommitLog, queues: Queues, index: Index | None, checkpoint: Checkpoint, dispatcher: Dispatcher, *, truncate_damage: bool
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._dispatcher = dispatcher
        self._truncate_damage = truncate_damage
        self._cursor = RecordCursor()

    def run(self, *, clean: bool, progress: Progress | None = None) -> Recovered:
        """Find the end of the log, cut everything to it, and dispatch what queues and index may lack."""
        files = self._log.files.files
        if not files:
            self._log.resume(LogOffset(0), StoreTimeMs(0))
            self._queues.bound(LogOffset(0), LogOffset(0))
            self._dispatcher.offset = LogOffset(0)
            return Recovered(clean=clean, scanned_from=LogOffset(0), end=LogOffset(0), records=0, lost_reason=None)
        begin = LogOffset(self._first_file(files, clean=clean).start)
        end, store_time, records, problem = self._find_end(begin, clean, progress)
        self._log.resume(end, store_time)
        self._queues.bound(self._log.min_offset, end, self._confirms)
        if self._index is not None:
            self._index.truncate(end)
        self._dispatcher.offset = begin
        problem_again = self._dispatcher.advance()
        assert problem_again is None, f"the log was cut at {end}, and yet: {problem_again}"
        self._restore_offsets()
        log.info("recovered clean=%s from=%d end=%d records=%d lost=%s", clean, begin, end, records, problem)
        return Recovered(clean=clean, scanned_from=begin, end=end, records=records, lost_reason=problem)

    def _first_file(self, files: Sequence[MappedFile], *, clean: bool) -> MappedFile:
        """The last file before which everything is known to be in the queues; the first file when nothing is known."""
        if clean:
            safe_offset = self._checkpoint.queues_offset
            candidates = [file for file in files if file.start <= safe_offset] if safe_offset else list(files[:-_FILES_AFTER_CLEAN_STOP])
            return self._latest(candidates, lambda _record: True) or files[0]
        safe_time = self._checkpoint.min_time_ms
        return self._latest(list(files), lambda record: 0 < record.store_time_ms <= safe_time) or files[0]

    def _latest(self, files: list[MappedFile], is_safe: Callable[[RecordCursor], bool]) -> MappedFile | None:
        """The last of the files whose first record is good and safe."""
        for file in reversed(files):
            record = self._cursor
            good = record.read(file.view(), 0, file.size) > 0 and record.log_offset == file.start
            if good and is_safe(record):
                return file
        return None

    def _find_end(self, begin: LogOffset, clean: bool, progress: Progress | None) -> tuple[LogOffset, StoreTimeMs, int, str | None]:
        """Where the good records end, the store time of the last, how many there are, and what ended them."""
        scan = self._log.scan(begin)
        records, store_time, told = 0, StoreTimeMs(0), begin
        whole = self._log.end_offset
        for record in scan:
            records += 1
            store_time = StoreTimeMs(record.store_time_ms)
            if progress is not None and scan.offset - told > (whole - begin) // 100:
                told = scan.offset
                progress(told, whole)
        problem = scan.problem
        if problem is not None:
            behind = self._good_record_behind(scan.offset, store_time)
            if (behind is None and self._is_clear(scan.offset)) or (clean and self._is_known_end(store_time)):
                problem = None
            elif behind is not None and not self._truncate_damage:
                raise DamagedLog(
                    f"the commit log is damaged: {problem}, and good records stand behind it, the next at {behind}. "
                    f"Restore the file from a replica or a backup, or start with recoverBadRecord=truncate, which gives up everything "
                    f"from {scan.offset} on"
                )
        return scan.offset, store_time, records, problem

    def _is_known_end(self, store_time: StoreTimeMs) -> bool:
        """Whether the checkpoint of a clean stop knows of no record that was stored after that time."""
        known_ms: int = max(self._checkpoint.log_time_ms, self._checkpoint.queues_time_ms)
        return known_ms <= store_time

    def _good_record_behind(self, offset: LogOffset, store_time: StoreTimeMs) -> LogOffset | None:
        """Where the next good record of that time or later stands behind a bad one: in the same file, or at the beginning of the next."""
        file = self._log.files.find(offset)
        assert file is not None, f"no file holds {offset}"
        content = file.view()
        at = offset - file.start + 1
        whole = bytes(content[at:])
        found = whole.find(_MAGIC_FIRST_BYTES)
        while found >= 0:
            if found >= 4 and self._is_good(file, at + found - 4, store_time):
                return LogOffset(file.start + at + found - 4)
            found = whole.find(_MAGIC_FIRST_BYTES, found + 1)
        following = self._log.files.find(file.end)
        return LogOffset(following.start) if following is not None and self._is_good(following, 0, store_time) else None

    def _is_good(self, file: MappedFile, at: int, store_time: StoreTimeMs) -> bool:
        """Whether a whole record stands there, where it says, that was stored then or later."""
        record = self._cursor
        return record.read(file.view(), at, file.size) > 0 and record.log_offset == file.start + at and record.store_time_ms >= store_time

    def _is_clear(self, offset: LogOffset) -> bool:
        """Whether nothing was ever written at the offset."""
        file = self._log.files.find(offset)
        assert file is not None, f"no file holds {offset}"
        at = offset - file.start
        return not any(file.view()[at : at + 8])

    def _confirms(self, key: QueueKey, log_offset: LogOffset, size: int, queue_offset: QueueOffset) -> bool:
        """Whether the log has that record for that place of the queue."""
        content = self._log.read(log_offset, size)
        record = self._cursor
        return (
            content is not None
            and record.read(content, 0, size, False) == size
            and (record.queue_id, record.queue_offset) == (key.queue_id, queue_offset)
            and record.topic() == key.topic.encode()
        )

    def _restore_offsets(self) -> None:
        """Every queue goes on behind its last entry."""
        for folder in (self._queues.plain, self._queues.batch):
            for key, queue in folder.open_all():
                if queue.max_offset > self._log.offsets.peek(key.topic.encode(), key.queue_id):
                    self._log.offsets.restore(key, queue.max_offset)
