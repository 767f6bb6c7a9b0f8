# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: an index file being written: all of its hash slots in memory, and the entries that are
not in the file yet.

Only fills buffers; `index_file` has the byte tables and does the writing. Invariant: a slot holds
the number of the newest entry of its chain, every entry that of the one before it, so numbers
decrease along a chain. Everything here follows from the entries: `replay` rebuilds slots and counts
from them, and stops at the first that contradicts the chains.
"""

from mmap import mmap

import cython

from orbitmq.common.mem import Buffer
from orbitmq.message.properties import KEYS, TAGS, UNIQUE_KEY, decode_text
from orbitmq.message.tags import index_hash

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import (
        address,
        find,
        is_ascii,
        put32,
        put64,
        same,
        signed32,
        signed64,
        text_bytes,
    )
    from cython.cimports.orbitmq.message.record_read import RecordCursor
    from cython.cimports.orbitmq.message.tags import ascii_hash
else:
    from orbitmq.common.mem import (
        address,
        find,
        is_ascii,
        put32,
        put64,
        same,
        signed32,
        signed64,
        text_bytes,
    )
    from orbitmq.message.record_read import RecordCursor
    from orbitmq.message.tags import ascii_hash

ENTRY_SIZE = 20
SLOT_SIZE = 4
SLOTS_PAGE = 1024  # slots written together
PENDING_MAX = 4096  # pending entries
TAGS_PREFIX = "T#"  # of the key made of tags
ALL_PUT = -1
_PENDING_MAX = cython.declare(cython.int, PENDING_MAX)
_SLOTS_PAGE = cython.declare(cython.int, SLOTS_PAGE)
_ALL_PUT = cython.declare(cython.int, ALL_PUT)
_INT_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_SEPARATOR = cython.declare(bytes, b"#")  # between topic and key
_TAGS_PREFIX = cython.declare(bytes, TAGS_PREFIX.encode())
_MASK = cython.declare(cython.uint, 0xFFFFFFFF)  # larger int literals are slow Python objects
_SIGN = cython.declare(cython.uint, 0x80000000)
_KEYS = cython.declare(bytes, f"{KEYS}\x01".encode())
_TAGS = cython.declare(bytes, f"{TAGS}\x01".encode())
_UNIQUE_KEY = cython.declare(bytes, f"{UNIQUE_KEY}\x01".encode())


class IndexWriter:
    """Entries are numbered from 1; `entry_count` is the number of the next. `entries` holds the
    last `pending` ones.
    """

    def __init__(
        self,
        slot_count: cython.int,
        entry_max: cython.int,
        begin_time_ms: cython.longlong,
        begin_offset: cython.longlong,
    ) -> None:
        if slot_count < 1 or entry_max < 2:
            raise ValueError(
                f"{slot_count} slots and {entry_max} entries: an index file needs one and two at"
                " least, entry 0 is never used"
            )
        self.slot_count = slot_count
        self.entry_max = entry_max
        self.entry_count = 1
        self.slots_used = 0
        self.pending = 0
        self.begin_time_ms = self.end_time_ms = begin_time_ms
        self.begin_offset = self.end_offset = begin_offset
        self.slots = mmap(-1, slot_count * SLOT_SIZE)  # zeros that take no memory until touched
        # Which pages of slots differ from the file's.
        self.touched = bytearray((slot_count + SLOTS_PAGE - 1) // SLOTS_PAGE)
        self.entries = bytearray(PENDING_MAX * ENTRY_SIZE)
        self._slots = address(self.slots)
        self._touched = address(self.touched)
        self._entries = address(self.entries)

    def put(self, record: RecordCursor, done: cython.int = 0) -> int:
        """Add an entry for each key of the record: its unique key, its keys, each hash once, its
        tags.

        Returns ALL_PUT, or how many are in (including the `done` ones): then the file is full, or
        the pending entries must be written, and `wrote` called, before the same record is put
        again.
        """
        if not record.whole or record.at + record.size > len(record.buffer):
            raise ValueError("the cursor is not on a complete record: `read` one first")
        return put_keys(self, record, address(record.buffer), done)

    def wrote(self) -> None:
        """Note that the pending entries are in the file."""
        self.pending = 0

    def replay(self, entries: Buffer, log_end: cython.longlong) -> int:
        """Replay entries of the file, from number `entry_count` on; return how many are valid and
        of records below `log_end`.

        The end time follows from the last of them, to the second.
        """
        p: cython.p_const_uchar = address(entries)
        count: cython.Py_ssize_t = len(entries) // ENTRY_SIZE
        number: cython.Py_ssize_t
        at: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        key_hash: cython.int
        log_offset: cython.longlong
        seconds: cython.longlong
        for number in range(count):
            at = number * 20
            key_hash = signed32(p, at)
            log_offset = signed64(p, at + 4)
            seconds = signed32(p, at + 12)
            if (
                key_hash < 0
                or seconds < 0
                or log_offset < self.end_offset
                or log_offset >= log_end
                or self.entry_count >= self.entry_max
            ):
                return number
            slot = key_hash % self.slot_count
            if signed32(p, at + 16) != signed32(self._slots, slot * 4):
                return number
            _chain(self, key_hash)
            self.entry_count += 1
            self.end_offset = log_offset
            if self.entry_count > 2:
                self.end_time_ms = self.begin_time_ms + seconds * 1000
        return count

    def resume(self, slots: Buffer, slots_used: cython.int, entry_count: cython.int) -> None:
        """Continue with the slots and counts of a file."""
        self.slots[:] = slots
        self.slots_used = slots_used
        self.entry_count = entry_count

    def end_at(self, end_time_ms: cython.longlong, end_offset: cython.longlong) -> None:
        """Set time and offset of the last entry, from the file's header."""
        self.end_time_ms = end_time_ms
        self.end_offset = end_offset


