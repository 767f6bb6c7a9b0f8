"""The commit log: every message of every topic, one record after the other, in order of arrival.

```
<folder>/<start, 20 digits>    record | record | … | 8 bytes of blank | leftovers
```
docs/format/record.md describes the record. A record never spans two files: one that leaves no room
for a blank (size + 8 > remaining bytes) closes the file with the blank and begins the next file.
`append` assigns offsets and fills a buffer (`log_batch`); `commit` writes it, one pwrite per file.

Invariants: only committed records can be read; a commit that fails leaves the log, its queue
offsets and its clock as they were before the batch, and what it may have written is cleared before
anything else is written (or a crash could revive it); store times never decrease from record to
record, even if the wall clock jumps back (Apache stores the clock as it is); after a failed flush
the log is read-only until the process ends, for the system forgets which pages were not written.

Crash rule: records after `flushed_offset` may be lost or torn; a scan finds where the valid ones
end. Thread rule: the loop thread.

`append` never commits by itself: the caller checks `is_batch_full` and commits, so that one place
learns which messages a failed commit dropped.

A slave's log grows by `receive` instead: bytes of its master's log, cut anywhere. They are written
as they come, and the end moves only over complete, valid records, so that every reader sees what it
sees on a master. Bytes of an incomplete record count as received until `drop_received`.
"""

from __future__ import annotations

import logging

from orbitmq.common.errors import (
    CorruptRecordError,
    StoreError,
    StoreReadOnlyError,
    WriteFailedError,
    reason_of,
)
from orbitmq.common.mem import Buffer, get32, signed32
from orbitmq.message.layout import BLANK_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Flaw
from orbitmq.message.record import flaw_text
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.file_queue import FileQueue, FlushJob
from orbitmq.store.log_batch import LogBatch
from orbitmq.store.log_scan import LogScan
from orbitmq.store.mapped_file import MappedFile
from orbitmq.store.quarantine import Quarantine
from orbitmq.store.queue_offsets import QueueOffsets
from orbitmq.store.record_scanner import RecordScanner
from orbitmq.store.types import LogOffset, StoreTimeMs

_MAGICS = (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)
log = logging.getLogger(__name__)


