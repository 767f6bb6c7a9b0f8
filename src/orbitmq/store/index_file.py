"""An index file: finds records of the log by the hash of a key; the newest first, in
chains.

Big-endian. `slots` and `entries` are configured (5,000,000 and 20,000,000: 420,000,040 bytes, of
which only what is written takes space).

| at | size | |
|---|---|---|
| 0 | 8 | store time of the first entry's record; while there is none, of the end of the file before |
| 8 | 8 | store time of the last |
| 16 | 8 | log offset of the first; or of the end of the file before |
| 24 | 8 | log offset of the last |
| 32 | 4 | slots in use |
| 36 | 4 | number of the next entry; the first is 1 |
| 40 | 4·slots | number of the newest entry of each chain; 0: none |
| 40 + 4·slots + 20·k | 20 | entry k: `4 hash | 8 log offset | 4 seconds since the first | 4 number of the entry before it in its chain` |

hash = |hashCode(topic#key)|, slot = hash mod slots. The file is full at `entries` - 1 of them. Only
hashes are compared: the caller must check the records found.

Crash rule: `commit` writes entries, then the header; slots stay in memory until the file is full or
the store stops, and are rebuilt from the entries after a crash (`rebuild`). Arbitrary bytes read as
fewer hits: numbers must decrease along a chain.

Entries only grow at their end, so their checksum is updated with each write; that of the slots is
computed when they are written. Both are the file's `state`, by which the next start proves the file
(`index`).
"""  # noqa: E501

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from orbitmq.common.crc import crc32
from orbitmq.common.errors import StoreError, WriteFailedError
from orbitmq.common.slices import SliceBudget, Slices
from orbitmq.message.tags import index_hash
from orbitmq.store import mapped_file
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.index_writer import ENTRY_SIZE, SLOT_SIZE, SLOTS_PAGE, IndexWriter
from orbitmq.store.types import LogOffset, StoreTimeMs

_HEADER = Struct(">qqqqii")
_ENTRY = Struct(">iqii")
_REPLAY_SIZE = 50_000 * ENTRY_SIZE
_SLOTS_PAGE_SIZE = SLOTS_PAGE * SLOT_SIZE
_CHUNK = 1 << 20
_ENTRIES_PER_SLICE = 4_000  # of a chain
_NO_ENTRIES = crc32(bytes(ENTRY_SIZE))  # the checksum of entry 0, which is never used
LOG_END_UNKNOWN = LogOffset((1 << 63) - 1)


class IndexShape(NamedTuple):
    """The number of slots and entries of a file."""

    slots: int = 5_000_000
    entries: int = 20_000_000

    @property
    def entries_at(self) -> int:
        return _HEADER.size + SLOT_SIZE * self.slots

    @property
    def file_size(self) -> int:
        return self.entries_at + ENTRY_SIZE * self.entries


class IndexHeader(NamedTuple):
    """The first 40 bytes."""

    begin_time_ms: StoreTimeMs
    end_time_ms: StoreTimeMs
    begin_offset: LogOffset
    end_offset: LogOffset
    slots_used: int
    entry_count: int


class IndexFileState(NamedTuple):
    """What proves a file at the next start: its header as written, and the CRC-32 of the entries
    that the header counts.

    The checksum of the slots is None while they are in memory: then they follow from the entries.
    """

    name: str
    header: IndexHeader
    entries_checksum: int
    slots_checksum: int | None


