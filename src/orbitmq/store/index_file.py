"""An index file: which records of the log have a key, by the key's hash; the newest first, in chains.

Big-endian. `slots` and `entries` are configured (5,000,000 and 20,000,000: 420,000,040 bytes, of which only what is written takes space).

| at | size | |
|---|---|---|
| 0 | 8 | store time of the first entry's record; of the end of the file before, while there is none |
| 8 | 8 | store time of the last |
| 16 | 8 | log offset of the first; or of the end of the file before |
| 24 | 8 | log offset of the last |
| 32 | 4 | slots in use |
| 36 | 4 | number of the next entry; the first is 1 |
| 40 | 4·slots | number of the newest entry of each chain; 0: none |
| 40 + 4·slots + 20·k | 20 | entry k: `4 hash | 8 log offset | 4 seconds since the first | 4 number of the entry before it in its chain` |

hash = |hashCode(topic#key)|, slot = hash mod slots. The file is full at `entries` - 1 of them. Only hashes are compared: who asks must
look at the records found.

Crash rule: `commit` writes entries, then the header; slots stay in memory until the file is full or the store stops, and are made again
from the entries after a crash (`rebuild`). Any bytes read as fewer hits: numbers must fall along a chain.

Entries only grow at their end, so a running checksum of them is kept as they are written; that of the slots is taken when they are. Both
are the file's `state`, by which the next start proves the file (`index`).
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from orbitmq.common.crc import crc32
from orbitmq.common.errors import StoreError, WriteFailed
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
_NO_ENTRIES = crc32(bytes(ENTRY_SIZE))  # the checksum of entry 0, which is never used
LOG_END_UNKNOWN = LogOffset((1 << 63) - 1)


class IndexShape(NamedTuple):
    """How many slots and entries a file has."""

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
    """What proves a file at the next start: its header as it was written, and the CRC-32 of the entries that the header counts.

    That of the slots is None while they are in memory: then they follow from the entries.
    """

    name: str
    header: IndexHeader
    entries_checksum: int
    slots_checksum: int | None


class IndexFile:
    """One file; while it is written to it has a `writer`, whose numbers count instead of those in the file."""

    def __init__(self, layer: FileLayer, path: Path, shape: IndexShape, descriptor: int, header: IndexHeader) -> None:
        self.path = path
        self.descriptor = descriptor
        self._layer = layer
        self._shape = shape
        self._header = header  # as it was written last
        self._entries_checksum = _NO_ENTRIES  # of the entries that were written; of a file that was opened, once it was looked at
        self._slots_checksum: int | None = None
        self._is_count_possible = True  # in the header of the file as it was opened
        self.writer: IndexWriter | None = None
        self.is_synced = True  # whether nothing was written since its last sync began

    @classmethod
    def create(cls, layer: FileLayer, path: Path, shape: IndexShape, after: IndexHeader | None) -> IndexFile:
        """Make the file that follows one with that header, ready to be written to."""
        mapped_file.create(layer, path, 0, shape.file_size)
        try:
            descriptor = layer.open(path)
        except OSError:
            layer.unlink(path)
            raise
        time_ms, offset = (StoreTimeMs(0), LogOffset(0)) if after is None else (after.end_time_ms, after.end_offset)
        file = cls(layer, path, shape, descriptor, IndexHeader(time_ms, time_ms, offset, offset, 0, 1))
        file.writer = IndexWriter(shape.slots, shape.entries, time_ms, offset)
        return file

    @classmethod
    def open(cls, layer: FileLayer, path: Path, shape: IndexShape) -> IndexFile:
        """Open a file for queries; StoreError when it has another size than configured."""
        size = layer.size(path)
        if size != shape.file_size:
            raise StoreError(
                f"index file {path} has {size} bytes, {shape.slots} slots and {shape.entries} entries take {shape.file_size}: "
                "set maxHashSlotNum and maxIndexNum as they were when the store was made, or remove the file"
            )
        descriptor = layer.open(path)
        header = IndexHeader._make(_HEADER.unpack(layer.pread(descriptor, _HEADER.size, 0)))
        count = max(header.entry_count, 1)  # 0, before the first is written
        file = cls(layer, path, shape, descriptor, header._replace(entry_count=min(count, shape.entries)))
        file._is_count_possible = count <= shape.entries
        return file

    @property
    def header(self) -> IndexHeader:
        """The header as it is, or will be when all is written."""
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
        """What was written to the file, so that the next start can prove that it is still there."""
        slots_checksum = self._slots_checksum if self.writer is None else None
        return IndexFileState(self.path.name, self._header, self._entries_checksum, slots_checksum)

    def has_entries(self, state: IndexFileState) -> bool:
        """Whether the entries are those of `state`, whatever header and slots are; others may stand behind them."""
        begin = self._shape.entries_at
        count = min(max(state.header.entry_count, 1), self._shape.entries)
        self._entries_checksum = self._checksum(begin, begin + ENTRY_SIZE * count)
        return self._entries_checksum == state.entries_checksum

    def has_slots(self, state: IndexFileState) -> bool:
        """Whether header and slots are those of `state`."""
        if self._header != state.header or not self._is_count_possible or state.slots_checksum is None:
            return False
        self._slots_checksum = self._checksum(_HEADER.size, self._shape.entries_at)
        return self._slots_checksum == state.slots_checksum

    def is_borne_out(self) -> bool:
        """Whether header and slots follow from the entries: what can be told of a file for which nobody vouches.

        If so, the file can say its `state`.
        """
        header, shape = self._header, self._shape
        writer = IndexWriter(shape.slots, shape.entries, header.begin_time_ms, header.begin_offset)
        self._entries_checksum = self._replay(writer, header.entry_count, LOG_END_UNKNOWN)
        if (writer.entry_count, writer.slots_used, writer.end_offset) != (header.entry_count, header.slots_used, header.end_offset):
            return False
        if not self._is_count_possible or (writer.entry_count > 1 and _ENTRY.unpack(self._entry(1))[1] != header.begin_offset):
            return False
        self._slots_checksum = self._checksum(_HEADER.size, shape.entries_at)
        return self._slots_checksum == crc32(writer.slots)

    def entry(self, number: int) -> tuple[int, LogOffset]:
        """Hash and log offset of an entry."""
        key_hash, log_offset, _, _ = _ENTRY.unpack(self._entry(number))
        return key_hash, log_offset

    def resume(self) -> None:
        """Go on writing to a file that was closed properly."""
        header, shape = self._header, self._shape
        writer = IndexWriter(shape.slots, shape.entries, header.begin_time_ms, header.begin_offset)
        writer.resume(self._layer.pread(self.descriptor, SLOT_SIZE * shape.slots, _HEADER.size), header.slots_used, header.entry_count)
        writer.end_at(header.end_time_ms, header.end_offset)
        self.writer = writer

    def rebuild(self, header: IndexHeader, log_end: int = LOG_END_UNKNOWN) -> None:
        """Keep the entries that `header` counts and that are of records below `log_end`; everything else in the file follows from them.

        Slots and header stay in memory, as they do while a file is written to: so a full disk does not keep it from being made anew.
        """
        shape = self._shape
        writer = IndexWriter(shape.slots, shape.entries, header.begin_time_ms, header.begin_offset)
        self._entries_checksum = self._replay(writer, header.entry_count, log_end)
        if writer.entry_count == header.entry_count:
            writer.end_at(header.end_time_ms, header.end_offset)  # nothing is lost, not even the parts of a second
        self._layer.clear(self.descriptor, _HEADER.size, SLOT_SIZE * shape.slots)  # a full disk has no room for zeros
        for page in range(len(writer.touched)):
            begin = page * _SLOTS_PAGE_SIZE
            writer.touched[page] = any(writer.slots[begin : begin + _SLOTS_PAGE_SIZE])
        self.writer, self.is_synced = writer, False
        self._header = self.header
        self.clear_behind()

    def clear_behind(self) -> None:
        """Make zeros of what stands behind the last entry."""
        end = self._shape.entries_at + ENTRY_SIZE * self._header.entry_count
        self._layer.clear(self.descriptor, end, self._shape.file_size - end)

    def commit(self) -> None:
        """Write the entries that were put, and the header; WriteFailed keeps them, to be tried again."""
        writer = self.writer
        if writer is None or not writer.pending:
            return
        at = self._shape.entries_at + ENTRY_SIZE * (writer.entry_count - writer.pending)
        with memoryview(writer.entries) as entries, entries[: ENTRY_SIZE * writer.pending] as pending:
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
                self._write(slots[begin * _SLOTS_PAGE_SIZE : end * _SLOTS_PAGE_SIZE], _HEADER.size + begin * _SLOTS_PAGE_SIZE)
                touched[begin:end] = bytes(end - begin)
                begin = touched.find(1, end)
        self._write_header()

    def seal(self) -> None:
        """Write everything, and take no more entries; the caller syncs."""
        self.flush()
        if self.writer is not None:
            self._slots_checksum, self.writer = crc32(self.writer.slots), None

    def matches_time(self, begin_ms: int, end_ms: int) -> bool:
        """Whether any entry may be of a record stored in that time."""
        first, last = self.header.begin_time_ms, self.header.end_time_ms
        return (begin_ms < first and end_ms > last) or first <= begin_ms <= last or first <= end_ms <= last

    def query(self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int, found: list[LogOffset]) -> None:
        """Add to `found`, up to `limit` in all, the log offsets that the key has between those times, the newest first."""
        header, key_hash = self.header, index_hash(topic, key)
        number = self._newest(key_hash % self._shape.slots)
        before = header.entry_count
        while 0 < number < before and len(found) < limit:
            entry_hash, log_offset, seconds, previous = _ENTRY.unpack(self._entry(number))
            if seconds < 0:
                return
            time_ms = header.begin_time_ms + seconds * 1000
            if entry_hash == key_hash and begin_ms <= time_ms <= end_ms and log_offset not in found:
                found.append(log_offset)
            if time_ms < begin_ms:
                return
            before, number = number, previous

    def entries_at(self, log_offset: int) -> int:
        """How many of the last entries are of the record at that log offset."""
        last = number = self.header.entry_count - 1
        while number > 0 and _ENTRY.unpack(self._entry(number))[1] == log_offset:
            number -= 1
        return last - number

    def close(self) -> None:
        """Close the descriptor; what was not written is lost."""
        self._layer.close(self.descriptor)

    def _newest(self, slot: int) -> int:
        if self.writer is not None:
            return int.from_bytes(self.writer.slots[SLOT_SIZE * slot : SLOT_SIZE * (slot + 1)], "big", signed=True)
        return int.from_bytes(self._layer.pread(self.descriptor, SLOT_SIZE, _HEADER.size + SLOT_SIZE * slot), "big", signed=True)

    def _entry(self, number: int) -> bytes:
        writer = self.writer
        if writer is not None and (at := number - writer.entry_count + writer.pending) >= 0:
            return bytes(writer.entries[ENTRY_SIZE * at : ENTRY_SIZE * (at + 1)])
        return self._layer.pread(self.descriptor, ENTRY_SIZE, self._shape.entries_at + ENTRY_SIZE * number)

    def _replay(self, writer: IndexWriter, entry_count: int, log_end: int) -> int:
        """Let the writer take over entries up to that number, as far as they are sound and of records below `log_end`; their checksum."""
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
        """The CRC-32 of the file's bytes [begin, end)."""
        checksum = 0
        while begin < end and (chunk := self._layer.pread(self.descriptor, min(_CHUNK, end - begin), begin)):
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
            raise WriteFailed(
                f"index file {self.path}: {len(data)} bytes at {at} could not be written: {error}; they are kept for the next try"
            ) from error
