"""The journal of the timer: which messages of the slot that is due were delivered, so that a kill delivers none of them twice.

`config/timer.journal`, big-endian; a record's checksum is the CRC-32 of its bytes before it:

    "ORBTIME1"                                                     once, at the start
    1  time (8)  queue offset (8)                       crc (4)    slots before that time are done, of messages before that offset
    2  log end (8)  count (4)  log offsets (8 each)     crc (4)    these messages were delivered; their copies end there in the log

A start goes on where the last whole record says, unless the check point knows more (the original ran in this folder). What a power cut took
is told by the log ends: from the first that the log does not reach any more, nothing counts. Nothing is synced.
Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.store.file_layer import FileLayer

_MAGIC: Final = b"ORBTIME1"
_SLOT, _DELIVERED = 1, 2
_SLOT_RECORD: Final = Struct(">Bqq")
_DELIVERED_HEAD: Final = Struct(">BqI")
_OFFSET_SIZE: Final = 8
_CHECKSUM: Final = Struct(">I")
_SIZE_MAX: Final = 1 << 20  # then it begins anew with the next slot

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Where the timer is: slots before `read_time_ms` are done, of messages before `queue_offset`; of that slot, `delivered` are."""

    read_time_ms: int
    queue_offset: int
    delivered: frozenset[int] = frozenset()  # by log offset


class TimerJournal:
    """From `start` to `close`."""

    def __init__(self, path: Path, layer: FileLayer) -> None:
        self._path = path
        self._layer = layer
        self._descriptor = -1
        self._length = 0
        self._pending = b""  # what the disk did not take yet

    def replay(self, log_end: int) -> Place | None:
        """The last place that counts, given where the recovered log ends; None when the journal says nothing."""
        data = self._content()
        place: Place | None = None
        if not data.startswith(_MAGIC):
            return None
        at = len(_MAGIC)
        while (end := _record_end(data, at)) > 0:
            if data[at] == _SLOT:
                _, time_ms, queue_offset = _SLOT_RECORD.unpack_from(data, at)
                place = Place(time_ms, queue_offset)
            else:
                _, copies_end, count = _DELIVERED_HEAD.unpack_from(data, at)
                if copies_end > log_end or place is None:
                    log.warning("timer_journal_unsafe copies_end=%d log_end=%d: those copies are delivered again", copies_end, log_end)
                    break
                offsets = Struct(f">{count}q").unpack_from(data, at + _DELIVERED_HEAD.size)
                place = place._replace(delivered=place.delivered.union(offsets))
            at = end + _CHECKSUM.size
        return place

    def start(self, place: Place) -> None:
        """Begin a journal with that place; OSError when the disk takes none."""
        self._layer.make_folder(self._path.parent)
        temporary = self._path.with_name(self._path.name + ".tmp")
        with suppress(FileNotFoundError):
            self._layer.unlink(temporary)
        data = _MAGIC + _slot_record(place.read_time_ms, place.queue_offset)
        if place.delivered:
            data += _delivered_record(0, sorted(place.delivered))
        descriptor = self._layer.open(temporary, create=True)
        try:
            self._layer.pwrite(descriptor, data, 0)
            self._layer.rename(temporary, self._path)
        except OSError:
            self._layer.close(descriptor)
            raise
        self.close()
        self._descriptor, self._length, self._pending = descriptor, len(data), b""

    def slot(self, read_time_ms: int, queue_offset: int) -> None:
        """Slots before that time are done, of messages before that offset."""
        if self._length > _SIZE_MAX:
            with suppress(OSError):  # then the old one goes on
                self.start(Place(read_time_ms, queue_offset))
                return
        self._append(_slot_record(read_time_ms, queue_offset))

    def delivered(self, log_end: int, log_offsets: Sequence[int]) -> None:
        """These messages of the slot were delivered; their copies end at `log_end`."""
        self._append(_delivered_record(log_end, log_offsets))

    def close(self) -> None:
        if self._descriptor >= 0:
            self._layer.close(self._descriptor)
            self._descriptor = -1

    def _append(self, record: bytes) -> None:
        """Write a record behind those that the disk did not take before; an OSError is told once, and tried again with the next record."""
        self._pending += record
        try:
            self._layer.pwrite(self._descriptor, self._pending, self._length)
        except OSError as error:
            if len(self._pending) == len(record):
                log.error("timer_journal_failed file=%s reason=%r: what is delivered now would come twice after a kill", self._path, error)
            return
        self._length += len(self._pending)
        self._pending = b""

    def _content(self) -> bytes:
        try:
            descriptor = self._layer.open(self._path)
        except FileNotFoundError:
            return b""
        try:
            return self._layer.pread(descriptor, self._layer.size(self._path), 0)
        finally:
            self._layer.close(descriptor)


def _slot_record(time_ms: int, queue_offset: int) -> bytes:
    return _sealed(_SLOT_RECORD.pack(_SLOT, time_ms, queue_offset))


def _delivered_record(log_end: int, log_offsets: Sequence[int]) -> bytes:
    return _sealed(_DELIVERED_HEAD.pack(_DELIVERED, log_end, len(log_offsets)) + Struct(f">{len(log_offsets)}q").pack(*log_offsets))


def _sealed(record: bytes) -> bytes:
    return record + _CHECKSUM.pack(zlib.crc32(record))


def _record_end(data: bytes, at: int) -> int:
    """Where the checksum of the record at `at` stands; 0 when no whole record is there."""
    if at >= len(data):
        return 0
    if data[at] == _SLOT:
        end = at + _SLOT_RECORD.size
    elif data[at] == _DELIVERED and at + _DELIVERED_HEAD.size <= len(data):
        end = at + _DELIVERED_HEAD.size + _OFFSET_SIZE * _DELIVERED_HEAD.unpack_from(data, at)[2]
    else:
        return 0
    if end + _CHECKSUM.size > len(data) or _CHECKSUM.unpack_from(data, end)[0] != zlib.crc32(memoryview(data)[at:end]):
        return 0
    return end
