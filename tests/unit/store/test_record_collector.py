"""The gathering kernel by itself: any bytes as entries and as log are read without an error, and
what is given is whole.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.message import hosts
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord, encode
from orbitmq.store import batch_consume_queue, consume_queue
from orbitmq.store.entry_scan import FILLER_SIZE
from orbitmq.store.record_collector import RecordCollector

V4, V6 = hosts.pack("192.0.2.1", 10911), hosts.pack("2001:db8::1", 10911)
FILE_SIZE = 4096


class File(NamedTuple):
    """A file of a log, as far as the kernel knows files."""

    start: int
    content: bytes

    def view(self) -> memoryview:
        return memoryview(self.content)


def make_gather(
    files: list[File], *, check_body: bool = True, bytes_max: int = 1 << 20
) -> RecordCollector:
    def find(offset: int) -> File | None:
        return next((file for file in files if file.start <= offset < file.start + FILE_SIZE), None)

    return RecordCollector(
        find,
        file_size=FILE_SIZE,
        hot_distance=1 << 40,
        hot_bytes_max=bytes_max,
        hot_count_max=1000,
        cold_bytes_max=bytes_max,
        cold_count_max=1000,
        check_body=check_body,
        check_record=False,
    )


def begin(
    gather: RecordCollector,
    *,
    entry_size: int = 20,
    offset: int = 0,
    codes: frozenset[int] | None = None,
    log_end: int = 1 << 40,
) -> None:
    gather.begin(entry_size, offset, 1000, 1 << 20, 1 << 20, log_end, codes, None, None)


def a_log(
    bodies: list[bytes], start: int = 0, born_host: bytes = V4, store_host: bytes = V4
) -> tuple[File, bytes, list[bytes]]:
    """A file, the entries of its records, and the records."""
    content, entries, at = bytearray(FILE_SIZE), b"", 0
    records = []
    for number, body in enumerate(bodies):
        message = MessageRecord(b"Topic", body, born_host=born_host, born_time_ms=1)
        size = encode(message, content, at, number, start + at, 1, store_host)
        entries += consume_queue.ENTRY.pack(start + at, size, number)
        records.append(bytes(content[at : at + size]))
        at += size
    return File(start, bytes(content)), entries, records


@pytest.mark.parametrize("born_host", [V4, V6])
@pytest.mark.parametrize("store_host", [V4, V6])
def test_records_are_copied_one_behind_the_other_whatever_their_hosts(
    born_host: bytes, store_host: bytes
) -> None:
    file, entries, records = a_log([b"", b"1", bytes(300)], FILE_SIZE, born_host, store_host)
    gather = make_gather([file])
    begin(gather, offset=70)
    assert gather.more(entries, 70)
    assert (gather.next_offset, gather.record_count, gather.message_count, gather.bad) == (
        73,
        3,
        3,
        [],
    )
    assert gather.last_log_offset == FILE_SIZE + len(records[0]) + len(records[1])
    assert gather.end() == b"".join(records)


def test_entries_may_come_in_several_parts_and_every_read_has_a_buffer_of_its_own() -> None:
    file, entries, records = a_log([b"%d" % number for number in range(8)])
    gather = make_gather([file])
    given_before = []
    for codes in (None, frozenset(range(8))):
        begin(gather, codes=codes)
        assert gather.more(entries[:60], 0)
        assert gather.more(entries[60:160], 3)
        given_before.append(gather.end())
    assert given_before == [b"".join(records)] * 2


def test_part_of_an_entry_at_the_end_is_none() -> None:
    file, entries, records = a_log([b"0", b"1"])
    gather = make_gather([file])
    begin(gather)
    assert gather.more(entries[:39], 0)
    assert gather.end() == records[0]
    assert gather.next_offset == 1


@pytest.mark.parametrize("size", [1, -1])
def test_a_record_beyond_the_end_of_the_log_is_no_good(size: int) -> None:
    file, entries, records = a_log([b"0", b"1"])
    gather = make_gather([file])
    begin(gather, log_end=len(records[0]) + size)
    gather.more(entries, 0)
    assert gather.bad == (
        [(len(records[0]), len(records[1]))]
        if size > 0
        else [(0, len(records[0])), (len(records[0]), len(records[1]))]
    )


def test_after_a_file_that_is_gone_its_other_entries_are_passed_over_until_one_is_found() -> None:
    first, first_entries, _ = a_log([b"0", b"1"])
    second, second_entries, records = a_log([b"2"], FILE_SIZE)
    gather = make_gather([second])
    begin(gather)
    assert gather.more(first_entries + second_entries, 0)
    assert gather.end() == records[0]
    assert (gather.next_offset, gather.bad) == (3, [])
    gather = make_gather([first, second])
    begin(gather)
    gather.more(first_entries + second_entries, 0)
    assert gather.record_count == 3


@pytest.mark.parametrize("at", range(91))
def test_every_byte_that_is_looked_at_counts(at: int) -> None:
    """Any one byte of a record changed: it is given as it is, or it is no good, and its neighbour
    is not touched.
    """
    file, entries, records = a_log([b"012", b"3"])
    changed = bytearray(file.content)
    changed[at] ^= 0xFF
    gather = make_gather([File(0, bytes(changed))])
    begin(gather)
    gather.more(entries, 0)
    looked_at = {
        *range(12),
        *range(28, 36),
        39,
        *range(84, 91),
    }  # size, magic, checksum, log offset, host bits, length and body
    assert gather.record_count == (1 if at in looked_at else 2)
    assert gather.end().endswith(records[1])


entry = st.builds(
    consume_queue.ENTRY.pack,
    st.integers(-1, 3 * FILE_SIZE) | st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 300) | st.just(FILLER_SIZE) | st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(-3, 3) | st.integers(-(1 << 63), (1 << 63) - 1),
)
batch_entry = st.builds(
    lambda start, base, places: (
        start + batch_consume_queue.ENTRY.pack(0, 0, 0, 0, base, places, -1, 0)[20:]
    ),
    entry,
    st.integers(-5, 50) | st.integers(-(1 << 40), 1 << 40),
    st.integers(-(1 << 15), (1 << 15) - 1),
)


@given(
    st.lists(entry, max_size=40) | st.lists(batch_entry, max_size=40),
    st.booleans(),
    st.none() | st.frozensets(st.integers(-3, 3)),
    st.data(),
)
@example([consume_queue.ENTRY.pack(FILE_SIZE - 10, 91, 0)], True, None, None)
def test_whatever_the_entries_are_only_whole_records_are_given(
    entries: list[bytes], check_body: bool, codes: frozenset[int] | None, data: st.DataObject | None
) -> None:
    file, real, _ = a_log([bytes(20)] * 10)
    real_entries = [real[at : at + 20] for at in range(0, len(real), 20)]
    if data is not None:
        for place in data.draw(st.lists(st.integers(0, len(entries)), max_size=5)):
            with_real = data.draw(st.sampled_from(real_entries))
            entries.insert(place, with_real + (entries[0][20:] if entries else b""))
    gather = make_gather([file, File(FILE_SIZE, bytes(FILE_SIZE))], check_body=check_body)
    entry_size = len(entries[0]) if entries else 20
    begin(gather, entry_size=entry_size, codes=codes)
    gather.more(b"".join(entries), 0)
    records, cursor, at, count = gather.end(), RecordCursor(), 0, 0
    while at < len(records):
        at += cursor.read(records, at, len(records))
        assert file.content[cursor.log_offset : cursor.log_offset + cursor.size] == bytes(
            records[cursor.at : cursor.at + cursor.size]
        )
        count += 1
    assert count == gather.record_count
