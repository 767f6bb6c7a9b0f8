"""The commit log: every message of every topic, one record after the other, in the order of their arrival.

```
<folder>/<start, 20 digits>    record | record | … | 8 bytes of blank | what was there before
```
docs/format/record.md has the record. A record lies in one file: one that leaves no room for a blank (size + 8 > what is left) closes
the file with the blank and begins the next. `append` gives places and fills a buffer (`log_batch`); `commit` writes it, one pwrite per
touched file.

Invariants: nothing that was not committed can be read; a commit that fails leaves the log, its queue offsets and its clock as they
were before the batch, and what it may have written is cleared before anything else is (or a crash could bring it back to life); store
times never decrease from record to record, also when the wall clock jumps back (the original stores whatever its clock says); after a
failed flush the log is read-only for as long as the process lives, for the system forgets which pages the disk did not take.

Crash rule: records behind `flushed_offset` may be lost or torn; a scan finds where the good ones end. Thread rule: the loop thread.

Against the first design: `append` never commits by itself. The caller looks at `is_batch_full` and commits, so that it learns at one
place which messages a failure took along. `records` is `scan`, which tells where it stopped, and why. `resume` is how recovery says
where the log ends. `Appended` is no tuple, for that cost more than the record's place in its queue.
"""

from __future__ import annotations

import logging

from orbitmq.common.errors import StoreReadOnly, WriteFailed, reason_of
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.file_queue import FileQueue, FlushJob
from orbitmq.store.log_batch import LogBatch
from orbitmq.store.log_scan import LogScan
from orbitmq.store.quarantine import Quarantine
from orbitmq.store.queue_offsets import QueueOffsets
from orbitmq.store.record_run import RecordRun
from orbitmq.store.types import LogOffset, StoreTimeMs

log = logging.getLogger(__name__)


class CommitLog:
    """The single writer of the log, and the way to read it."""

    def __init__(self, layer: FileLayer, config: StoreConfig, store_host: bytes, offsets: QueueOffsets) -> None:
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
        self._batch = LogBatch(offsets, config.limits, store_host, config.record_crc, config.commit_log_file_size, config.batch_size_max)
        self.append = self._batch.append  # the batch's own: a call less for every message
        self.append_batch = self._batch.append_all
        self._store_time_ms = StoreTimeMs(0)  # of the last committed record
        self._stale_end = 0  # up to where bytes of a failed commit may stand behind the end

    def follow(self, config: StoreConfig) -> None:
        """Take over what of the configuration may change while the store is open."""
        self.files.full_ratio = config.folder_full_ratio
        self._batch.set_limits(config.limits)

    @property
    def min_offset(self) -> LogOffset:
        return LogOffset(self.files.first_offset)

    @property
    def end_offset(self) -> LogOffset:
        """Behind the last committed record."""
        return LogOffset(self.files.end_offset)

    @property
    def flushed_offset(self) -> LogOffset:
        return LogOffset(self.files.flushed_offset)

    @property
    def last_store_time_ms(self) -> StoreTimeMs:
        """The store time of the last committed record, 0 when there is none."""
        return self._store_time_ms

    @property
    def batch(self) -> LogBatch:
        """What `append` fills, for kernels that fill it without a Message; whoever does commits, or discards."""
        return self._batch

    @property
    def is_batch_full(self) -> bool:
        """Whether it is time to commit, for the sake of memory."""
        return self._batch.used >= self._batch_size_max

    def load(self) -> None:
        """Find the files; all count as full until `resume` says where the log ends."""
        self.files.load()
        self.discard()

    def resume(self, end: LogOffset, store_time_ms: StoreTimeMs, unsynced: LogOffset | None = None) -> None:
        """Continue at `end`, behind a record of that time: what recovery found out, or whoever cuts the log.

        What is behind `end` is gone, what is before it is durable; from `unsynced` on it is written again for that.
        """
        assert not self._batch.used, "a batch is open"
        self.files.truncate_to(end)
        if unsynced is not None:
            self.files.rewrite(unsynced, end)
        self.flush()
        self._store_time_ms = store_time_ms
        self._stale_end = 0
        self.discard()
        log.info("log_resumed begin=%d end=%d", self.min_offset, end)

    def commit(self) -> None:
        """Write the batch; WriteFailed when the disk does not take it: then none of its messages is in the log."""
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
            except OSError as another:  # it is tried again before the next batch
                kept = f"what it wrote could not be cleared ({reason_of(another)}), and may come back if the broker ends before it is"
            raise WriteFailed(f"the commit log could not be written at {self.end_offset}: {reason_of(error)}; {kept}") from error
        self.files.end_offset = end
        self._store_time_ms = StoreTimeMs(self._batch.store_time_ms)
        self.offsets.keep()
        self._batch.begin(end, self._store_time_ms)

    def discard(self) -> None:
        """Forget the batch: places, queue offsets and times are those after the last commit."""
        self.offsets.undo()
        self._batch.begin(self.files.end_offset, self._store_time_ms)

    def read(self, offset: LogOffset, size: int) -> memoryview | None:
        """Committed bytes of one file; None when they are not there, or no more."""
        return self.files.view(offset, size)

    def scan(
        self,
        begin: LogOffset,
        stop: LogOffset | None = None,
        *,
        check_body: bool = True,
        check_record: bool | None = None,
        quarantine: Quarantine | None = None,
        run: RecordRun | None = None,
    ) -> LogScan:
        """The records from `begin` on, to the committed end or `stop`; their own checksums are looked at if they must have one."""
        if check_record is None:
            check_record = self._record_crc_required
        return LogScan(self.files, begin, stop, check_body=check_body, check_record=check_record, quarantine=quarantine, run=run)

    def begin_flush(self) -> FlushJob | None:
        """What the flusher has to sync; None when all is flushed, or when flushing failed once."""
        return None if self.read_only_reason else self.files.begin_flush()

    def end_flush(self, job: FlushJob, error: Exception | None = None) -> None:
        """What came of it; an error makes the log read-only."""
        self.files.end_flush(job, error)
        if error is not None:
            self._become_read_only(error)

    def flush(self) -> None:
        """Sync everything here and now, at start and stop; StoreReadOnly when that fails, or when it did before."""
        if self.read_only_reason is not None:
            raise StoreReadOnly(self.read_only_reason)
        try:
            self.files.flush()
        except OSError as error:
            raise StoreReadOnly(self._become_read_only(error)) from error

    def close(self) -> None:
        """Let go of the files, and remove those that hold nothing yet."""
        self.discard()
        self.files.drop_prepared()
        self.files.close()

    def _clear_stale(self) -> None:
        """Clear what a failed commit may have left behind the end, durably; OSError when the disk still takes nothing."""
        if not self._stale_end:
            return
        self.files.clear(self.files.end_offset, self._stale_end)
        try:
            self.files.sync(self.files.end_offset, self._stale_end)
        except OSError as error:
            self._become_read_only(error)
            raise
        self._stale_end = 0

    def _become_read_only(self, error: Exception) -> str:
        """Take nothing more, for the first reason there was; returns it."""
        if self.read_only_reason is None:
            self.read_only_reason = (
                f"flushing the commit log failed at {self.flushed_offset}: {error}; what was written since may be lost. "
                "Nothing more is taken: look after the disk, then start the broker again"
            )
            self._batch.refuse(self.read_only_reason)
            log.error("log_read_only reason=%s", self.read_only_reason)
        return self.read_only_reason
