"""The journal beside consumerOffset.json: every offset committed since that file was saved, so that
a kill loses none.

Byte table, big-endian; a record's checksum is the CRC-32 of its bytes before it:

    "ORBOFFS1"                                            once, at the start
    1  base digest (16)                   crc (4)         the JSON that the records may continue;
        comes first, and before each save
    2  id (4)  length (2)  key (length)   crc (4)         from here on the id stands for the key
        `topic@group`
    3  id (4)  queue (4)  offset (8)      crc (4)         the offset of a queue is set
    4  id (4)                             crc (4)         all queues of a key are dropped

The digest of the JSON's bytes identifies which JSON the journal continues. Reading applies all
records on top of any JSON that a base names: a record only says what an offset was set to, so
records that the JSON already contains change nothing. A JSON that no base names was written by
another broker with more recent offsets (an Apache broker ran in this directory): then the journal
is not used.

Crash rule. A save has four steps; a kill after each of them leaves:

    1  a snapshot is taken; changes go on             old JSON, journal: complete
    2  the digest of the new JSON is written as base  old JSON, journal of both: complete
    3  the new JSON is in place                       new JSON, journal of both: complete
    4  a new journal replaces the old one:            new JSON, journal with the changes since the
       base = new JSON, changes since step 1          snapshot: complete

A truncated record, and everything after it, is not read. Nothing is synced: a kill loses nothing
that was flushed; a power cut loses what the JSON does not contain yet. Thread rule: the loop thread
owns it.
"""

from __future__ import annotations

import errno
import logging
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final

from orbitmq.common.errors import StoreError
from orbitmq.store.file_layer import FileLayer

_MAGIC: Final = b"ORBOFFS1"
_BASE, _KEY, _PUT, _DROP = range(1, 5)
_REWRITTEN_MAX: Final = 10_000  # changes that a new journal begins with
_LENGTH_MAX: Final = 64 * 1024 * 1024  # of a journal that continues even so
_BASE_RECORD: Final = Struct(">B16s")
_KEY_RECORD: Final = Struct(">BIH")
_PUT_RECORD: Final = Struct(">BIiq")
_DROP_RECORD: Final = Struct(">BI")
_LAYOUTS: Final = {_BASE: _BASE_RECORD, _KEY: _KEY_RECORD, _PUT: _PUT_RECORD, _DROP: _DROP_RECORD}
_CHECKSUM: Final = Struct(">I")

log = logging.getLogger(__name__)


class OffsetChanges:
    """Offsets that were set and keys that were dropped; a later change of an offset replaces the
    earlier one.

    `(key, queue) -> offset`, and `(key, None)` for a key that was dropped before what follows it.
    """

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: dict[tuple[str, int | None], int] = {}

    def drop(self, *keys: str) -> None:
        """Note that keys were dropped, in one pass over all changes, however many keys there
        are.
        """
        dropped = frozenset(keys)
        for item in [item for item in self.items if item[0] in dropped]:
            del self.items[item]
        self.items.update({(key, None): 0 for key in keys})

    def add(self, later: OffsetChanges) -> None:
        self.drop(*[key for key, queue_id in later.items if queue_id is None])
        self.items.update(
            {item: offset for item, offset in later.items.items() if item[1] is not None}
        )


