"""The timer's journal: which messages of the due slot were delivered, so that none of them is
delivered twice after a kill.

`config/timer.journal`, big-endian; a record's checksum is the CRC-32 of its bytes before it:

    "ORBTIME1"                                                        once, at the start
    1  time (8)  queue offset (8)                          crc (4)    slots before that time are
        done, for messages before that offset
    2  log end (8)  count (4)  log offsets (8 each)        crc (4)    these messages were delivered;
        their copies end there in the log
    3  begin, end, queue offset, log offset (8 each)       crc (4)    slots of [begin, end) are
        done, for messages before those offsets
    4  log begin (8)  count (4)  log offsets (8 each)      crc (4)    copies of these messages are
        about to be written there

3 is written when the wall clock was set back (`clock_back`), 4 before each batch: after a kill the
commit log shows which of its copies exist. Earlier versions of this broker stop reading at a 3 or a
4 and continue at the check point or at the last 1 before it.

A start continues where the last valid record says, unless the check point is newer (Apache RocketMQ
ran in this folder). The log ends reveal what a power cut lost: from the first one that the log does
not reach any more, nothing counts. Nothing is synced. Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.broker.delay.timer.place import Intent, Past, Place
from orbitmq.store.file_layer import FileLayer

_MAGIC: Final = b"ORBTIME1"
_SLOT, _DELIVERED, _PAST, _INTENT = 1, 2, 3, 4
_SLOT_RECORD: Final = Struct(">Bqq")
_PAST_RECORD: Final = Struct(">Bqqqq")
_LIST_HEAD: Final = Struct(">BqI")  # of delivered messages, and of those about to be
_OFFSET_SIZE: Final = 8
_CHECKSUM: Final = Struct(">I")
_SIZE_MAX: Final = 1 << 20  # then it starts over with the next slot

log = logging.getLogger(__name__)


class Replay(NamedTuple):
    """The last valid place, and the batch that may have been written after it."""

    place: Place
    intent: Intent | None


class TimerJournal:
    """Journals the timer's deliveries from `start` to `close`."""

    def __init__(self, path: Path, layer: FileLayer) -> None:
        self._path = path
        self._layer = layer
        self._descriptor = -1
        self._length = 0
        self._pending = b""  # records that the disk did not accept yet
        self._unstarted: Place | None = None  # where the journal begins once there is room for it
        self._place = Place(0, 0)  # without the deliveries since `start`

    def replay(self, log_end: int) -> Replay | None:
        """Return the content, given the end of the recovered log; None if the journal is empty or
        unusable.
        """
        data = self._content()
        if self._descriptor >= 0:
            data = data[: self._length] + self._pending
        place: Place | None = None
        intent: Intent | None = None
        if not data.startswith(_MAGIC):
            return None
        at = len(_MAGIC)
        while (end := _record_end(data, at)) > 0:
            if data[at] == _SLOT:
                _, time_ms, queue_offset = _SLOT_RECORD.unpack_from(data, at)
                place, intent = (place or Place(0, 0)).at_slot(time_ms, queue_offset), None
            elif place is None:
                break
            elif data[at] == _PAST:
                past = Past._make(_PAST_RECORD.unpack_from(data, at)[1:])
                place = place._replace(pasts=(*place.pasts, past))
            else:
                _, log_offset, count = _LIST_HEAD.unpack_from(data, at)
                offsets = Struct(f">{count}q").unpack_from(data, at + _LIST_HEAD.size)
                if data[at] == _INTENT:
                    intent = Intent(log_offset, offsets)
                elif log_offset > log_end:
                    log.warning(
                        "timer_journal_unsafe copies_end=%d log_end=%d: those copies are delivered"
                        " again",
                        log_offset,
                        log_end,
                    )
                    break
                else:
                    place = place._replace(delivered=place.delivered.union(offsets))
                    if intent is not None and place.delivered.issuperset(intent.log_offsets):
                        intent = None
            at = end + _CHECKSUM.size
        return None if place is None else Replay(place, intent)

    def start_later(self, place: Place) -> None:
        """Begin a journal at that place as soon as a full disk has room for it; until then the
        previous one is equivalent.
        """
        self._unstarted = self._place = place

    def start(self, place: Place) -> None:
        """Begin a journal at that place. Raises OSError if it cannot be written."""
        self._layer.make_folder(self._path.parent)
        temporary = self._path.with_name(self._path.name + ".tmp")
        with suppress(FileNotFoundError):
            self._layer.unlink(temporary)
        data = _MAGIC + _slot_record(place.read_time_ms, place.queue_offset)
        if place.delivered:
            data += _list_record(_DELIVERED, 0, sorted(place.delivered))
        data += b"".join(_past_record(past) for past in place.pasts)
        descriptor = self._layer.open(temporary, create=True)
        try:
            self._layer.pwrite(descriptor, data, 0)
            self._layer.rename(temporary, self._path)
        except OSError:
            self._layer.close(descriptor)
            raise
        self.close()
        self._descriptor, self._length, self._pending, self._unstarted = (
            descriptor,
            len(data),
            b"",
            None,
        )
        self._place = place

    def slot(self, read_time_ms: int, queue_offset: int) -> None:
        """Record that slots before that time are done, for messages before that offset."""
        self._place = self._place.at_slot(read_time_ms, queue_offset)
        if self._length > _SIZE_MAX:
            with suppress(OSError):  # the old one continues
                self.start(self._place)
                return
        self._append(_slot_record(read_time_ms, queue_offset))

    def went_back(self, pasts: Sequence[Past], read_time_ms: int, queue_offset: int) -> None:
        """Record that the clock was set back: these pasts are done, and the timer continues at that
        time.
        """
        self._place = self._place._replace(pasts=(*self._place.pasts, *pasts)).at_slot(
            read_time_ms, queue_offset
        )
        self._append(
            b"".join(_past_record(past) for past in pasts)
            + _slot_record(read_time_ms, queue_offset)
        )

    def intends(self, log_begin: int, log_offsets: Sequence[int]) -> None:
        """Record that copies of these messages are about to be written at `log_begin`."""
        self._append(_list_record(_INTENT, log_begin, log_offsets))

    def delivered(self, log_end: int, log_offsets: Sequence[int]) -> None:
        """Record that these messages of the slot were delivered; their copies end at `log_end`."""
        self._append(_list_record(_DELIVERED, log_end, log_offsets))

    def close(self) -> None:
        if self._descriptor >= 0:
            self._layer.close(self._descriptor)
            self._descriptor = -1

    def _append(self, record: bytes) -> None:
        """Write a record, after those that the disk did not accept before; an OSError is logged
        once, and the write is retried with the next record.
        """
        is_first = not self._pending
        self._pending += record
        try:
            if self._unstarted is not None:
                pending, place = self._pending, self._place
                self.start(self._unstarted)
                self._pending, self._place = pending, place
            self._layer.pwrite(self._descriptor, self._pending, self._length)
        except OSError as error:
            if is_first:
                log.error(
                    "timer_journal_failed file=%s reason=%r: messages delivered now would be"
                    " delivered again after a kill",
                    self._path,
                    error,
                )
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


