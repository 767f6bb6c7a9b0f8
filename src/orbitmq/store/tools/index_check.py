"""Compares the index with the log: every key of every record has its entry, every entry its record,
and the chains are complete.

Entries are in the order of the log, so both are read once, side by side. Memory: the slots of one
file. The tags key may be missing: 4.9 has none.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from orbitmq.message.flags import TransactionType, transaction_type
from orbitmq.message.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQUE_KEY, decode_text
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.tags import index_hash
from orbitmq.store.index import tags_key
from orbitmq.store.index_file import IndexHeader, IndexShape
from orbitmq.store.quarantine import BadBytes
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.findings import Finding, Findings, Mend, RepairAction, Severity
from orbitmq.store.tools.log_walk import is_bad
from orbitmq.store.tools.sizes import HEADER, INDEX_ENTRY

REBUILD = "orbitmq store repair rebuilds the index from the log"
START_REBUILDS = "the next start, or orbitmq store repair, rebuilds the index from the log"
_INT_MAX = 0x7FFFFFFF
_CHUNK = 50_000 * INDEX_ENTRY.size


class _File:
    """One index file."""

    def __init__(
        self, directory: StoreDirectory, path: Path, shape: IndexShape, after: _File | None
    ) -> None:
        self.layer = directory.layer
        self.name = directory.relative(path)
        self.shape = shape
        self.after = after
        self.descriptor = self.layer.open(path)
        self.header = IndexHeader._make(
            HEADER.unpack(self.layer.pread(self.descriptor, HEADER.size, 0))
        )
        self.count = min(max(self.header.entry_count, 1), shape.entries)


class _Entry(NamedTuple):
    file: _File
    number: int
    key_hash: int
    log_offset: int
    seconds: int


class IndexCheck:
    """All index files of a store."""

    def __init__(
        self, directory: StoreDirectory, findings: Findings, bad: Sequence[BadBytes], log_limit: int
    ) -> None:
        self._directory = directory
        self._findings = findings
        self._bad = bad  # in the order of the log, and growing
        self._log_min = directory.log_files[0].start if directory.log_files else 0
        self._log_limit = log_limit  # no record can be beyond it
        self._files: list[_File] = []
        self._ahead: deque[_Entry] = deque()
        self._last_offset = -1
        # Records before the index begins, and after its end.
        self._before = self._behind = self._behind_offset = 0
        self._begin: int | None = None
        self.entries = 0
        self._remedy = REBUILD if directory.index_state is None else START_REBUILDS
        if directory.index_shape is not None:
            self._open(directory.index_shape)
        self._compare_names()
        self._stream = self._read_all()
        self._look_ahead()

    def record(self, record: RecordCursor) -> None:
        """Check the entries of a record."""
        if not self._files or transaction_type(record.sys_flag) is TransactionType.ROLLBACK:
            return
        wanted, tags_hash = _hashes(record)
        entries = self._entries_of(record.log_offset)
        if not entries and wanted:
            if self._begin is None or record.log_offset < self._begin:
                self._before += 1
                return
            if not self._ahead:
                self._behind_offset = self._behind_offset if self._behind else record.log_offset
                self._behind += 1
                return
        present = {entry.key_hash for entry in entries}
        missing = [key_hash for key_hash in wanted if key_hash not in present]
        for entry in entries:
            self._check_times(entry, record.store_time_ms)
            if entry.key_hash not in wanted and entry.key_hash != tags_hash:
                what = (
                    f"entry {entry.number} has the hash {entry.key_hash}, which matches no key of"
                    f" its record at {entry.log_offset}"
                )
                self._add_entry("index-hash", entry, what)
                missing = missing[1:]
        for key_hash in missing:
            self._add(
                "index-missing",
                self._place(),
                f"the record at {record.log_offset} has a key of hash {key_hash} that is"
                " not in the index",
            )

    def finish(self, log_end: int) -> None:
        """Report entries without a record, and records without entries."""
        stale = 0
        while self._ahead:
            entry = self._ahead.popleft()
            self._look_ahead()
            if entry.log_offset >= log_end:
                stale += 1
            elif entry.log_offset >= self._log_min:
                self._stray(entry)
        name = self._files[-1].name if self._files else "index"
        if stale:
            what = f"{stale} entries are of dropped records, after the end of the log"
            mend = Mend(RepairAction.REBUILD_INDEX, "index")
            self._findings.add(
                Finding(
                    Severity.NOTE,
                    "index-stale",
                    name,
                    None,
                    what,
                    "nothing: the next start removes them",
                    mend,
                )
            )
        if self._before:
            self._add(
                "index-begin",
                (self._files[0].name, None),
                f"{self._before} records are older than the first entry, and have keys",
            )
        if self._behind:
            what = (
                f"{self._behind} records from {self._behind_offset} on have keys that are"
                " not in the index"
            )
            self._add(
                "index-end",
                (name, None),
                what,
                Severity.DAMAGE if self._directory.is_clean else Severity.NOTE,
            )
        for file in self._files:
            file.layer.close(file.descriptor)

    # -- the entries

    def _open(self, shape: IndexShape) -> None:
        for path in self._directory.index_files:
            size = self._directory.layer.size(path)
            if size == shape.file_size:
                self._files.append(
                    _File(self._directory, path, shape, self._files[-1] if self._files else None)
                )
            else:
                what = (
                    f"it has {size} bytes, {shape.slots} slots and {shape.entries} entries take"
                    f" {shape.file_size}"
                )
                self._add("index-size", (self._directory.relative(path), None), what)

    def _compare_names(self) -> None:
        """Compare the files with those of the manifest, except for those whose records are all
        before the log's begin.
        """
        state, found = (
            self._directory.index_state,
            {path.name: self._directory.relative(path) for path in self._directory.index_files},
        )
        if state is None or not self._directory.is_clean:
            return
        for file in state.files:
            if found.pop(file.name, None) is None and file.header.end_offset >= self._log_min:
                self._add(
                    "index-lost",
                    (f"index/{file.name}", None),
                    "the manifest lists it, but it is missing",
                )
        for name in found.values():
            self._add("index-unknown", (name, None), "the manifest does not list it")

    def _read_all(self) -> Iterator[_Entry]:
        """Iterate over the entries of all files; report what is wrong with a file in itself."""
        for file in self._files:
            slots = array("i", bytes(4 * file.shape.slots))
            used, number = 0, 1
            end = file.shape.entries_at + INDEX_ENTRY.size * file.count
            if file.header.entry_count != file.count:
                self._add(
                    "index-header",
                    (file.name, 36),
                    f"the header counts {file.header.entry_count} entries, there is room for"
                    f" {file.shape.entries}",
                )
            while number < file.count:
                at = file.shape.entries_at + INDEX_ENTRY.size * number
                for key_hash, log_offset, seconds, before in INDEX_ENTRY.iter_unpack(
                    file.layer.pread(file.descriptor, min(_CHUNK, end - at), at)
                ):
                    slot = key_hash % file.shape.slots
                    used += not slots[slot]
                    if before != slots[slot]:
                        self._add_entry(
                            "index-chain",
                            _Entry(file, number, key_hash, log_offset, seconds),
                            f"entry {number} follows entry {before} in its chain, it should follow"
                            f" {slots[slot]}",
                        )
                    slots[slot] = number
                    yield _Entry(file, number, key_hash, log_offset, seconds)
                    number += 1
            self.entries += file.count - 1
            self._check_slots(file, slots, used)

    def _check_slots(self, file: _File, slots: array[int], used: int) -> None:
        """Compare the slots and counts that follow from the entries with the file's."""
        if sys.byteorder == "little":
            slots.byteswap()
        expected = slots.tobytes()
        found = file.layer.pread(file.descriptor, len(expected), HEADER.size)
        # Ours are in memory while the store is open.
        severity = Severity.DAMAGE if self._directory.is_clean else Severity.NOTE
        if found != expected:
            for slot in range(file.shape.slots):
                if found[4 * slot : 4 * slot + 4] != expected[4 * slot : 4 * slot + 4]:
                    numbers = [
                        int.from_bytes(part[4 * slot : 4 * slot + 4], "big", signed=True)
                        for part in (found, expected)
                    ]
                    self._add(
                        "index-slot",
                        (file.name, HEADER.size + 4 * slot),
                        f"slot {slot} begins with entry {numbers[0]}, its chain with {numbers[1]}",
                        severity,
                    )
        if file.header.slots_used != used:
            self._add(
                "index-header",
                (file.name, 32),
                f"the header counts {file.header.slots_used} slots in use, {used} are",
                severity,
            )
        if any(file.layer.pread(file.descriptor, INDEX_ENTRY.size, file.shape.entries_at)):
            self._add(
                "index-behind",
                (file.name, file.shape.entries_at),
                "there are bytes in entry 0, which is never used",
            )
        end = file.shape.entries_at + INDEX_ENTRY.size * file.count
        for at, part in file.layer.content(file.descriptor, end, file.shape.file_size):
            if any(part):
                what = "there are bytes after the last entry that the header counts"
                self._add(
                    "index-behind",
                    (file.name, at + len(part) - len(part.lstrip(b"\0"))),
                    what,
                    severity,
                )
                return

    def _look_ahead(self) -> None:
        """Keep two entries in the buffer; report and drop one that is not in the order of
        the log.
        """
        while len(self._ahead) < 2 and (entry := next(self._stream, None)) is not None:
            before = self._ahead[-1].log_offset if self._ahead else self._last_offset
            if not 0 <= entry.log_offset < self._log_limit:
                self._disorder(entry)
            elif entry.log_offset >= before:
                self._ahead.append(entry)
            elif self._ahead and entry.log_offset >= self._last_offset:
                self._disorder(self._ahead.pop())
                self._ahead.append(entry)
            else:
                self._disorder(entry)
        if self._begin is None and self._ahead:
            self._begin = self._ahead[0].log_offset

    def _entries_of(self, log_offset: int) -> list[_Entry]:
        """Take the entries of the record at that offset; report those before it, which have no
        record.
        """
        found = []
        while self._ahead and self._ahead[0].log_offset <= log_offset:
            entry = self._ahead.popleft()
            self._last_offset = entry.log_offset
            self._look_ahead()
            if entry.log_offset == log_offset:
                found.append(entry)
            elif entry.log_offset >= self._log_min:
                self._stray(entry)
        return found

    def _check_times(self, entry: _Entry, store_time_ms: int) -> None:
        file, header = entry.file, entry.file.header
        begin_ms: int = header.begin_time_ms
        is_known = True
        if entry.number == 1:
            self._check_header(entry, 0, header.begin_time_ms, header.begin_offset, store_time_ms)
            begin_ms = file.after.header.end_time_ms if file.after is not None else 0
            is_known = file.after is not None or self._log_min == 0
        if entry.number == file.count - 1:
            end_ms = header.end_time_ms
            # Of a truncated index.
            is_whole_second = (
                end_ms == begin_ms + 1000 * entry.seconds <= store_time_ms < end_ms + 1000
            )
            self._check_header(
                entry,
                8,
                store_time_ms if is_whole_second else end_ms,
                header.end_offset,
                store_time_ms,
            )
        seconds = min(max((store_time_ms - begin_ms) // 1000, 0), _INT_MAX) if begin_ms > 0 else 0
        if is_known and entry.seconds != seconds:
            what = (
                f"entry {entry.number} is of {entry.seconds} s after the file's begin, its record"
                f" at {entry.log_offset} of {seconds} s"
            )
            self._add_entry("index-time", entry, what)

    def _check_header(
        self, entry: _Entry, at: int, time_ms: int, log_offset: int, store_time_ms: int
    ) -> None:
        """Compare one end of the file in the header with the record of the entry there."""
        if time_ms != store_time_ms:
            what = (
                f"the header has the time {time_ms}, the record of entry {entry.number} has"
                f" {store_time_ms}"
            )
            self._add("index-header", (entry.file.name, at), what)
        if log_offset != entry.log_offset:
            what = (
                f"the header has the log offset {log_offset}, entry {entry.number} has"
                f" {entry.log_offset}"
            )
            self._add("index-header", (entry.file.name, at + 16), what)

    # -- findings

    def _stray(self, entry: _Entry) -> None:
        if not is_bad(self._bad, entry.log_offset):
            self._add_entry(
                "index-stray",
                entry,
                f"entry {entry.number} points to {entry.log_offset}, where no record with a"
                " key begins",
            )

    def _disorder(self, entry: _Entry) -> None:
        self._add_entry(
            "index-order",
            entry,
            f"entry {entry.number} points to {entry.log_offset}, which is not between its"
            " neighbours",
        )

    def _place(self) -> tuple[str, int | None]:
        """Return where in the index a missing entry would be."""
        entry = self._ahead[0] if self._ahead else None
        if entry is None:
            return self._files[-1].name, None
        return entry.file.name, entry.file.shape.entries_at + INDEX_ENTRY.size * entry.number

    def _add_entry(self, kind: str, entry: _Entry, what: str) -> None:
        self._add(
            kind,
            (entry.file.name, entry.file.shape.entries_at + INDEX_ENTRY.size * entry.number),
            what,
        )

    def _add(
        self,
        kind: str,
        place: tuple[str, int | None],
        what: str,
        severity: Severity = Severity.DAMAGE,
    ) -> None:
        if severity is Severity.DAMAGE:
            self._findings.add(
                Finding(
                    severity,
                    kind,
                    *place,
                    what,
                    self._remedy,
                    Mend(RepairAction.REBUILD_INDEX, "index"),
                )
            )
        else:
            self._findings.add(
                Finding(
                    severity,
                    kind,
                    *place,
                    what,
                    "nothing: the store was not stopped, its next start repairs that",
                )
            )


def _hashes(record: RecordCursor) -> tuple[list[int], int | None]:
    """Return the hashes of the keys of a record, and that of its tags."""
    topic = decode_text(record.topic())
    keys = [record.property(UNIQUE_KEY), *(record.property(KEYS) or "").split(KEY_SEPARATOR)]
    tags = record.property(TAGS)
    return [index_hash(topic, key) for key in keys if key], (
        None if tags is None else index_hash(topic, tags_key(tags))
    )