class CommitLog:
    """The single writer of the log, and its reader."""

    def __init__(
        self, layer: FileLayer, config: StoreConfig, store_host: bytes, offsets: QueueOffsets
    ) -> None:
        self.files = FileQueue(
            layer,
            config.log_folders(),
            config.commit_log_file_size,
            read_only_folders=config.read_only_commit_log_folders,
            full_ratio=config.folder_full_ratio,
        )
        self.offsets = offsets
        self.read_only_reason: str | None = None
        self._record_crc_required = config.record_crc_required
        self._batch_size_max = config.batch_size_max
        self._batch = LogBatch(
            offsets,
            config.limits,
            store_host,
            config.record_crc,
            config.commit_log_file_size,
            config.batch_size_max,
        )
        self.append = self._batch.append  # bound directly: one call less per message
        self.append_batch = self._batch.append_all
        self._store_time_ms = StoreTimeMs(0)  # of the last committed record
        self._stale_end = 0  # bytes of a failed commit may follow the end up to here
        self._received_end = 0  # bytes of a master's log follow the end up to here
        self._scanner = RecordScanner()  # of received records

    def follow(self, config: StoreConfig) -> None:
        """Apply the settings that may change while the store is open."""
        self.files.full_ratio = config.folder_full_ratio
        self._batch.set_limits(config.limits)

    @property
    def min_offset(self) -> LogOffset:
        return LogOffset(self.files.first_offset)

    @property
    def end_offset(self) -> LogOffset:
        """The offset after the last committed record."""
        return LogOffset(self.files.end_offset)

    @property
    def flushed_offset(self) -> LogOffset:
        return LogOffset(self.files.flushed_offset)

    @property
    def last_store_time_ms(self) -> StoreTimeMs:
        """The store time of the last committed record, 0 if there is none."""
        return self._store_time_ms

    @property
    def batch(self) -> LogBatch:
        """The open batch, for kernels that fill it without a Message; they must commit or discard
        it.
        """
        return self._batch

    @property
    def is_batch_full(self) -> bool:
        """Whether the batch must be committed to limit memory."""
        return self._batch.used >= self._batch_size_max

    def load(self) -> None:
        """Find the files; all count as full until `resume` sets the end of the log."""
        self.files.load()
        self.discard()

    def resume(
        self, end: LogOffset, store_time_ms: StoreTimeMs, unsynced: LogOffset | None = None
    ) -> None:
        """Continue at `end`, after a record of that time; called by recovery and by truncation.

        Bytes after `end` are dropped, those before it made durable; from `unsynced` on they are
        rewritten for that.
        """
        assert not self._batch.used, "a batch is open"
        self.files.truncate_to(end)
        if unsynced is not None:
            self.files.rewrite(unsynced, end)
        self.flush()
        self._store_time_ms = store_time_ms
        self._stale_end = self._received_end = 0
        self.discard()
        log.info("log_resumed begin=%d end=%d", self.min_offset, end)

    def commit(self) -> None:
        """Write the batch; WriteFailedError if the disk fails: then none of its messages is in the
        log.
        """
        if not self._batch.used:
            return
        end = self._batch.end
        try:
            self._clear_stale()
            with memoryview(self._batch.buffer) as buffer:
                for part in self._batch.parts():
                    with buffer[part.begin : part.end] as data:
                        self.files.write(part.offset, data)
        except OSError as error:
            self._stale_end = max(self._stale_end, end)
            self.discard()
            log.error("commit_failed offset=%d error=%s", self.end_offset, error)
            kept = "nothing of it was kept"
            try:
                self._clear_stale()
            except OSError as another:  # retried before the next batch
                kept = (
                    f"what it wrote could not be cleared ({reason_of(another)}), and may reappear"
                    " if the broker ends before that"
                )
            raise WriteFailedError(
                f"the commit log could not be written at {self.end_offset}: {reason_of(error)};"
                f" {kept}"
            ) from error
        self.files.end_offset = end
        self._store_time_ms = StoreTimeMs(self._batch.store_time_ms)
        self.offsets.keep()
        self._batch.begin(end, self._store_time_ms)

    # -- bytes of a master's log

    @property
    def received_end(self) -> LogOffset:
        """The offset after the last received byte."""
        return LogOffset(max(self._received_end, self.files.end_offset))

    def begin_at(self, offset: LogOffset) -> None:
        """Let an empty log begin at `offset`, where a master's file begins; StoreError if no file
        of this log can begin there.
        """
        assert not self.files.files, "the log is not empty"
        if offset % self.files.file_size:
            raise StoreError(
                f"the master's log has a file that begins at {offset}, which is no multiple of"
                f" mappedFileSizeCommitLog={self.files.file_size}: configure the master's file size"
            )
        self.files.end_offset = self.files.flushed_offset = offset
        self.discard()

    def receive(self, offset: LogOffset, data: Buffer) -> None:
        """Write bytes of a master's log that continue those received before, and move the end over
        the records that are complete.

        StoreError if they do not continue them, WriteFailedError if the disk fails,
        CorruptRecordError if a record is invalid: in both cases what follows the end is dropped.
        """
        assert not self._batch.used, "a batch is open"
        if self.read_only_reason is not None:
            raise StoreReadOnlyError(self.read_only_reason)
        if offset != self.received_end:
            raise StoreError(
                f"the master sent bytes from {offset} on, expected are those from"
                f" {self.received_end} on"
            )
        try:
            with memoryview(data) as view:
                self._write_received(offset, view)
        except OSError as error:
            self._stale_end = max(self._stale_end, offset + len(data))
            self.drop_received()
            raise WriteFailedError(
                f"the commit log could not be written at {offset}: {reason_of(error)}"
            ) from error
        self._received_end = offset + len(data)
        try:
            self._complete_received()
        except CorruptRecordError:
            self.drop_received()
            raise
        finally:
            self.discard()

    def drop_received(self) -> None:
        """Forget received bytes after the last complete record; they are overwritten, or cleared
        before the next commit.
        """
        self._stale_end = max(self._stale_end, self._received_end)
        self._received_end = 0

    def _write_received(self, offset: LogOffset, data: memoryview) -> None:
        at, size = 0, self.files.file_size
        while at < len(data):
            room = size - (offset + at) % size
            with data[at : at + room] as part:
                self.files.write(offset + at, part)
                at += len(part)

    def _complete_received(self) -> None:
        """Move the end over complete records; CorruptRecordError at an invalid one."""
        received, scanner = self._received_end, self._scanner
        cursor = RecordCursor()  # not kept: it would keep the file mapped
        while self.files.end_offset < received:
            file = self.files.find(self.files.end_offset)
            assert file is not None, "received bytes are in a file"
            end = min(file.end, received) - file.start
            before = scanner.count
            is_complete = scanner.scan(
                cursor,
                file.view(),
                self.files.end_offset - file.start,
                end,
                end,
                file.start,
                True,
                self._record_crc_required,
            )
            self.files.end_offset = file.start + scanner.at
            if scanner.count > before:
                self._store_time_ms = StoreTimeMs(scanner.store_time_ms)
            if is_complete:
                continue
            if scanner.result == 0 and scanner.at + _blank_size(file, scanner.at) == file.size:
                self.files.end_offset = file.end
            elif self._may_become_record(file, scanner.at, end):
                break
            else:
                raise CorruptRecordError(
                    f"the master's log has no valid record at {self.files.end_offset}:"
                    f" {_flaw(scanner.result, cursor)}. Are mappedFileSizeCommitLog of both"
                    " brokers the same? Otherwise the network or the master's disk damaged it"
                )
        if self.files.end_offset >= self._stale_end:
            self._stale_end = 0

    def _may_become_record(self, file: MappedFile, at: int, end: int) -> bool:
        """Return whether the bytes from `at` to `end` may be the first of a record or blank."""
        if self._scanner.result != Flaw.CUT:
            return False
        view = file.view()
        return (end - at < 4 or BLANK_SIZE <= signed32(view, at) <= file.size - at) and (
            end - at < BLANK_SIZE or get32(view, at + 4) in _MAGICS
        )

    def discard(self) -> None:
        """Drop the batch: offsets, queue offsets and times are those after the last commit."""
        self.offsets.undo()
        self._batch.begin(self.files.end_offset, self._store_time_ms)

    def read(self, offset: LogOffset, size: int) -> memoryview | None:
        """Return committed bytes of one file; None if they do not exist, or no longer."""
        return self.files.view(offset, size)

    def scan(
        self,
        begin: LogOffset,
        stop: LogOffset | None = None,
        *,
        check_body: bool = True,
        check_record: bool | None = None,
        quarantine: Quarantine | None = None,
        scanner: RecordScanner | None = None,
    ) -> LogScan:
        """Scan records from `begin` to the committed end or `stop`; record checksums are verified
        if they are required.
        """
        if check_record is None:
            check_record = self._record_crc_required
        return LogScan(
            self.files,
            begin,
            stop,
            check_body=check_body,
            check_record=check_record,
            quarantine=quarantine,
            scanner=scanner,
        )

    def begin_flush(self) -> FlushJob | None:
        """Return what the flush thread must sync; None if all is flushed, or if a flush failed
        before.
        """
        return None if self.read_only_reason else self.files.begin_flush()

    def end_flush(self, job: FlushJob, error: Exception | None = None) -> None:
        """Take the result of a flush; an error makes the log read-only."""
        self.files.end_flush(job, error)
        if error is not None:
            self._become_read_only(error)

    def flush(self) -> None:
        """Sync everything, synchronously, at start and stop; StoreReadOnlyError if that fails or
        failed before.
        """
        if self.read_only_reason is not None:
            raise StoreReadOnlyError(self.read_only_reason)
        try:
            self.files.flush()
        except OSError as error:
            raise StoreReadOnlyError(self._become_read_only(error)) from error

    def close(self) -> None:
        """Close the files and remove those that hold nothing yet."""
        self.discard()
        self.files.drop_prepared()
        self.files.close()

    def _clear_stale(self) -> None:
        """Clear, durably, what a failed commit may have left after the end; OSError if the disk
        still fails.
        """
        if not (self._stale_end or self._received_end):
            return
        self.drop_received()
        if self._stale_end <= self.files.end_offset:
            self._stale_end = 0
            return
        self.files.clear(self.files.end_offset, self._stale_end)
        try:
            self.files.sync(self.files.end_offset, self._stale_end)
        except OSError as error:
            self._become_read_only(error)
            raise
        self._stale_end = 0

    def _become_read_only(self, error: Exception) -> str:
        """Make the log read-only; return the reason, which is that of the first failure."""
        if self.read_only_reason is None:
            self.read_only_reason = (
                f"flushing the commit log failed at {self.flushed_offset}: {error}; what was"
                " written since may be lost. The log is read-only: check the disk, then"
                " restart the broker"
            )
            self._batch.refuse(self.read_only_reason)
            log.error("log_read_only reason=%s", self.read_only_reason)
        return self.read_only_reason


def _blank_size(file: MappedFile, at: int) -> int:
    """Return the size of a blank: that of the rest of its file."""
    return signed32(file.view(), at)


def _flaw(result: int, cursor: RecordCursor) -> str:
    if result == 0:
        return "a blank ends before its file does"
    return f"it states the offset {cursor.log_offset}" if result > 0 else flaw_text(result)
