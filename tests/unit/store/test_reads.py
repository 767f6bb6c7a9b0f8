"""Reads of a small store: every answer at the edges of a queue, every limit, filters, batches,
damage.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path
from typing import NamedTuple

import pytest

from orbitmq.common.errors import StoreError
from orbitmq.message.batch import decode
from orbitmq.message.record import decode_all
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.tags import tags_code
from orbitmq.store.batch_consume_queue import BatchEntry
from orbitmq.store.config import FILTER_STEP_WORK, FILTER_WORK_MAX
from orbitmq.store.consume_queue_ext import ExtUnit
from orbitmq.store.reads import BYTES_MAX, GetResult, GetStatus, TagsFilter
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs
from support.store.reads import BATCHES, BODY_AT, QUEUE, ReadsRoom, bodies, numbered

START = QueueOffset(0)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[ReadsRoom]:
    room = ReadsRoom(tmp_path)
    yield room
    room.close()


class Odd(NamedTuple):
    """Wants entries of even codes, and of those the records whose body begins with an odd digit;
    remembers whom it was asked of.
    """

    asked: list[tuple[int | None, ExtUnit | None]]
    tags_codes: frozenset[int] | None = None
    passes_bare_entries: bool = False
    record_cost: int = 1

    def matches_entry(self, tags_code: int | None, unit: ExtUnit | None) -> bool:
        self.asked.append((tags_code, unit))
        return tags_code is None or tags_code % 2 == 0

    def matches_record(self, record: RecordCursor) -> bool:
        return int(record.body()) % 2 == 1


# -- the answers, one for each row of the table


def test_a_queue_that_is_not_there_has_nothing_at_0(room: ReadsRoom) -> None:
    result = room.reads.get(QUEUE, QueueOffset(7), count_max=32)
    assert result == GetResult(
        GetStatus.NO_MATCHED_LOGIC_QUEUE, QueueOffset(0), QueueOffset(0), QueueOffset(0)
    )


def test_a_queue_without_any_message_is_empty_at_0(room: ReadsRoom) -> None:
    room.queues.plain.obtain(*QUEUE)
    nothing = GetResult(
        GetStatus.NO_MESSAGE_IN_QUEUE, QueueOffset(0), QueueOffset(0), QueueOffset(0)
    )
    assert room.reads.get(QUEUE, QueueOffset(7), count_max=32) == nothing


def rolled(tmp_path: Path) -> ReadsRoom:
    """A log whose first file, of messages 0 to 4, was deleted; its queue knows."""
    room = ReadsRoom(tmp_path, commit_log_file_size=1000)
    for body in numbered(12, 80):
        room.put(body)
    room.log.flush()
    assert room.log.files.delete_oldest()
    return room


@pytest.mark.parametrize("corrects", [True, False])
def test_offsets_outside_of_the_queue_are_corrected_unless_a_slave_should_not(
    tmp_path: Path, corrects: bool
) -> None:
    room = rolled(tmp_path)
    room.queues.correct_min(room.log.min_offset)
    room.reads.corrects_offsets = corrects
    low = room.queues.plain.obtain(*QUEUE).min_offset
    assert 0 < low < 12
    for offset, status, right in (
        (low - 1, GetStatus.OFFSET_TOO_SMALL, low),
        (12, GetStatus.OFFSET_OVERFLOW_ONE, 12),
        (13, GetStatus.OFFSET_OVERFLOW_BADLY, 12),
        (-1, GetStatus.OFFSET_TOO_SMALL, low),
    ):
        result = room.reads.get(QUEUE, QueueOffset(offset), count_max=32)
        assert result == GetResult(
            status, QueueOffset(right if corrects else offset), low, QueueOffset(12)
        )
    room.close()


def test_a_queue_whose_messages_are_all_gone_is_too_small_below_its_end(tmp_path: Path) -> None:
    room = rolled(tmp_path)
    room.queues.correct_min(room.log.end_offset)
    assert room.reads.get(QUEUE, QueueOffset(11), count_max=1)[:4] == (
        GetStatus.OFFSET_TOO_SMALL,
        12,
        12,
        12,
    )
    assert room.reads.get(QUEUE, QueueOffset(12), count_max=1)[:4] == (
        GetStatus.OFFSET_OVERFLOW_ONE,
        12,
        12,
        12,
    )
    room.close()


def test_entries_of_a_deleted_file_are_passed_over_and_the_rest_is_read(tmp_path: Path) -> None:
    room = rolled(tmp_path)
    result = room.reads.get(QUEUE, START, count_max=32)
    first = next(decode_all(bytes(result.records))).queue_offset
    assert result.status is GetStatus.FOUND
    assert bodies(result) == numbered(12, 80)[first:]
    assert result.next_offset == 12
    assert first > 0
    room.close()


def test_only_deleted_messages_in_reach_were_removed(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path, commit_log_file_size=1000, filter_entries_max=2)
    for body in numbered(12, 80):
        room.put(body)
    room.log.flush()
    room.log.files.delete_oldest()
    result = room.reads.get(QUEUE, START, count_max=1)
    assert result[:5] == (GetStatus.MESSAGE_WAS_REMOVING, 2, 0, 12, b"")
    assert len(room.quarantine) == 0
    room.close()


def test_after_a_deleted_file_nothing_else_of_it_is_looked_for(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path, commit_log_file_size=1000, filter_entries_max=3)
    asked = Odd([])
    for body in numbered(12, 80):
        room.put(body)
    room.log.flush()
    room.log.files.delete_oldest()
    assert room.reads.get(QUEUE, START, count_max=1, wanted=asked)[:2] == (
        GetStatus.MESSAGE_WAS_REMOVING,
        3,
    )
    assert asked.asked == [(0, None)]
    room.close()


def test_a_file_of_the_queue_that_is_gone_is_stepped_over(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path, queue_file_size=100)
    for body in numbered(12):
        room.put(body)
    room.queues.files.close()
    (tmp_path / "consumequeue" / "orders" / "1" / f"{100:020}").unlink()
    before = room.reads.get(QUEUE, QueueOffset(3), count_max=32)
    assert (before.status, bodies(before), before.next_offset) == (
        GetStatus.FOUND,
        numbered(12)[3:5],
        5,
    )
    assert room.reads.get(QUEUE, QueueOffset(6), count_max=32)[:5] == (
        GetStatus.OFFSET_FOUND_NULL,
        10,
        0,
        12,
        b"",
    )
    behind = room.reads.get(QUEUE, QueueOffset(10), count_max=32)
    assert (behind.status, bodies(behind)) == (GetStatus.FOUND, numbered(12)[10:])
    room.reads.corrects_offsets = False
    assert room.reads.get(QUEUE, QueueOffset(6), count_max=32).next_offset == 6
    room.close()


def test_the_last_file_of_a_queue_that_is_gone_leads_to_its_end(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path, queue_file_size=100)
    for body in numbered(7):
        room.put(body)
    room.queues.files.close()
    (tmp_path / "consumequeue" / "orders" / "1" / f"{100:020}").unlink()
    assert room.reads.get(QUEUE, QueueOffset(5), count_max=32)[:2] == (
        GetStatus.OFFSET_FOUND_NULL,
        7,
    )
    room.close()


def test_a_batch_queue_whose_file_is_gone_skips_nothing(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path)
    room.put_batch(numbered(3))
    room.queues.files.close()
    (tmp_path / "batchconsumequeue" / "batches" / "0" / f"{0:020}").unlink()
    assert room.reads.get(BATCHES, QueueOffset(1), count_max=32)[:2] == (
        GetStatus.OFFSET_FOUND_NULL,
        1,
    )
    room.close()


def test_a_queue_that_cannot_be_read_just_now_skips_nothing(
    room: ReadsRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.put()

    def no_descriptors(*_: object) -> bytes:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(room.queues.files, "read", no_descriptors)
    with pytest.raises(StoreError, match="try again"):
        room.reads.get(QUEUE, START, count_max=1)


# -- limits


@pytest.mark.parametrize(
    ("count_max", "given"),
    [(-1, 1), (0, 1), (1, 1), (5, 5), (31, 31), (32, 32), (33, 32), (1 << 31, 32)],
)
def test_as_many_messages_as_asked_for_but_no_more_than_one_answer_may_have(
    room: ReadsRoom, count_max: int, given: int
) -> None:
    for body in numbered(40):
        room.put(body)
    result = room.reads.get(QUEUE, QueueOffset(2), count_max=count_max)
    assert bodies(result) == numbered(40)[2 : 2 + given]
    assert (result.next_offset, result.message_count) == (2 + given, given)


def test_cold_messages_come_in_smaller_portions_and_suggest_a_slave(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path, memory_size=0)
    for body in numbered(40):
        room.put(body)
    result = room.reads.get(QUEUE, START, count_max=32)
    assert (result.record_count, result.next_offset, result.suggest_slave) == (8, 8, True)
    room.close()


def test_a_read_that_comes_from_the_cold_to_the_hot_has_the_limit_of_each(tmp_path: Path) -> None:
    probe = ReadsRoom(tmp_path / "probe")
    size = probe.put(b"%010d" % 0).size
    probe.close()
    room = ReadsRoom(tmp_path / "room", memory_size=35 * size, memory_percent_max=100)
    for body in numbered(40):
        room.put(body)
    assert (
        room.reads.get(QUEUE, START, count_max=32).record_count == 32
    )  # 5 are cold, less than the 8 that would be enough
    assert (
        room.reads.get(QUEUE, START, count_max=32).suggest_slave is False
    )  # the last that was read is hot
    assert room.reads.get(QUEUE, START, count_max=5).suggest_slave is True
    assert (
        room.reads.get(QUEUE, QueueOffset(5), count_max=1).suggest_slave is False
    )  # at the very distance
    room.close()


@pytest.mark.parametrize(("more", "given"), [(-1, 2), (0, 3), (1, 3)])
def test_bytes_asked_for_are_a_limit_to_the_byte(room: ReadsRoom, more: int, given: int) -> None:
    size = {room.put(body).size for body in numbered(5)}.pop()
    result = room.reads.get(QUEUE, START, count_max=32, bytes_max=3 * size + more)
    assert (result.record_count, len(result.records)) == (given, given * size)


@pytest.mark.parametrize("is_hot", [True, False])
@pytest.mark.parametrize("more", [-1, 0])
def test_bytes_of_one_answer_are_a_limit_to_the_byte(
    tmp_path: Path, is_hot: bool, more: int
) -> None:
    probe = ReadsRoom(tmp_path / "probe")
    size = probe.put(bytes(2000)).size
    probe.close()
    limits = (
        {"hot_bytes_max": 3 * size + more, "cold_bytes_max": 1}
        if is_hot
        else {"cold_bytes_max": 3 * size + more}
    )
    room = ReadsRoom(tmp_path / "room", memory_size=1 << 40 if is_hot else 0, **limits)
    for _ in range(6):
        room.put(bytes(2000))
    assert room.reads.get(QUEUE, START, count_max=6).record_count == 3 + more
    room.close()


def test_the_first_message_is_given_however_long_it_is(room: ReadsRoom) -> None:
    for _ in range(2):
        room.put(bytes(300_000))
    for bytes_max in (-5, 0, 1, BYTES_MAX, BYTES_MAX + 1):
        assert room.reads.get(QUEUE, START, count_max=2, bytes_max=bytes_max).record_count == 1


@pytest.mark.parametrize(("count_max", "looked_at"), [(1, 800), (800, 800), (801, 801), (900, 900)])
def test_a_filter_that_wants_nothing_is_asked_800_times_or_once_for_each_that_may_come(
    tmp_path: Path, count_max: int, looked_at: int
) -> None:
    room = ReadsRoom(tmp_path)
    for _ in range(1000):
        room.log.append(room._message(b"", QUEUE, {}), 1)
    room.log.commit()
    room.dispatcher.advance()
    result = room.reads.get(
        QUEUE, QueueOffset(10), count_max=count_max, wanted=TagsFilter(frozenset({1}))
    )
    assert result[:5] == (GetStatus.NO_MATCHED_MESSAGE, 10 + looked_at, 0, 1000, b"")
    room.close()


@pytest.mark.parametrize("count_max", [8_192, 9_000, (1 << 31) - 1])
def test_a_filter_is_asked_8192_times_at_most_whatever_is_asked_for(
    tmp_path: Path, count_max: int
) -> None:
    room = ReadsRoom(tmp_path)
    for _ in range(9_000):
        room.log.append(room._message(b"", QUEUE, {}), 1)
    room.log.commit()
    room.dispatcher.advance()
    result = room.reads.get(QUEUE, START, count_max=count_max, wanted=TagsFilter(frozenset({1})))
    assert result[:2] == (GetStatus.NO_MATCHED_MESSAGE, 8_192)
    assert len(bodies(room.reads.get(QUEUE, START, count_max=count_max))) == 32
    room.close()


# -- filters


@pytest.mark.parametrize("wants", [True, False])
def test_a_filter_gets_bounded_work_in_one_read_and_a_reader_that_follows_misses_nothing(
    room: ReadsRoom, wants: bool
) -> None:
    class Costly(Odd):
        def matches_record(self, record: RecordCursor) -> bool:
            looked_at.append(int(record.body()))
            return wants

    for number in range(100):
        room.put(b"%d" % number, p="x" * 100)
    looked_at: list[int] = []
    record_cost = FILTER_WORK_MAX // (20 * FILTER_STEP_WORK)
    wanted, offset, reads = Costly([], record_cost=record_cost), START, 0
    while offset < 100:
        result = room.reads.get(QUEUE, offset, count_max=32, wanted=wanted)
        assert 1 <= result.next_offset - offset <= 20
        assert result.status is (GetStatus.FOUND if wants else GetStatus.NO_MATCHED_MESSAGE)
        offset, reads = result.next_offset, reads + 1
    assert looked_at == list(range(100))
    assert reads > 5
    endless = Costly([], record_cost=1 << 40)
    assert room.reads.get(QUEUE, START, count_max=32, wanted=endless).next_offset == 1, (
        "one record is always looked at"
    )


def test_tags_are_told_by_their_codes_of_which_32_bits_count(room: ReadsRoom) -> None:
    for number in range(200):
        room.put(b"%d" % number, TAGS=("red", "green", "blue")[number % 3])
    code = tags_code("green")
    for codes in ({code}, {code, 5, 7}, {code & 0xFFFFFFFF}, {code - (1 << 32)}):
        result = room.reads.get(QUEUE, START, count_max=32, wanted=TagsFilter(frozenset(codes)))
        assert bodies(result) == [b"%d" % number for number in range(1, 96, 3)]
        assert result.next_offset == 95
    for codes in (
        {code, *range(1_000)},
        {code & 0xFFFFFFFF, *range(1_000)},
    ):  # which are not compared one by one
        assert (
            bodies(room.reads.get(QUEUE, START, count_max=32, wanted=TagsFilter(frozenset(codes))))[
                0
            ]
            == b"1"
        )
    assert not bodies(
        room.reads.get(QUEUE, START, count_max=32, wanted=TagsFilter(frozenset(range(1_000))))
    )
    assert room.reads.get(QUEUE, START, count_max=32, wanted=TagsFilter(frozenset()))[:2] == (
        GetStatus.NO_MATCHED_MESSAGE,
        200,
    )
    assert room.reads.get(QUEUE, START, count_max=32, wanted=TagsFilter(None)).record_count == 32


def test_a_filter_of_its_own_is_asked_of_the_entry_then_of_the_record(room: ReadsRoom) -> None:
    for number in range(20):
        room.put(b"%d" % number, TAGS=chr(64 + number // 2))
    wanted = Odd([])
    result = room.reads.get(QUEUE, START, count_max=32, wanted=wanted)
    assert bodies(result) == [b"1", b"5", b"9", b"13", b"17"]
    assert wanted.asked == [(64 + number // 2, None) for number in range(20)]
    wanted = Odd([], frozenset({66}))
    assert bodies(room.reads.get(QUEUE, START, count_max=32, wanted=wanted)) == [b"5"]
    assert wanted.asked == [(66, None), (66, None)]


def test_an_error_of_a_filter_leaves_the_reader_as_it_was(room: ReadsRoom) -> None:
    room.put(b"no number")
    with pytest.raises(ValueError, match="invalid literal"):
        room.reads.get(QUEUE, START, count_max=1, wanted=Odd([]))
    assert bodies(room.reads.get(QUEUE, START, count_max=1)) == [b"no number"]


def test_the_tags_code_of_an_entry_with_a_unit_is_that_of_the_unit(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path, queue_ext_file_size=4096)
    for number in range(10):
        room.put(b"%d" % number, TAGS=chr(64 + number))
    wanted = Odd([])
    result = room.reads.get(QUEUE, START, count_max=32, wanted=TagsFilter(frozenset({67, 68})))
    assert bodies(result) == [b"3", b"4"]
    room.reads.get(QUEUE, START, count_max=32, wanted=wanted)
    assert wanted.asked == [
        (code, ExtUnit(code, room.clock.now_ms(), b"")) for code in range(64, 74)
    ]
    room.close()


def test_a_tags_code_that_is_lost_with_its_unit_passes(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path, queue_ext_file_size=4096)
    for number in range(3):
        room.put(b"%d" % number, TAGS=chr(64 + number))
    room.queues.plain.obtain(*QUEUE).ext = None
    wanted = Odd([], frozenset({9}))
    assert bodies(
        room.reads.get(QUEUE, START, count_max=32, wanted=TagsFilter(frozenset({9})))
    ) == [b"0", b"1", b"2"]
    assert bodies(room.reads.get(QUEUE, START, count_max=32, wanted=wanted)) == [b"1"]
    assert wanted.asked == [(None, None)] * 3
    room.close()


# -- batches


def test_a_batch_is_given_whole_from_any_offset_inside(room: ReadsRoom) -> None:
    for count in (3, 1, 4):
        room.put_batch(numbered(count))
    for offset, expected in ((0, 3), (2, 3), (3, 2), (4, 1), (7, 1)):
        result = room.reads.get(BATCHES, QueueOffset(offset), count_max=32)
        assert result[:4] == (GetStatus.FOUND, 8, 0, 8)
        assert result.record_count == expected
        assert result.message_count == sum((3, 1, 4)[-expected:])
        assert [len(decode(body)) for body in bodies(result)] == [3, 1, 4][-expected:]
    assert (
        room.reads.get(BATCHES, QueueOffset(8), count_max=32).status
        is GetStatus.OFFSET_OVERFLOW_ONE
    )


@pytest.mark.parametrize(
    ("count_max", "records", "next_offset"), [(1, 1, 3), (3, 1, 3), (4, 2, 4), (7, 2, 4), (8, 3, 8)]
)
def test_the_messages_in_batches_are_what_counts(
    room: ReadsRoom, count_max: int, records: int, next_offset: int
) -> None:
    for count in (3, 1, 4):
        room.put_batch(numbered(count))
    result = room.reads.get(BATCHES, QueueOffset(1), count_max=count_max)
    assert (result.record_count, result.next_offset) == (records, next_offset)


def test_batches_have_tags_and_a_scan_has_an_end(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path, filter_entries_max=5)
    for tags in ("a", "b", "a", "c"):
        room.put_batch(numbered(2), TAGS=tags)
    result = room.reads.get(
        BATCHES, START, count_max=1, wanted=TagsFilter(frozenset({tags_code("c")}))
    )
    assert result[:2] == (GetStatus.NO_MATCHED_MESSAGE, 4)  # (4 - 0) x 46 bytes are 100, or more
    result = room.reads.get(
        BATCHES, QueueOffset(4), count_max=1, wanted=TagsFilter(frozenset({tags_code("c")}))
    )
    assert (result.status, result.record_count, result.message_count) == (GetStatus.FOUND, 1, 2)
    room.close()


@pytest.mark.parametrize("lost", [3, 400])
def test_batches_that_were_lost_are_stepped_over_and_nothing_is_given_twice(
    room: ReadsRoom, lost: int
) -> None:
    queue, places = (
        room.queues.batch.obtain(*BATCHES),
        [room.put_batch(numbered(3), QueueKey("source", 0)) for _ in range(2)],
    )
    for place, base in zip(places, (0, 3 + lost), strict=True):
        queue.put(
            BatchEntry(place.offset, place.size, 0, place.store_time_ms, QueueOffset(base), 3)
        )
    queue.commit()
    for asked in (3, 2 + lost):
        result, offset = room.reads.get(BATCHES, QueueOffset(asked), count_max=1), asked
        while result.status is not GetStatus.FOUND:
            assert (result.status, result.next_offset > offset) == (
                GetStatus.NO_MATCHED_MESSAGE,
                True,
            )
            offset = result.next_offset
            result = room.reads.get(BATCHES, offset, count_max=1)
        assert [record.log_offset for record in decode_all(bytes(result.records))] == [
            places[1].offset
        ]
        assert result.next_offset == result.max_offset == 6 + lost


# -- damage


def test_fillers_are_passed_over(room: ReadsRoom) -> None:
    room.put(b"first")
    queue = room.queues.plain.obtain(*QUEUE)
    third = room.put(b"third", QueueKey("other", 0))
    queue.put(third.offset, third.size, 0, 40)  # as dispatch does when 39 records are lost
    queue.commit()
    result = room.reads.get(QUEUE, START, count_max=32)
    assert bodies(result) == [b"first", b"third"]
    assert (result.next_offset, result.max_offset) == (41, 41)
    only = room.reads.get(QUEUE, QueueOffset(1), count_max=32)
    assert (bodies(only), only.next_offset) == ([b"third"], 41)
    assert len(room.quarantine) == 0


@pytest.mark.parametrize(
    ("at", "content", "reason"),
    [
        (BODY_AT + 3, b"\xff", "checksum"),
        (8, b"\x7f", "checksum"),
        (0, b"\x00\x00\x01\x00", "fewer bytes"),
        (3, b"\x6a", "do not add up"),
        (4, b"\x00", "does not begin"),
        (28, b"\x01", "states the offset"),
        (84, b"\xff\xff\xff\xff", "longer"),
        (84, b"\x00\x00\xff\xff", "longer"),
    ],
)
def test_a_record_that_is_no_good_is_stepped_over_and_quarantined(
    room: ReadsRoom, at: int, content: bytes, reason: str
) -> None:
    places = [room.put(body) for body in numbered(5)]
    room.damage(places[2].offset + at, content)
    result = room.reads.get(QUEUE, START, count_max=4)
    assert bodies(result) == [body for number, body in enumerate(numbered(5)) if number != 2]
    assert result.next_offset == 5
    [bad] = room.quarantine
    assert (bad.offset, bad.end) == (places[2].offset, places[2].end)
    assert reason in bad.reason


def test_nothing_but_bad_records_reads_as_removed(room: ReadsRoom) -> None:
    for body in numbered(3):
        room.damage(room.put(body).offset + BODY_AT, b"x")
    assert room.reads.get(QUEUE, START, count_max=1)[:5] == (
        GetStatus.MESSAGE_WAS_REMOVING,
        3,
        0,
        3,
        b"",
    )
    assert len(room.quarantine) == 3


def test_bodies_are_not_looked_at_when_nobody_wants_to(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path, check_body_on_read=False)
    places = [room.put(body) for body in numbered(3)]
    room.damage(places[0].offset + BODY_AT, b"x")
    room.damage(places[1].offset + 4, b"x")
    result = room.reads.get(QUEUE, START, count_max=3)
    assert (result.record_count, result.next_offset, len(room.quarantine)) == (2, 3, 1)
    room.close()


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 0), (0, 90), (0, 1 << 30), (1 << 20, 200), (50, 200), (0, -1)]
)
def test_an_entry_that_points_at_no_record_costs_nobody_anything_else(
    room: ReadsRoom, offset: int, size: int
) -> None:
    room.put(b"first")
    batches = room.queues.batch.obtain(*BATCHES)
    good = room.put_batch([b"good"])
    batches.put(BatchEntry(LogOffset(offset), size, 0, StoreTimeMs(1), QueueOffset(1), 1))
    batches.max_physical_offset = 0
    batches.put(BatchEntry(LogOffset(offset), size, 0, StoreTimeMs(1), QueueOffset(1), 1))
    batches.put(BatchEntry(LogOffset(good.offset), good.size, 0, StoreTimeMs(1), QueueOffset(2), 1))
    batches.commit()
    result = room.reads.get(BATCHES, START, count_max=32)
    assert result.status is GetStatus.FOUND
    assert {record.log_offset for record in decode_all(bytes(result.records))} == {good.offset}


def test_records_of_several_files_come_in_one_read(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path, commit_log_file_size=1000)
    for body in numbered(30, 80):
        room.put(body)
    assert len(room.log.files.files) > 4
    result = room.reads.get(QUEUE, START, count_max=32)
    assert (bodies(result), result.next_offset) == (numbered(30, 80), 30)
    room.close()


def test_what_was_read_outlives_the_file_and_does_not_hold_it(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path, commit_log_file_size=1000)
    for body in numbered(12, 80):
        room.put(body)
    result = room.reads.get(QUEUE, START, count_max=32)
    assert room.reads.message_at(LogOffset(0)) is not None
    room.log.flush()
    mapping = room.log.files.files[0].view().obj
    assert isinstance(mapping, mmap)
    room.log.files.delete_oldest()
    mapping.close()  # BufferError if anybody still looks at it
    assert bodies(result) == numbered(12, 80)
    room.close()
