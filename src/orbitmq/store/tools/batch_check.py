"""Compares batch consume queues with the log: one entry for each record that holds a batch, in the
order of the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from orbitmq.message.properties import INNER_NUM
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.batch_consume_queue import ENTRY, ENTRY_SIZE, BatchEntry
from orbitmq.store.entry_scan import FILLER_SIZE
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.quarantine import BadBytes
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.findings import Finding, Findings, Mend, RepairAction, Severity
from orbitmq.store.tools.log_walk import is_bad
from orbitmq.store.tools.queue_entries import QueueEntries
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs

REBUILD = "the next start, or orbitmq store repair, rebuilds the queue from the log"
_FIELDS = (
    "log offset",
    "size",
    "tags code",
    "store time",
    "base offset",
    "batch size",
    "compacted position",
    "reserved",
)


@dataclass(slots=True)
class _Queue:
    """How far one queue is checked: `number` is that of the next entry."""

    key: QueueKey
    entries: QueueEntries | None
    number: int
    next_offset: int = -1
    missing: int = 0
    missing_log_offset: int = 0
    records: int = 0


class BatchCheck:
    """All batch queues of a store."""

    def __init__(
        self,
        directory: StoreDirectory,
        files: OpenFiles,
        findings: Findings,
        bad: Sequence[BadBytes],
        log_min: int,
    ) -> None:
        self._directory = directory
        self._files = files
        self._findings = findings
        self._bad = bad  # in the order of the log, and growing
        self._log_min = log_min
        compaction = directory.root / "compaction"
        # Then entries may state a position in the compacted log.
        self._is_compacted = any(
            (compaction / name).is_dir() for name in directory.layer.list(compaction)
        )
        self._queues: dict[QueueKey, _Queue] = {}
        self.cut: set[QueueKey] = set()  # with entries of records after the end of the log
        for key in directory.batch:
            self._obtain(key)

    def record(self, record: RecordCursor) -> None:
        """Check the entry of a record that holds a batch."""
        queue = self._obtain(QueueKey(record.topic().decode("utf-8", "replace"), record.queue_id))
        queue.records += 1
        if queue.entries is None:
            return
        text = record.property(INNER_NUM) or ""
        expected = BatchEntry(
            LogOffset(record.log_offset),
            record.size,
            record.tags_code(),
            StoreTimeMs(record.store_time_ms),
            QueueOffset(record.queue_offset),
            int(text) if text.isascii() and text.isdigit() else 1,
        )
        while (
            (entry := self._entry(queue)) is not None
            and entry.log_offset < record.log_offset
            and self._follows(queue, record.log_offset)
        ):
            if entry.log_offset >= self._log_min and not is_bad(self._bad, entry.log_offset):
                self._add(
                    queue,
                    "batch-surplus",
                    f"entry {queue.number} points to {entry.log_offset}, where the log has no batch"
                    " of this queue",
                )
            queue.number += 1
        if entry is None:
            queue.missing_log_offset = (
                queue.missing_log_offset if queue.missing else record.log_offset
            )
            queue.missing += 1
            return
        if entry.log_offset != expected.log_offset and self._follows(
            queue, record.log_offset, strictly=True
        ):
            self._add(
                queue,
                "batch-missing",
                f"the batch at {record.log_offset} has no entry before entry {queue.number}",
            )
            return
        wrong = [
            name
            for name, has, should in zip(_FIELDS, entry, expected, strict=True)
            if has != should and not (name == "compacted position" and self._is_compacted)
        ]
        if wrong:
            self._add(
                queue,
                "batch-entry",
                f"entry {queue.number} has another {', '.join(wrong)} than its record at"
                f" {record.log_offset}",
            )
        elif queue.next_offset not in (-1, expected.base_offset):
            self._add(
                queue,
                "batch-offset",
                f"entry {queue.number} begins at {expected.base_offset}, the one before ends at"
                f" {queue.next_offset}",
            )
        queue.next_offset = expected.next_offset
        queue.number += 1

    def finish(self, log_end: int, *, is_lost: bool) -> None:
        """Report entries without a record, and records without an entry. `is_lost`: the log lacks
        records that it had.
        """
        for queue in self._queues.values():
            if queue.entries is None:
                if queue.key not in self._directory.batch:
                    self._add(
                        queue, "no-queue", f"{queue.records} batches, but there is no such queue"
                    )
                continue
            if queue.missing:
                what = (
                    f"{queue.missing} batches at the end have no entry; the first is at"
                    f" {queue.missing_log_offset}"
                )
                if self._directory.is_clean:
                    self._add(queue, "batch-behind", what)
                else:
                    self._add(
                        queue,
                        "batch-behind",
                        what,
                        Severity.NOTE,
                        "nothing: the store was not stopped, its next start adds them",
                        None,
                    )
            for number, raw in queue.entries.from_(queue.number):
                entry = BatchEntry._make(ENTRY.unpack(raw))
                queue.number = number
                if entry.size == FILLER_SIZE:
                    continue
                if entry.log_offset >= log_end and is_lost:
                    self.cut.add(queue.key)
                    what = (
                        f"{entry.batch_size} messages from {entry.base_offset} on are lost: the log"
                        " ends before them"
                    )
                    self._add(queue, "batch-lost", what, Severity.LOSS)
                elif entry.log_offset >= log_end:
                    self.cut.add(queue.key)
                    what = (
                        f"entry {number} points beyond the end of the log, {log_end}: of a"
                        " dropped batch"
                    )
                    self._add(
                        queue,
                        "batch-stale",
                        what,
                        Severity.NOTE,
                        "nothing: the next start clears it",
                    )
                elif not (
                    0 <= entry.log_offset < self._log_min or is_bad(self._bad, entry.log_offset)
                ):
                    self._add(
                        queue,
                        "batch-surplus",
                        f"entry {number} points to {entry.log_offset}, where the log has no batch"
                        " of this queue",
                    )

    def counts(self) -> Counter[QueueKey]:
        """Return how many records each queue has."""
        return Counter({queue.key: queue.records for queue in self._queues.values()})

    def silent(self) -> set[QueueKey]:
        """Return the queues without a record."""
        return {queue.key for queue in self._queues.values() if not queue.records}

    def _follows(self, queue: _Queue, log_offset: int, *, strictly: bool = False) -> bool:
        """Whether the entry belongs to another record, judging by the next entry."""
        assert queue.entries is not None
        raw = queue.entries.read(queue.number + 1)
        following = ENTRY.unpack(raw)[0] if raw and any(raw) else None
        if strictly:
            current = self._entry(queue)
            return (
                current is not None
                and current.log_offset > log_offset
                and (following is None or following > current.log_offset)
            )
        return following is not None and following <= log_offset

    def _entry(self, queue: _Queue) -> BatchEntry | None:
        assert queue.entries is not None
        raw = queue.entries.read(queue.number)
        return BatchEntry._make(ENTRY.unpack(raw)) if raw and any(raw) else None

    def _obtain(self, key: QueueKey) -> _Queue:
        queue = self._queues.get(key)
        if queue is None:
            folder, size = self._directory.batch.get(key), self._directory.batch_file_size
            whole = folder is not None and folder.is_whole(size) and not size % ENTRY_SIZE
            entries = (
                QueueEntries(self._directory.layer, self._files, folder, size, ENTRY_SIZE)
                if folder is not None and whole
                else None
            )
            queue = self._queues[key] = _Queue(
                key, entries, 0 if entries is None else entries.first
            )
        return queue

    def _add(
        self,
        queue: _Queue,
        kind: str,
        what: str,
        severity: Severity = Severity.DAMAGE,
        remedy: str = REBUILD,
        action: RepairAction | None = RepairAction.REBUILD_QUEUE,
    ) -> None:
        target = f"{queue.key.topic}/{queue.key.queue_id}"
        file, at = f"batchconsumequeue/{target}", None
        if queue.entries is not None:
            name, at = queue.entries.place(queue.number)
            file = f"{file}/{name}"
        self._findings.add(
            Finding(
                severity,
                kind,
                file,
                at,
                what,
                remedy,
                None if action is None else Mend(action, target),
            )
        )
