"""Bad bytes in the middle of a log: good records behind them are found, a tail is told from damage,
and doubt is told as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import encode, record_size
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.log_resync import LogResync
from orbitmq.store.log_scan import LogScan
from orbitmq.store.quarantine import Quarantine
from orbitmq.store.types import LogOffset
from support.store.logs import FILE_SIZE, NOW_MS, message, new_log

BODY = b"x" * 200
HOST = bytes(8)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    log = new_log(tmp_path)
    yield log
    log.close()


def filled(log: CommitLog, count: int) -> list[tuple[int, int]]:
    """Put `count` records, a millisecond apart; where each begins and ends."""
    places = [log.append(message(BODY), NOW_MS + number) for number in range(count)]
    log.commit()
    return [(place.offset, place.end) for place in places]


def damage(log: CommitLog, offset: int, data: bytes) -> None:
    file = log.files.find(offset)
    assert file is not None
    file.pwrite(offset - file.start, data)


def scanned(log: CommitLog) -> tuple[list[int], list[tuple[int, int]], LogScan]:
    """The offsets of the good records, the bad bytes, and the scan that found them."""
    quarantine = Quarantine()
    scan = log.scan(log.min_offset, quarantine=quarantine)
    return (
        [record.log_offset for record in scan],
        [(bad.offset, bad.end) for bad in quarantine],
        scan,
    )


@pytest.mark.parametrize(
    ("at", "data"),
    [
        pytest.param(0, b"\0\0\0\0", id="size gone"),
        pytest.param(0, b"\0\0\x10\0", id="size too large"),
        pytest.param(4, b"nope", id="magic"),
        pytest.param(28, bytes(8), id="own offset"),
        pytest.param(84, b"\0\xff\0\0", id="body longer than the record"),
        pytest.param(84, b"\0\0\0\0", id="body gone"),
        pytest.param(100, b"y", id="body"),
        pytest.param(0, bytes(91 + 200 + 5), id="everything"),
    ],
)
def test_one_bad_record_in_the_middle_costs_no_other(log: CommitLog, at: int, data: bytes) -> None:
    places = filled(log, 8)
    damage(log, places[3][0] + at, data)
    offsets, bad, scan = scanned(log)
    assert offsets == [begin for number, (begin, _) in enumerate(places) if number != 3]
    assert (bad, scan.problem, scan.offset) == ([places[3]], None, log.end_offset)


def test_bad_records_side_by_side_are_told_each_for_itself_where_their_frames_are_right(
    log: CommitLog,
) -> None:
    places = filled(log, 8)
    for number in (2, 3, 5):
        damage(log, places[number][0] + 100, b"y")
    offsets, bad, _ = scanned(log)
    assert (len(offsets), bad) == (5, [places[2], places[3], places[5]])


def test_the_rest_of_a_file_is_given_up_when_the_next_one_begins_well(log: CommitLog) -> None:
    places = filled(log, 30)
    last = max(number for number, (begin, _) in enumerate(places) if begin < FILE_SIZE)
    damage(log, places[last][0], b"garbage!")
    offsets, bad, scan = scanned(log)
    assert offsets == [begin for number, (begin, _) in enumerate(places) if number != last]
    assert (bad, scan.problem) == ([(places[last][0], FILE_SIZE)], None)


def test_a_bad_record_before_a_blank_is_stepped_over(log: CommitLog) -> None:
    places = filled(log, 30)
    last = max(number for number, (begin, _) in enumerate(places) if begin < FILE_SIZE)
    damage(log, places[last][0] + 100, b"y")
    offsets, bad, _ = scanned(log)
    assert (len(offsets), bad[0]) == (29, places[last])


def test_a_file_whose_beginning_is_bad_is_searched(log: CommitLog) -> None:
    places = filled(log, 30)
    first = next(number for number, (begin, _) in enumerate(places) if begin == FILE_SIZE)
    damage(log, places[first - 1][0], bytes(8))
    damage(log, FILE_SIZE, b"no record")
    offsets, bad, _ = scanned(log)
    assert offsets == [
        begin for number, (begin, _) in enumerate(places) if number not in (first - 1, first)
    ]
    assert bad == [(places[first - 1][0], FILE_SIZE), (FILE_SIZE, places[first][1])]


def test_a_bad_tail_is_the_end_however_long_it_is(log: CommitLog) -> None:
    places = filled(log, 30)
    for begin, _ in places[5:]:
        damage(log, begin + 100, b"y")
    offsets, bad, scan = scanned(log)
    assert (offsets, bad, scan.offset) == ([begin for begin, _ in places[:5]], [], places[5][0])
    assert scan.problem is not None
    assert scan.doubt is None


def test_what_is_older_than_the_record_before_it_is_what_an_earlier_use_left(
    log: CommitLog,
) -> None:
    places = filled(log, 6)
    damage(log, places[3][0] + 100, b"y")
    gap = LogResync(log.files).find_next(LogOffset(places[3][0]), NOW_MS + 1000)
    assert gap.next_offset is None


def inner_record(offset: int) -> bytes:
    """A whole record that says it is at that offset: what somebody might send as a body."""
    inner = message(b"forged")
    buffer = bytearray(record_size(inner, HOST, False))
    encode(inner, buffer, 0, 0, offset, NOW_MS + 500, HOST, False)
    return bytes(buffer)


def with_a_record_in_its_body(log: CommitLog) -> int:
    """Put a message whose body is a record that says it is where it is, between others; where the
    outer record begins.
    """
    filled(log, 2)
    outer = log.end_offset
    log.append(message(b"\1" * 20 + inner_record(outer + 88 + 20) + b"\1" * 20), NOW_MS + 2)
    log.commit()
    filled(log, 3)
    return outer


def test_a_record_inside_a_body_is_never_taken_for_the_next_one_while_the_outer_frame_is_right(
    log: CommitLog,
) -> None:
    outer = with_a_record_in_its_body(log)
    damage(log, outer + 88 + 3, b"\2")
    offsets, bad, _ = scanned(log)
    assert (len(offsets), bad[0][0]) == (5, outer)


def test_a_record_that_may_be_a_part_of_the_damaged_one_is_a_doubt_and_nothing_is_decided(
    log: CommitLog,
) -> None:
    outer = with_a_record_in_its_body(log)
    damage(log, outer + 28, b"\1")
    _, bad, scan = scanned(log)
    assert (bad, scan.offset) == ([], outer)
    assert scan.doubt == f"the record at {outer + 88 + 20} may be part of the corrupt one before it"


def test_a_damaged_store_time_does_not_make_what_follows_look_old(log: CommitLog) -> None:
    places = filled(log, 8)
    for number in (2, 3):
        damage(log, places[number][0] + 56, b"\x7f")
    damage(log, places[4][0] + 100, b"y")
    offsets, bad, _ = scanned(log)
    assert (len(offsets), bad) == (7, [places[4]])


@given(data=st.data())
def test_whatever_is_damaged_every_good_record_behind_is_found(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = new_log(tmp_path_factory.mktemp("log"))
    places = filled(log, 40)
    hit = data.draw(st.sets(st.integers(0, 39), max_size=6))
    for number in hit:
        begin, end = places[number]
        at = data.draw(st.integers(begin, end - 1))
        junk = data.draw(st.binary(min_size=1, max_size=min(64, end - at)))
        damage(log, at, junk)
    good = [begin for begin, end in places if is_good(log, begin, end)]
    offsets, _, scan = scanned(log)
    if scan.doubt is None:  # one whose time was damaged may look like what an earlier use left
        assert set(offsets) <= set(good)
        assert {begin for number, (begin, _) in enumerate(places) if number not in hit} <= set(
            offsets
        )
    log.close()


def is_good(log: CommitLog, begin: int, end: int) -> bool:
    """Whether the record there is as it was, as far as anybody can tell."""
    content, cursor = log.read(LogOffset(begin), end - begin), RecordCursor()
    return (
        content is not None
        and cursor.read(content, 0, end - begin) == end - begin
        and cursor.log_offset == begin
    )
