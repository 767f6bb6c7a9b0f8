"""Compares consume queues with the log: each record with its entry while the log is scanned, then
the remaining entries.

Entry i of a queue must be that of the record that states it is message i there. The remaining ones
must be entries of records no longer in the log, fillers, or zeros. Memory: a few numbers and 4 KiB
for each queue, and the findings.

If an entry and a record contradict each other, the entry is wrong unless an entry of another queue,
for a message that no record claims, points to the record: then the record's place is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orbitmq.message.flags import INNER_BATCH, TransactionType, transaction_type
from orbitmq.message.properties import DELAY, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.consume_queue import ENTRY, ENTRY_SIZE
from orbitmq.store.consume_queue_ext import is_ext_address
from orbitmq.store.dispatch import SCHEDULE_TOPIC
from orbitmq.store.entry_scan import FILLER_SIZE
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.quarantine import BadBytes
from orbitmq.store.tools.batch_check import BatchCheck
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.ext_check import ExtCheck
from orbitmq.store.tools.findings import Finding, Findings, Mend, RepairAction, Severity
from orbitmq.store.tools.log_walk import is_bad
from orbitmq.store.tools.queue_entries import QueueEntries
from orbitmq.store.types import QueueKey

_IN_QUEUE = (TransactionType.NONE, TransactionType.COMMIT)
_LIGHT_PREFIX = "%LMQ%"
_TENTATIVE_MAX = 1_000  # of one queue
_CLAIMED_MAX = 100_000
REBUILD = "the next start, or orbitmq store repair, rebuilds the queue from the log"


@dataclass(slots=True)
class _Queue:
    """How far one queue is checked."""

    key: QueueKey
    entries: QueueEntries | None  # None: no files, or not readable as a queue
    ext: ExtCheck | None
    next: int = -1  # expected queue offset of the next record; -1 before the first
    missing: int = 0  # records without an entry at the end so far
    missing_first: int = 0
    missing_log_offset: int = 0
    records: int = 0
    tentative: list[tuple[int, Finding]] = field(default_factory=list)  # by the record's log offset


class QueueCheck:
    """All queues of a store."""

    def __init__(
        self,
        directory: StoreDirectory,
        findings: Findings,
        bad: Sequence[BadBytes],
        topics: Mapping[str, int] | None,
    ) -> None:
        self._directory = directory
        self._findings = findings
        self._bad = bad  # in the order of the log, and growing
        self._topics = topics  # the broker's topics with their queue counts; None: unknown
        self._files = OpenFiles(directory.layer)
        self._queues: dict[tuple[bytes, int], _Queue] = {}
        # By log offset: an entry that points there, and should not.
        self._claimed: dict[int, tuple[_Queue, int]] = {}
        self._log_min = directory.log_files[0].start if directory.log_files else 0
        self._delays_ms = dict(enumerate(directory.delay_levels_ms, start=1))
        self._learnt: set[int] = set()
        self.restarted: set[QueueKey] = set()
        self.deleted: set[QueueKey] = set()
        self.cut: set[QueueKey] = set()  # with entries of records after the end of the log
        self._batches = BatchCheck(directory, self._files, findings, bad, self._log_min)
        for key in directory.plain:
            self._obtain(key.topic.encode(), key.queue_id)

    def record(self, record: RecordCursor) -> None:
        """Check the entry of a record."""
        if transaction_type(record.sys_flag) not in _IN_QUEUE:
            return
        if record.sys_flag & INNER_BATCH:
            self._batches.record(record)
            return
        topic = record.topic()
        queue = self._queues.get((topic, record.queue_id)) or self._obtain(topic, record.queue_id)
        self._place(queue, record, record.queue_offset)
        if (names := record.property(INNER_MULTI_DISPATCH)) is not None:
            self._light(record, names)

    def finish(self, log_end: int, *, is_lost: bool) -> None:
        """Check the remaining entries, and report what is left of the doubts. `is_lost`: the log
        lacks records that it had, so entries of them are lost messages.
        """
        for queue in self._queues.values():
            if queue.entries is not None:
                self._left_over(queue, log_end, is_lost=is_lost)
        for queue in self._queues.values():
            self._report(queue)
        self._check_hidden()
        for log_offset, (queue, number) in self._claimed.items():
            self._add(
                queue,
                Severity.DAMAGE,
                "entry-without-record",
                number,
                f"entry {number} points to {log_offset}, where the log has no record of that"
                " message",
            )
        self._batches.finish(log_end, is_lost=is_lost)
        self._files.close()

    # -- one record

    def _place(self, queue: _Queue, record: RecordCursor, queue_offset: int) -> None:
        queue.records += 1
        if queue.entries is None:
            if queue.key not in self._directory.plain and len(queue.tentative) < _TENTATIVE_MAX:
                queue.tentative.append((record.log_offset, self._absent(queue)))
            return
        entry = queue.entries.read(queue_offset) if queue_offset >= 0 else b""
        log_offset, size, code = ENTRY.unpack(entry) if entry else (0, 0, 0)
        expected = max(queue.next, queue.entries.first)
        fits = (log_offset, size) == (record.log_offset, record.size)
        if queue_offset == 0 and queue.next > 0 and fits:
            self._begin_again(queue, record)
        elif fits and queue_offset > queue.next:
            self._skipped(queue, expected, queue_offset)
        if fits:
            queue.next = max(queue.next, queue_offset + 1)
            if queue.missing:
                self._hole(queue)
            self._check_code(queue, record, queue_offset, code)
            return
        if size == 0 and log_offset == 0:
            if not queue.missing:
                queue.missing_first, queue.missing_log_offset = queue_offset, record.log_offset
            queue.missing += 1
            if queue_offset == expected:
                queue.next = queue_offset + 1
            return
        place = f"the record of that message is at {record.log_offset} and has {record.size}"
        if size == FILLER_SIZE:
            what = f"entry {queue_offset} is a filler, {place}"
        else:
            what = f"entry {queue_offset} points to {log_offset} and {size} bytes, {place}"
        if len(queue.tentative) < _TENTATIVE_MAX:
            queue.tentative.append(
                (
                    record.log_offset,
                    self._finding(queue, Severity.DAMAGE, "entry", queue_offset, what),
                )
            )
        if queue_offset == expected:  # else the record may be wrong
            queue.next = queue_offset + 1

    def _check_code(self, queue: _Queue, record: RecordCursor, number: int, code: int) -> None:
        expected = self._code(queue, record, code)
        if queue.ext is not None and is_ext_address(code):
            problem = queue.ext.problem(code, expected, record.store_time_ms)
            if problem is not None:
                self._add(queue, Severity.DAMAGE, "ext", number, f"entry {number}: {problem}")
        elif code != expected:
            name = "delivery time" if queue.key.topic == SCHEDULE_TOPIC else "tags code"
            self._add(
                queue,
                Severity.DAMAGE,
                "code",
                number,
                f"entry {number} has the {name} {code}, its record at {record.log_offset} has"
                f" {expected}",
            )

    def _code(self, queue: _Queue, record: RecordCursor, code: int) -> int:
        """Return the expected third field of the entry."""
        if queue.key.topic != SCHEDULE_TOPIC:
            return record.tags_code()
        text = record.property(DELAY) or ""
        level = min(int(text), len(self._delays_ms)) if text.isascii() and text.isdigit() else 0
        if not level:
            return record.tags_code()
        if (
            level not in self._learnt
            and not self._directory.delays_are_known
            and not is_ext_address(code)
        ):
            self._learnt.add(level)  # a broker may have other delays than Apache's: whole seconds
            seen_ms = code - record.store_time_ms
            if seen_ms > 0 and seen_ms % 1000 == 0:
                self._delays_ms[level] = seen_ms
        return record.store_time_ms + self._delays_ms[level]

    def delays_ms(self) -> tuple[int, ...]:
        """Return the delays of the levels, as the entries have them."""
        return tuple(self._delays_ms[level] for level in sorted(self._delays_ms))

    def silent(self) -> frozenset[QueueKey]:
        """Return queues without a record in the log: all have expired, or never existed."""
        plain = {queue.key for queue in self._queues.values() if not queue.records}
        return frozenset(plain | self._batches.silent()) - self.all_cut()

    def all_cut(self) -> frozenset[QueueKey]:
        """Return queues of either kind with entries of records after the end of the log."""
        return frozenset(self.cut | self._batches.cut)

    def _light(self, record: RecordCursor, names: str) -> None:
        """Check the entries of a record in light queues, besides its own."""
        offsets = (record.property(INNER_MULTI_QUEUE_OFFSET) or "").split(",")
        for name, offset in zip(names.split(","), offsets, strict=False):
            queue_id = 0 if name.startswith(_LIGHT_PREFIX) else record.queue_id
            if QueueKey(name, queue_id) in self._directory.plain and offset.isdecimal():
                self._place(self._obtain(name.encode(), queue_id), record, int(offset))

    def _begin_again(self, queue: _Queue, record: RecordCursor) -> None:
        """Restart the queue: its topic was deleted and recreated, and all findings are of its first
        life.
        """
        queue.tentative.clear()
        queue.missing = 0
        queue.next = 0
        self.restarted.add(queue.key)
        self._add(
            queue,
            Severity.NOTE,
            "begins-again",
            0,
            f"the queue begins again at the record at {record.log_offset}: the topic was deleted"
            " and recreated",
        )

    def _skipped(self, queue: _Queue, begin: int, end: int) -> None:
        """Check the entries of messages that no record claims."""
        assert queue.entries is not None
        fillers = 0
        for number in range(begin, end):
            entry = queue.entries.read(number)
            log_offset, size, _code = ENTRY.unpack(entry) if entry else (0, 0, 0)
            if size == FILLER_SIZE:
                fillers += log_offset > 0 or begin >= queue.next > 0
            elif log_offset >= self._log_min and not (size > 0 and is_bad(self._bad, log_offset)):
                self._claim(queue, number, log_offset)
        if fillers:
            self._add(
                queue,
                Severity.NOTE,
                "fillers",
                begin,
                f"{fillers} messages before {end} have fillers: their records are lost",
            )

    def _claim(self, queue: _Queue, number: int, log_offset: int) -> None:
        if len(self._claimed) < _CLAIMED_MAX:
            self._claimed[log_offset] = (queue, number)

    def _hole(self, queue: _Queue) -> None:
        """Report records without an entry that are followed by one with an entry."""
        what = (
            f"{queue.missing} messages from {queue.missing_first} on have no entry, their first"
            f" record is at {queue.missing_log_offset}"
        )
        finding = self._finding(queue, Severity.DAMAGE, "no-entry", queue.missing_first, what)
        queue.tentative.append((queue.missing_log_offset, finding))
        queue.missing = 0

    # -- what is left

    def _left_over(self, queue: _Queue, log_end: int, *, is_lost: bool) -> None:
        assert queue.entries is not None
        stale, first_stale, last = 0, 0, -1
        begin = queue.next if queue.next >= 0 else queue.entries.first
        for number, entry in queue.entries.from_(begin):
            log_offset, size, _code = ENTRY.unpack(entry)
            if size == FILLER_SIZE or (
                0 <= log_offset < self._log_min and size > 0 and log_offset >= last
            ):
                last = log_offset
            elif log_offset >= log_end and size > 0:
                first_stale = first_stale if stale else number
                stale += 1
            elif not (size > 0 and is_bad(self._bad, log_offset)):
                self._claim(queue, number, log_offset)
        if stale and is_lost:
            self.cut.add(queue.key)
            what = f"{stale} messages from {first_stale} on are lost: the log ends before them"
            mend = Mend(RepairAction.REBUILD_QUEUE, self._target(queue))
            self._add(queue, Severity.LOSS, "lost", first_stale, what, REBUILD, mend)
        elif stale:
            self.cut.add(queue.key)
            what = (
                f"{stale} entries from {first_stale} on point beyond the end of the log, {log_end}:"
                " of dropped records"
            )
            mend = Mend(RepairAction.REBUILD_QUEUE, self._target(queue))
            self._add(
                queue,
                Severity.NOTE,
                "stale",
                first_stale,
                what,
                "nothing: the next start clears them",
                mend,
            )

    def _check_hidden(self) -> None:
        """Report queues with messages beyond the queue count of their topic: no consumer reads
        them.
        """
        known = self._topics or {}
        counts = (
            Counter({queue.key: queue.records for queue in self._queues.values()})
            + self._batches.counts()
        )
        for key, count in counts.items():
            queues = known.get(key.topic, 0)
            is_there = key in self._directory.plain or key in self._directory.batch
            if 0 < queues <= key.queue_id and is_there:
                self._findings.add(
                    Finding(
                        Severity.DAMAGE,
                        "hidden",
                        "config/topics.json",
                        None,
                        f"topic {key.topic} has {queues} queues, and the log has {count} records of"
                        f" its queue {key.queue_id}: no consumer reads them",
                        "add the queues to the topic while the broker runs: orbitmq topic update"
                        f" {key.topic} --queues {key.queue_id + 1}",
                    )
                )

    def _report(self, queue: _Queue) -> None:
        if queue.missing and self._directory.is_clean:
            self._hole(queue)
        elif queue.missing:
            what = (
                f"{queue.missing} messages at the end, from {queue.missing_first} on, have no"
                " entry yet"
            )
            self._add(
                queue,
                Severity.NOTE,
                "behind",
                queue.missing_first,
                what,
                "nothing: the store was not stopped, its next start adds them",
            )
        reported_absent = False
        for log_offset, finding in queue.tentative:
            if log_offset in self._claimed:
                self._accuse_record(queue, log_offset, *self._claimed.pop(log_offset))
            elif finding.kind != "no-queue" or not reported_absent:
                self._findings.add(finding)
                reported_absent = finding.kind == "no-queue"

    def _accuse_record(self, queue: _Queue, log_offset: int, other: _Queue, number: int) -> None:
        file, at = self._directory.log_path(log_offset)
        what = (
            f"the record at {log_offset} states queue {self._target(queue)}, but is"
            f" message {number} of {self._target(other)}: its topic, queue or queue offset is"
            " corrupt"
        )
        remedy = (
            "restore the file from a replica or a backup; until then queues cannot be rebuilt"
            " without moving the message"
        )
        self._findings.add(Finding(Severity.LOSS, "record-place", file, at, what, remedy))

    def _absent(self, queue: _Queue) -> Finding:
        topic, target = queue.key.topic, self._target(queue)
        what, file = (
            "the log has messages of this queue, but there is no such queue",
            f"consumequeue/{target}",
        )
        if self._topics is not None and topic not in self._topics and not _is_system(topic):
            self.deleted.add(queue.key)
            return Finding(
                Severity.NOTE,
                "no-queue",
                file,
                None,
                f"{what}, nor such a topic: it was deleted",
                "nothing",
            )
        return Finding(
            Severity.DAMAGE,
            "no-queue",
            file,
            None,
            what,
            REBUILD,
            Mend(RepairAction.REBUILD_QUEUE, target),
        )

    # -- helpers

    def _obtain(self, topic: bytes, queue_id: int) -> _Queue:
        found = self._queues.get((topic, queue_id))
        if found is not None:
            return found
        key = QueueKey(topic.decode("utf-8", "replace"), queue_id)
        directory = self._directory
        folder = directory.plain.get(key)
        entries, ext = None, None
        if folder is not None:
            if (
                folder.is_whole(directory.queue_file_size)
                and not directory.queue_file_size % ENTRY_SIZE
            ):
                entries = QueueEntries(
                    directory.layer, self._files, folder, directory.queue_file_size, ENTRY_SIZE
                )
            ext_folder = directory.ext.get(key)
            if directory.ext:
                ext = ExtCheck(directory.layer, self._files, ext_folder, directory.ext_file_size)
        queue = self._queues[topic, queue_id] = _Queue(key, entries, ext)
        return queue

    def _target(self, queue: _Queue) -> str:
        return f"{queue.key.topic}/{queue.key.queue_id}"

    def _add(
        self,
        queue: _Queue,
        severity: Severity,
        kind: str,
        number: int,
        what: str,
        remedy: str | None = None,
        mend: Mend | None = None,
    ) -> None:
        finding = self._finding(queue, severity, kind, number, what)
        if remedy is not None:
            finding = finding._replace(remedy=remedy)
        self._findings.add(finding if mend is None else finding._replace(mend=mend))

    def _finding(
        self, queue: _Queue, severity: Severity, kind: str, number: int, what: str
    ) -> Finding:
        folder = f"consumequeue/{self._target(queue)}"
        name, at = (
            queue.entries.place(number) if queue.entries is not None and number >= 0 else ("", 0)
        )
        mend = (
            Mend(RepairAction.REBUILD_QUEUE, self._target(queue))
            if severity is Severity.DAMAGE
            else None
        )
        remedy = REBUILD if mend is not None else "nothing"
        return Finding(
            severity,
            kind,
            f"{folder}/{name}" if name else folder,
            at if name else None,
            what,
            remedy,
            mend,
        )


def _is_system(topic: str) -> bool:
    """Whether brokers write to the topic without listing it."""
    return topic == SCHEDULE_TOPIC or topic.startswith(
        ("RMQ_SYS_", "rmq_sys_", "%RETRY%", "%DLQ%", _LIGHT_PREFIX)
    )