class IndexFile:
    """One file; while it is written to it has a `writer`, whose numbers count instead of those in
    the file.
    """

    def __init__(
        self, layer: FileLayer, path: Path, shape: IndexShape, descriptor: int, header: IndexHeader
    ) -> None:
        self.path = path
        self.descriptor = descriptor
        self._layer = layer
        self._shape = shape
        self._header = header  # as last written
        # of the written entries; of an opened file, once it was computed
        self._entries_checksum = _NO_ENTRIES
        self._slots_checksum: int | None = None
        self._is_count_possible = True  # in the header as opened
        self.writer: IndexWriter | None = None
        self.is_closed = False
        self.is_synced = True  # whether nothing was written since its last sync began

    @classmethod
    def create(
        cls, layer: FileLayer, path: Path, shape: IndexShape, after: IndexHeader | None
    ) -> IndexFile:
        """Create the file that follows one with that header, ready to be written to."""
        mapped_file.create(layer, path, 0, shape.file_size)
        try:
            descriptor = layer.open(path)
        except OSError:
            layer.unlink(path)
            raise
        time_ms, offset = (
            (StoreTimeMs(0), LogOffset(0))
            if after is None
            else (after.end_time_ms, after.end_offset)
        )
        file = cls(
            layer, path, shape, descriptor, IndexHeader(time_ms, time_ms, offset, offset, 0, 1)
        )
        file.writer = IndexWriter(shape.slots, shape.entries, time_ms, offset)
        return file

    @classmethod
    def open(cls, layer: FileLayer, path: Path, shape: IndexShape) -> IndexFile:
        """Open a file for queries; StoreError if its size differs from the configured one."""
        size = layer.size(path)
        if size != shape.file_size:
            raise StoreError(
                f"index file {path} has {size} bytes, {shape.slots} slots and {shape.entries}"
                f" entries take {shape.file_size}: set maxHashSlotNum and maxIndexNum as they were"
                " when the store was made, or remove the file"
            )
        descriptor = layer.open(path)
        header = IndexHeader._make(_HEADER.unpack(layer.pread(descriptor, _HEADER.size, 0)))
        count = max(header.entry_count, 1)  # 0 before the first write
        file = cls(
            layer, path, shape, descriptor, header._replace(entry_count=min(count, shape.entries))
        )
        file._is_count_possible = count <= shape.entries
        return file

    @property
    def header(self) -> IndexHeader:
        """The header, as it will be once all is written."""
        writer = self.writer
        if writer is None:
            return self._header
        return IndexHeader(
            StoreTimeMs(writer.begin_time_ms),
            StoreTimeMs(writer.end_time_ms),
            LogOffset(writer.begin_offset),
            LogOffset(writer.end_offset),
            writer.slots_used,
            writer.entry_count,
        )

    @property
    def is_full(self) -> bool:
        return self.header.entry_count >= self._shape.entries

    @property
    def state(self) -> IndexFileState:
        """What was written to the file, for the next start to prove."""
        slots_checksum = self._slots_checksum if self.writer is None else None
        return IndexFileState(self.path.name, self._header, self._entries_checksum, slots_checksum)

    def has_entries(self, state: IndexFileState) -> bool:
        """Whether the entries are those of `state`, regardless of header and slots; others may
        follow them.
        """
        begin = self._shape.entries_at
        count = min(max(state.header.entry_count, 1), self._shape.entries)
        self._entries_checksum = self._checksum(begin, begin + ENTRY_SIZE * count)
        return self._entries_checksum == state.entries_checksum

    def has_slots(self, state: IndexFileState) -> bool:
        """Whether header and slots are those of `state`."""
        if (
            self._header != state.header
            or not self._is_count_possible
            or state.slots_checksum is None
        ):
            return False
        self._slots_checksum = self._checksum(_HEADER.size, self._shape.entries_at)
        return self._slots_checksum == state.slots_checksum

    def is_consistent(self) -> bool:
        """Whether header and slots follow from the entries: all that can be checked without a
        manifest.

        If so, `state` is known.
        """
        header, shape = self._header, self._shape
        writer = IndexWriter(shape.slots, shape.entries, header.begin_time_ms, header.begin_offset)
        self._entries_checksum = self._replay(writer, header.entry_count, LOG_END_UNKNOWN)
        if (writer.entry_count, writer.slots_used, writer.end_offset) != (
            header.entry_count,
            header.slots_used,
            header.end_offset,
        ):
            return False
        if not self._is_count_possible or (
            writer.entry_count > 1 and _ENTRY.unpack(self._entry(1))[1] != header.begin_offset
        ):
            return False
        self._slots_checksum = self._checksum(_HEADER.size, shape.entries_at)
        return self._slots_checksum == crc32(writer.slots)

    def entry(self, number: int) -> tuple[int, LogOffset]:
        """Return hash and log offset of an entry."""
        key_hash, log_offset, _, _ = _ENTRY.unpack(self._entry(number))
        return key_hash, log_offset

    def resume(self) -> None:
        """Continue writing to a file that was closed properly."""
        header, shape = self._header, self._shape
        writer = IndexWriter(shape.slots, shape.entries, header.begin_time_ms, header.begin_offset)
        writer.resume(
            self._layer.pread(self.descriptor, SLOT_SIZE * shape.slots, _HEADER.size),
            header.slots_used,
            header.entry_count,
        )
        writer.end_at(header.end_time_ms, header.end_offset)
        self.writer = writer

    def rebuild(self, header: IndexHeader, log_end: int = LOG_END_UNKNOWN) -> None:
        """Keep the entries that `header` counts and whose records are below `log_end`; rebuild
        everything else from them.

        Slots and header stay in memory, as while a file is written to: so a full disk does not
        prevent it.
        """
        shape = self._shape
        writer = IndexWriter(shape.slots, shape.entries, header.begin_time_ms, header.begin_offset)
        self._entries_checksum = self._replay(writer, header.entry_count, log_end)
        if writer.entry_count == header.entry_count:
            writer.end_at(header.end_time_ms, header.end_offset)  # exact, not to the second
        # Holes, for a full disk has no room for zeros.
        self._layer.clear(self.descriptor, _HEADER.size, SLOT_SIZE * shape.slots)
        for page in range(len(writer.touched)):
            begin = page * _SLOTS_PAGE_SIZE
            writer.touched[page] = any(writer.slots[begin : begin + _SLOTS_PAGE_SIZE])
        self.writer, self.is_synced = writer, False
        self._header = self.header
        self.clear_after_end()

    def clear_after_end(self) -> None:
        """Clear what follows the last entry."""
        end = self._shape.entries_at + ENTRY_SIZE * self._header.entry_count
        self._layer.clear(self.descriptor, end, self._shape.file_size - end)

    def commit(self) -> None:
        """Write the put entries, and the header; WriteFailedError keeps them for the next
        attempt.
        """
        writer = self.writer
        if writer is None or not writer.pending:
            return
        at = self._shape.entries_at + ENTRY_SIZE * (writer.entry_count - writer.pending)
        with (
            memoryview(writer.entries) as entries,
            entries[: ENTRY_SIZE * writer.pending] as pending,
        ):
            self._write(pending, at)
            self._write_header()
            self._entries_checksum = crc32(pending, self._entries_checksum)
        writer.wrote()

    def flush(self) -> None:
        """Write everything that is only in memory; the caller syncs."""
        self.commit()
        writer = self.writer
        if writer is None:
            return
        pages, touched = len(writer.touched), writer.touched
        begin = touched.find(1)
        with memoryview(writer.slots) as slots:
            while begin >= 0:
                end = touched.find(0, begin)
                end = pages if end < 0 else end
                self._write(
                    slots[begin * _SLOTS_PAGE_SIZE : end * _SLOTS_PAGE_SIZE],
                    _HEADER.size + begin * _SLOTS_PAGE_SIZE,
                )
                touched[begin:end] = bytes(end - begin)
                begin = touched.find(1, end)
        self._write_header()

    def seal(self) -> None:
        """Write everything, and accept no more entries; the caller syncs."""
        self.flush()
        if self.writer is not None:
            self._slots_checksum, self.writer = crc32(self.writer.slots), None

    def matches_time(self, begin_ms: int, end_ms: int) -> bool:
        """Whether any entry may be of a record stored in that time."""
        first, last = self.header.begin_time_ms, self.header.end_time_ms
        return (
            (begin_ms < first and end_ms > last)
            or first <= begin_ms <= last
            or first <= end_ms <= last
        )

    def query(
        self,
        topic: str,
        key: str,
        limit: int,
        begin_ms: int,
        end_ms: int,
        found: dict[LogOffset, None],
    ) -> Slices[None]:
        """Add to `found`, up to `limit` in all, the log offsets that the key has between those
        times, the newest first. In slices: a chain may have millions of entries.

        The file may be closed between two slices; then the rest is not found.
        """
        header, key_hash = self.header, index_hash(topic, key)
        number = self._newest(key_hash % self._shape.slots)
        before = header.entry_count
        budget = SliceBudget(_ENTRIES_PER_SLICE)
        while 0 < number < before and len(found) < limit:
            if budget.spend(1):
                yield
                if self.is_closed:
                    return
            entry_hash, log_offset, seconds, previous = _ENTRY.unpack(self._entry(number))
            if seconds < 0:
                return
            time_ms = header.begin_time_ms + seconds * 1000
            if entry_hash == key_hash and begin_ms <= time_ms <= end_ms:
                found[log_offset] = None
            if time_ms < begin_ms:
                return
            before, number = number, previous

    def entries_at(self, log_offset: int) -> int:
        """Return how many of the last entries are of the record at that log offset."""
        last = number = self.header.entry_count - 1
        while number > 0 and _ENTRY.unpack(self._entry(number))[1] == log_offset:
            number -= 1
        return last - number

    def close(self) -> None:
        """Close the descriptor; unwritten entries are lost."""
        self.is_closed = True
        self._layer.close(self.descriptor)

    def _newest(self, slot: int) -> int:
        if self.writer is not None:
            return int.from_bytes(
                self.writer.slots[SLOT_SIZE * slot : SLOT_SIZE * (slot + 1)], "big", signed=True
            )
        return int.from_bytes(
            self._layer.pread(self.descriptor, SLOT_SIZE, _HEADER.size + SLOT_SIZE * slot),
            "big",
            signed=True,
        )

    def _entry(self, number: int) -> bytes:
        writer = self.writer
        if writer is not None and (at := number - writer.entry_count + writer.pending) >= 0:
            return bytes(writer.entries[ENTRY_SIZE * at : ENTRY_SIZE * (at + 1)])
        return self._layer.pread(
            self.descriptor, ENTRY_SIZE, self._shape.entries_at + ENTRY_SIZE * number
        )

    def _replay(self, writer: IndexWriter, entry_count: int, log_end: int) -> int:
        """Replay entries up to that number into the writer, as far as they are valid and their
        records below `log_end`; return their checksum.
        """
        shape, checksum = self._shape, crc32(self._entry(0))
        while (count := min(entry_count, shape.entries) - writer.entry_count) > 0:
            at = shape.entries_at + ENTRY_SIZE * writer.entry_count
            chunk = self._layer.pread(self.descriptor, min(_REPLAY_SIZE, ENTRY_SIZE * count), at)
            taken = writer.replay(chunk, log_end) * ENTRY_SIZE
            checksum = crc32(chunk[:taken], checksum)
            if taken < len(chunk) or not chunk:
                break
        return checksum

    def _checksum(self, begin: int, end: int) -> int:
        """Return the CRC-32 of the file's bytes [begin, end)."""
        checksum = 0
        while begin < end and (
            chunk := self._layer.pread(self.descriptor, min(_CHUNK, end - begin), begin)
        ):
            checksum, begin = crc32(chunk, checksum), begin + len(chunk)
        return checksum

    def _write_header(self) -> None:
        header = self.header
        self._write(_HEADER.pack(*header), 0)
        self._header = header

    def _write(self, data: bytes | memoryview, at: int) -> None:
        self.is_synced = False
        try:
            self._layer.pwrite(self.descriptor, data, at)
        except OSError as error:
            raise WriteFailedError(
                f"index file {self.path}: {len(data)} bytes at {at} could not be written: {error};"
                " they are kept for the next attempt"
            ) from error