@cython.cfunc
def put_keys(
    writer: IndexWriter, record: RecordCursor, p: cython.p_const_uchar, done: cython.int
) -> cython.int:
    """Do what `put` does, for kernels that scan records of the buffer at `p`."""
    at: cython.Py_ssize_t = record.properties_at
    end: cython.Py_ssize_t = at + record.properties_size
    unique_at: cython.Py_ssize_t = 0
    unique_end: cython.Py_ssize_t = 0
    keys_at: cython.Py_ssize_t = 0
    keys_end: cython.Py_ssize_t = 0
    tags_at: cython.Py_ssize_t = 0
    tags_end: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t
    while at < end:  # the last property of a name counts; one without a value does not
        stop = find(p, at, end, 2)
        if stop - at > 5 and same(p, at, _KEYS, 5):
            keys_at = at + 5
            keys_end = stop
        elif stop - at > 5 and same(p, at, _TAGS, 5):
            tags_at = at + 5
            tags_end = stop
        elif stop - at > 9 and same(p, at, _UNIQUE_KEY, 9):
            unique_at = at + 9
            unique_end = stop
        at = stop + 1
    prefix: cython.longlong = _topic_hash(p, record.topic_at, record.topic_size)
    number: cython.int = 0
    if unique_end:
        if number >= done and not _add(
            writer, record, _key_hash(record, p, prefix, unique_at, unique_end, False)
        ):
            return number
        number += 1
    seen: set[int] | None = None  # hashes of its keys, once there are two
    first: cython.int = -1
    key_hash: cython.int
    while keys_at < keys_end:
        stop = find(p, keys_at, keys_end, 32)
        if stop > keys_at:
            key_hash = _key_hash(record, p, prefix, keys_at, stop, False)
            if first < 0:
                first = key_hash
            else:
                if seen is None:
                    seen = {first}
                if key_hash in seen:  # a second entry would find nothing new
                    keys_at = stop + 1
                    continue
                seen.add(key_hash)
            if number >= done and not _add(writer, record, key_hash):
                return number
            number += 1
        keys_at = stop + 1
    if (
        tags_end
        and number >= done
        and not _add(writer, record, _key_hash(record, p, prefix, tags_at, tags_end, True))
    ):
        return number
    return _ALL_PUT


@cython.cfunc
@cython.inline
def _chain(writer: IndexWriter, key_hash: cython.int) -> cython.int:
    """Make the next entry the newest of its chain; return the number of the previous one."""
    slot: cython.Py_ssize_t = key_hash % writer.slot_count
    before: cython.int = signed32(writer._slots, slot * 4)
    if before <= 0 or before >= writer.entry_count:
        before = 0
        writer.slots_used += 1
    put32(writer._slots, slot * 4, writer.entry_count)
    writer._touched[slot // _SLOTS_PAGE] = 1
    return before


@cython.cfunc
def _add(writer: IndexWriter, record: RecordCursor, key_hash: cython.int) -> cython.bint:
    """Add one entry; return False if the file is full, or too many entries are pending."""
    if writer.entry_count >= writer.entry_max or writer.pending >= _PENDING_MAX:
        return False
    time_ms: cython.longlong = record.store_time_ms
    if time_ms < 0:  # corrupt, and would apply to all others in the file
        time_ms = writer.end_time_ms
    seconds: cython.longlong = 0
    if writer.begin_time_ms > 0 and time_ms > writer.begin_time_ms:
        seconds = (time_ms - writer.begin_time_ms) // 1000
        if seconds > _INT_MAX:
            seconds = _INT_MAX
    at: cython.Py_ssize_t = writer.pending * 20
    put32(writer._entries, at, key_hash)
    put64(writer._entries, at + 4, record.log_offset)
    put32(writer._entries, at + 12, seconds)
    put32(writer._entries, at + 16, _chain(writer, key_hash))
    writer.pending += 1
    if writer.entry_count == 1:
        writer.begin_offset = record.log_offset
    if writer.entry_count == 1 or writer.begin_time_ms <= 0:
        writer.begin_time_ms = time_ms
    writer.entry_count += 1
    writer.end_offset = record.log_offset
    writer.end_time_ms = time_ms
    return True


@cython.cfunc
@cython.inline
def _topic_hash(
    p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.longlong:
    """Return Java's hash of `topic#`; -1 for a topic that is not ASCII."""
    return (
        ascii_hash(ascii_hash(0, p, at, at + size), _SEPARATOR, 0, 1)
        if is_ascii(p, at, at + size)
        else -1
    )


@cython.cfunc
@cython.inline
def _key_hash(
    record: RecordCursor,
    p: cython.p_const_uchar,
    prefix: cython.longlong,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    is_tags: cython.bint,
) -> cython.int:
    """Return `index_hash` of the key p[at:end]; an ASCII key is not decoded."""
    if prefix < 0 or not is_ascii(p, at, end):
        key: str = decode_text(text_bytes(p, at, end - at))
        return index_hash(decode_text(record.topic()), TAGS_PREFIX + key if is_tags else key)
    h: cython.uint = prefix
    if is_tags:
        h = ascii_hash(h, _TAGS_PREFIX, 0, 2)
    h = ascii_hash(h, p, at, end)
    if h & _SIGN:
        h = (_MASK - h + 1) & ~_SIGN  # the one number without an opposite counts as 0
    return h