class OffsetJournal:
    """Appends committed offsets to the journal file."""

    def __init__(self, path: Path, files: FileLayer) -> None:
        self._path = path
        self._files = files
        self._descriptor = -1
        self._length = 0
        self._ids: dict[str, int] = {}
        self._pending = OffsetChanges()  # not written yet
        self._since_snapshot: OffsetChanges | None = (
            None  # written since the snapshot, while a save is under way
        )
        self._fails = False
        self._unstarted: tuple[bytes, OffsetChanges] | None = (
            None  # the first changes of a new journal, once there is room for it
        )

    def replay(self, json_digest: bytes) -> OffsetChanges:
        """Return the changes that continue the JSON with that digest; none if the journal continues
        another one.
        """
        data = self._content()
        bases, changes, whole = _read(data)
        if whole < len(data):
            log.warning(
                "offset_journal_torn file=%s bytes=%d used=%d", self._path, len(data), whole
            )
        if not changes.items or json_digest in bases:
            return changes
        log.warning(
            "offset_journal_stale file=%s changes=%d: consumerOffset.json was written by another"
            " broker since; its offsets are used",
            self._path,
            len(changes.items),
        )
        return OffsetChanges()

    def start(self, json_digest: bytes, changes: OffsetChanges) -> None:
        """Begin a journal that continues the JSON with that digest and contains these changes.
        Raises StoreError if it cannot be written.

        On a full disk the journal of the last run, which is equivalent, stays, and the new one
        begins with the first flush that succeeds.
        """
        try:
            self._files.make_folder(self._path.parent)
            self._replace(json_digest, changes)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                log.warning(
                    "offset_journal_not_begun file=%s reason=%r, it is retried",
                    self._path,
                    error,
                )
                self._unstarted = json_digest, changes
                return
            raise StoreError(
                f"the journal of offsets {self._path} cannot be written: {error}; free or repair"
                " its disk, then restart"
            ) from error

    def put(self, key: str, queue_id: int, offset: int) -> None:
        """Note that the offset of a queue was set; `flush` writes it."""
        self._pending.items[key, queue_id] = offset

    def put_all(self, key: str, offsets: Mapping[int, int]) -> None:
        """Note that the offsets of many queues were set; `flush` writes them."""
        self._pending.items.update(
            {(key, queue_id): offset for queue_id, offset in offsets.items()}
        )

    def drop(self, *keys: str) -> None:
        """Note that all queues of keys were dropped; `flush` writes it."""
        self._pending.drop(*keys)

    def flush(self) -> bool:
        """Write the noted changes. Returns False if that failed; then the next call retries."""
        if not self._pending.items:
            return True
        try:
            self._append()
        except OSError as error:
            if not self._fails:
                log.error(
                    "offset_journal_failed file=%s reason=%r: commits of the last seconds would not"
                    " survive a kill",
                    self._path,
                    error,
                )
            self._fails = True
            return False
        if self._fails:
            log.info("offset_journal_writes_again file=%s", self._path)
        self._fails = False
        return True

    def snapshot_taken(self) -> None:
        """Keep the changes from now on for the journal that follows the next save."""
        self._since_snapshot = OffsetChanges()

    def before_write(self, content_digest: bytes) -> None:
        """Continue also the JSON with that digest, which is about to be written."""
        self._append(_sealed(_BASE_RECORD.pack(_BASE, content_digest)))

    def after_write(self, content_digest: bytes) -> None:
        """Start over: the JSON with that digest contains everything except the changes since its
        snapshot.

        If there are so many changes that writing them takes long, the old journal stays, which
        names that JSON too; the next save starts over, unless it is large by then.
        """
        assert self._since_snapshot is not None
        changes, self._since_snapshot = self._since_snapshot, None
        if len(changes.items) > _REWRITTEN_MAX and self._length < _LENGTH_MAX:
            return
        try:
            self._replace(content_digest, changes)
        except OSError as error:  # the old one names that JSON too, so nothing is lost
            log.warning(
                "offset_journal_goes_on file=%s bytes=%d reason=%r", self._path, self._length, error
            )

    def close(self) -> None:
        self.flush()
        if self._descriptor >= 0:
            self._files.close(self._descriptor)
            self._descriptor = -1

    def _append(self, record: bytes = b"") -> None:
        """Write the pending changes and the record; the next write overwrites the rest of a failed
        one.
        """
        if self._unstarted is not None:
            self._replace(*self._unstarted)
            self._unstarted = None
        data, new_ids = _encoded(self._pending, self._ids)
        self._files.pwrite(self._descriptor, data + record, self._length)
        self._length += len(data) + len(record)
        self._ids.update(new_ids)
        if self._since_snapshot is not None:
            self._since_snapshot.add(self._pending)
        self._pending = OffsetChanges()

    def _replace(self, base: bytes, changes: OffsetChanges) -> None:
        temporary = self._path.with_name(self._path.name + ".tmp")
        with suppress(FileNotFoundError):
            self._files.unlink(temporary)
        data, ids = _encoded(changes, {})
        data = _MAGIC + _sealed(_BASE_RECORD.pack(_BASE, base)) + data
        descriptor = self._files.open(temporary, create=True)
        try:
            self._files.pwrite(descriptor, data, 0)
            self._files.rename(temporary, self._path)
        except OSError:
            self._files.close(descriptor)
            raise
        if self._descriptor >= 0:
            self._files.close(self._descriptor)
        self._descriptor, self._length, self._ids = descriptor, len(data), ids

    def _content(self) -> bytes:
        try:
            descriptor = self._files.open(self._path)
        except FileNotFoundError:
            return b""
        try:
            return self._files.pread(descriptor, self._files.size(self._path), 0)
        finally:
            self._files.close(descriptor)


def _sealed(record: bytes) -> bytes:
    return record + _CHECKSUM.pack(zlib.crc32(record))


def _encoded(changes: OffsetChanges, ids: dict[str, int]) -> tuple[bytes, dict[str, int]]:
    """Return the records of the changes, and the ids that they give to new keys."""
    records: list[bytes] = []
    new_ids: dict[str, int] = {}
    for (key, queue_id), offset in changes.items.items():
        number = ids.get(key) or new_ids.get(key)
        if number is None:
            number = new_ids[key] = len(ids) + len(new_ids) + 1
            name = key.encode("utf-8", "surrogatepass")
            records.append(_sealed(_KEY_RECORD.pack(_KEY, number, len(name)) + name))
        if queue_id is None:
            records.append(_sealed(_DROP_RECORD.pack(_DROP, number)))
        else:
            records.append(_sealed(_PUT_RECORD.pack(_PUT, number, queue_id, offset)))
    return b"".join(records), new_ids


def _read(data: bytes) -> tuple[set[bytes], OffsetChanges, int]:
    """Return the bases and changes of all valid records, and where the first invalid one starts."""
    bases: set[bytes] = set()
    changes = OffsetChanges()
    keys: dict[int, str] = {}
    if not data.startswith(_MAGIC):
        return bases, changes, 0
    at = len(_MAGIC)
    while (end := _record_end(data, at)) > 0:
        kind, number, *values = _LAYOUTS[data[at]].unpack_from(data, at)
        if kind == _BASE:
            bases.add(number)
        elif kind == _KEY:
            keys[number] = data[at + _KEY_RECORD.size : end].decode("utf-8", "surrogatepass")
        elif number not in keys:
            break
        elif kind == _PUT:
            changes.items[keys[number], values[0]] = values[1]
        else:
            changes.drop(keys[number])
        at = end + _CHECKSUM.size
    return bases, changes, at


def _record_end(data: bytes, at: int) -> int:
    """Return where the checksum of the record at `at` begins; 0 if there is no complete record."""
    layout = _LAYOUTS.get(data[at]) if at < len(data) else None
    if layout is None or at + layout.size > len(data):
        return 0
    end = at + layout.size
    if layout is _KEY_RECORD:
        end += int(_KEY_RECORD.unpack_from(data, at)[2])
    if end + _CHECKSUM.size > len(data) or _CHECKSUM.unpack_from(data, end)[0] != zlib.crc32(
        memoryview(data)[at:end]
    ):
        return 0
    return end