def _past_record(past: Past) -> bytes:
    return _sealed(_PAST_RECORD.pack(_PAST, *past))


def _list_record(kind: int, log_offset: int, log_offsets: Sequence[int]) -> bytes:
    return _sealed(
        _LIST_HEAD.pack(kind, log_offset, len(log_offsets))
        + Struct(f">{len(log_offsets)}q").pack(*log_offsets)
    )


def _sealed(record: bytes) -> bytes:
    return record + _CHECKSUM.pack(zlib.crc32(record))


def _record_end(data: bytes, at: int) -> int:
    """Return where the checksum of the record at `at` begins; 0 if there is no complete record."""
    kind = data[at] if at < len(data) else 0
    if kind == _SLOT:
        end = at + _SLOT_RECORD.size
    elif kind == _PAST:
        end = at + _PAST_RECORD.size
    elif kind in (_DELIVERED, _INTENT) and at + _LIST_HEAD.size <= len(data):
        end = at + _LIST_HEAD.size + _OFFSET_SIZE * _LIST_HEAD.unpack_from(data, at)[2]
    else:
        return 0
    if end + _CHECKSUM.size > len(data) or _CHECKSUM.unpack_from(data, end)[0] != zlib.crc32(
        memoryview(data)[at:end]
    ):
        return 0
    return end
