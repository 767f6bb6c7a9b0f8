# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: copies the records that queue entries point to into one buffer, contiguously; no object
per record.

`begin` sets the request, `more` processes entries, as often as needed, and `end` returns the
records; the fields hold the rest of the result. Knows files only by a lookup by log offset, `start`
and `view()`; nothing of queues, statuses or filters.

An entry is skipped if it is a filler, or a batch before the requested offset; if its record is no
longer in the log (then also all that follow it in that file); if the filter rejects it; if it does
not point to a valid record: one of its size that states the same log offset and, if checked, whose
body matches its checksum. Those are listed in `bad`. Whatever the bytes are, reads stay in bounds.

A filter may do a limited amount of work per read, `FILTER_WORK_MAX`, and one record at least: the
read ends there.

Not reentrant before `end`: a filter must not read through the collector that calls it.
"""

from collections.abc import Callable
from typing import Any

import cython

from orbitmq.common.mem import Buffer
from orbitmq.store import config, consume_queue_ext, entry_scan

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import (
        address,
        copy,
        get32,
        put32,
        signed16,
        signed32,
        signed64,
    )
    from cython.cimports.orbitmq.message.record_read import RecordCursor, move
else:
    from orbitmq.common.mem import address, copy, get32, put32, signed16, signed32, signed64
    from orbitmq.message.record_read import RecordCursor, move

_FILLER_SIZE = cython.declare(cython.Py_ssize_t, entry_scan.FILLER_SIZE)
_EXT_ADDRESS_MAX = cython.declare(cython.longlong, consume_queue_ext.ADDRESS_MAX)
_BATCH_ENTRY_SIZE = cython.declare(cython.Py_ssize_t, 46)
_CODES_COMPARED_MAX = cython.declare(cython.int, 16)  # compared one by one; more are looked up
_STEP_WORK = cython.declare(cython.longlong, config.FILTER_STEP_WORK)
_WORK_MAX = cython.declare(cython.longlong, config.FILTER_WORK_MAX)
_EVERY_CODE = cython.declare(cython.int, -1)
_SKIP_NOTHING = cython.declare(cython.longlong, -(1 << 62))


class RecordCollector:
    """One read at a time. `is_gone` tells whether the record of the last fruitless entry is
    missing, not rejected.
    """

    def __init__(
        self,
        find: Callable[[int], Any],  # the file of a log offset, or None
        *,
        file_size: int,
        hot_distance: int,
        hot_bytes_max: int,
        hot_count_max: int,
        cold_bytes_max: int,
        cold_count_max: int,
        check_body: bool,
        check_record: bool,
    ) -> None:
        self._find = find
        self._file_size = file_size
        self._hot_distance = hot_distance
        self._hot_bytes_max = hot_bytes_max
        self._hot_count_max = hot_count_max
        self._cold_bytes_max = cold_bytes_max
        self._cold_count_max = cold_count_max
        self._check_body = check_body
        self._check_record = check_record
        self._codes = bytearray()
        self._cursor = RecordCursor()
        self.begin(20, 0, 1, 0, 0, 0, None, None, None)

    def begin(
        self,
        entry_size: cython.Py_ssize_t,
        offset: cython.longlong,
        count_max: cython.int,
        bytes_max: cython.Py_ssize_t,
        scan_size_max: cython.longlong,
        log_end: cython.longlong,
        codes: frozenset[int] | None,
        wanted: Any,
        unit_of: Callable[[int], Any] | None,
    ) -> None:
        """Start a read at a queue offset: of entries of that size, at most `scan_size_max` bytes of
        them, of records below `log_end`.

        An entry matches if its tags code is one of `codes`, and then if `wanted` accepts the entry
        and the record; None accepts all. `unit_of` finds the unit of an ext address.
        """
        self._entry_size = entry_size
        self._asked = self.next_offset = offset
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._scan_size_max = scan_size_max
        self._log_end = log_end
        self._wanted = wanted
        self._passes_bare = wanted is not None and wanted.passes_bare_entries
        self._record_cost = 0 if wanted is None else wanted.record_cost
        self._work = 0
        self._unit_of = unit_of
        self._skip_below = _SKIP_NOTHING
        self._code_count = _EVERY_CODE
        self._used = 0
        self.records = bytearray()
        self.record_count = self.message_count = 0
        self.last_log_offset = self.last_store_time_ms = 0
        self.is_gone = False
        self.bad: list[tuple[int, int]] = []  # log offset and size
        self._code_set = None
        if codes is not None:
            self._code_count = len(codes)
            if len(codes) > _CODES_COMPARED_MAX:
                self._code_set = codes
                return
            self._codes = bytearray(4 * len(codes))
            at: cython.Py_ssize_t = 0
            for code in codes:
                put32(address(self._codes), at, code & 0xFFFFFFFF)
                at += 4

    def more(self, entries: Buffer, first: cython.longlong) -> bool:
        """Collect the records of these entries, the first of which has queue offset `first`; return
        whether there is room for more.
        """
        e: cython.p_const_uchar = address(entries)
        size_of_all: cython.Py_ssize_t = len(entries) // self._entry_size * self._entry_size
        at: cython.Py_ssize_t = 0
        log_offset: cython.longlong
        size: cython.Py_ssize_t
        base: cython.longlong
        places: cython.int = 1
        code: cython.longlong
        p: cython.p_const_uchar = e
        file_start: cython.longlong = 0
        file_end: cython.longlong = 0  # no file yet
        content: Any = None
        place: cython.Py_ssize_t
        target: cython.p_uchar = address(self.records)
        codes: cython.p_const_uchar = address(self._codes)
        cursor: RecordCursor = self._cursor  # it has a buffer only during a filter's call
        while at < size_of_all:
            log_offset = signed64(e, at)
            size = signed32(e, at + 8)
            code = signed64(e, at + 12)
            if self._entry_size == _BATCH_ENTRY_SIZE:
                base = signed64(e, at + 28)
                places = signed16(e, at + 36)
            else:
                base = first + at // self._entry_size
            at += self._entry_size
            if base + places <= self.next_offset or places < 1:  # a batch before a lost one
                continue
            if (base - self._asked) * self._entry_size >= self._scan_size_max:
                self.next_offset = base
                return False
            if size == _FILLER_SIZE:
                self.next_offset = base + places
                self.is_gone = True
                continue
            if self.record_count and _is_full(self, log_offset, size, places):
                return False
            self.next_offset = base + places
            self.last_log_offset = log_offset
            if log_offset < self._skip_below:
                continue
            if (self._code_count >= 0 or self._wanted is not None) and not _is_entry_wanted(
                self, codes, code
            ):
                self.is_gone = False
                continue
            if not file_start <= log_offset < file_end:
                file = self._find(log_offset)
                if file is None:
                    self.is_gone = True
                    self._skip_below = log_offset - log_offset % self._file_size + self._file_size
                    continue
                content = file.view()
                p = address(content)
                file_start = file.start
                file_end = file_start + len(content)
            place = log_offset - file_start
            if (
                size <= 0
                or size > min(file_end, self._log_end) - log_offset
                or move(cursor, p, place, place + size, self._check_body, self._check_record)
                != size
                or cursor.log_offset != log_offset
            ):
                self.bad.append((log_offset, size))
                self.is_gone = True
                continue
            if self._wanted is not None:
                if self._work >= _WORK_MAX:
                    self.next_offset = base
                    return False
                self._work += self._record_cost * (_STEP_WORK + cursor.properties_size)
                cursor.buffer = content
                if not self._wanted.matches_record(cursor):
                    self.is_gone = False
                    continue
            if self._used + size > len(self.records):
                _grow(self, _room(self, e, at, size_of_all, self._used + size))
                target = address(self.records)
            copy(target, self._used, p, place, size)
            self._used += size
            self._skip_below = _SKIP_NOTHING
            self.last_store_time_ms = cursor.store_time_ms
            self.record_count += 1
            self.message_count += places
            if self.message_count >= self._count_max or self.message_count >= max(
                self._hot_count_max, self._cold_count_max
            ):
                return False
        return True

    def end(self) -> bytearray:
        """Return the records, whose buffer belongs to the caller; counts and offsets stay until the
        next `begin`.
        """
        records = self.records
        del records[self._used :]
        self._wanted = self._unit_of = None
        self._cursor.buffer = b""  # unpin the file
        self.records = bytearray()
        return records


@cython.cfunc
@cython.inline
def _is_full(
    collector: RecordCollector,
    log_offset: cython.longlong,
    size: cython.Py_ssize_t,
    places: cython.int,
) -> cython.bint:
    """Whether an entry exceeds the count or bytes; limits are lower for records that must come from
    the disk.
    """
    used: cython.Py_ssize_t = collector._used + size
    if collector.message_count + places > collector._count_max or used > collector._bytes_max:
        return True
    if collector._log_end - log_offset <= collector._hot_distance:
        return (
            used > collector._hot_bytes_max or collector.message_count >= collector._hot_count_max
        )
    return used > collector._cold_bytes_max or collector.message_count >= collector._cold_count_max


@cython.cfunc
def _is_entry_wanted(
    collector: RecordCollector, codes: cython.p_const_uchar, code: cython.longlong
) -> cython.bint:
    """Whether an entry of that tags code, or with the ext unit at that address, passes the filter;
    a lost code passes.
    """
    unit: Any = None
    is_known: cython.bint = True
    if code <= _EXT_ADDRESS_MAX:
        if collector._unit_of is not None:
            unit = collector._unit_of(code)
        is_known = unit is not None
        if is_known:
            code = unit.tags_code
    if is_known and collector._code_count >= 0:
        if collector._code_set is not None:
            if (
                _signed32(code) not in collector._code_set
                and code & 0xFFFFFFFF not in collector._code_set
            ):
                return False
        elif not _has_code(codes, collector._code_count, code & 0xFFFFFFFF):
            return False
    if collector._wanted is None or (unit is None and collector._passes_bare):
        return True
    return collector._wanted.matches_entry(code if is_known else None, unit)


@cython.cfunc
@cython.inline
def _has_code(codes: cython.p_const_uchar, count: cython.int, code: cython.uint) -> cython.bint:
    """Whether one of the codes has these low 32 bits: Apache compares no more."""
    i: cython.Py_ssize_t = 0
    while i < count and get32(codes, 4 * i) != code:
        i += 1
    return i < count


@cython.cfunc
@cython.inline
def _signed32(code: cython.longlong) -> cython.longlong:
    """Return the low 32 bits as a signed number, like Java's hash."""
    code = code & 0xFFFFFFFF
    return code - 0x100000000 if code & 0x80000000 else code


@cython.cfunc
def _grow(collector: RecordCollector, size: cython.Py_ssize_t) -> None:
    """Grow the buffer to that size."""
    if collector._used:
        collector.records += bytes(size - len(collector.records))
    else:
        collector.records = bytearray(size)


@cython.cfunc
def _room(
    collector: RecordCollector,
    e: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    needed: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Return the buffer size for `needed` bytes and the records of the entries e[at:end]: without a
    filter, those that will fit.
    """
    if collector._code_count >= 0 or collector._wanted is not None:
        return max(needed, 2 * len(collector.records))
    limit: cython.Py_ssize_t = min(
        collector._bytes_max, max(collector._hot_bytes_max, collector._cold_bytes_max)
    )
    size: cython.Py_ssize_t
    while at < end:
        size = signed32(e, at + 8)
        if size != _FILLER_SIZE:
            if size <= 0 or needed + size > limit:
                break
            needed += size
        at += collector._entry_size
    return needed
