"""Messages found by their place in the log, by key and by time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.message.record import decode_all
from orbitmq.message.tags import index_hash
from orbitmq.store.consume_queue import Boundary
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs
from support.store.reads import BATCHES, BODY_AT, QUEUE, ReadsRoom, numbered

START = QueueOffset(0)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[ReadsRoom]:
    room = ReadsRoom(tmp_path)
    yield room
    room.close()


# -- by place


def test_a_message_is_found_by_its_log_offset_and_by_no_other(room: ReadsRoom) -> None:
    places = [room.put(body) for body in numbered(3)]
    message = room.reads.message_at(places[1].offset)
    assert message is not None
    assert (message.body, message.log_offset) == (numbered(3)[1], places[1].offset)
    assert room.reads.record_at(places[1].offset) == bytes(
        room.log.read(places[1].offset, places[1].size) or b""
    )
    for offset in (places[1].offset + 1, places[2].end, places[2].end - 2, 1 << 40, -1):
        assert room.reads.message_at(LogOffset(offset)) is None
    assert len(room.quarantine) == 0


def test_a_message_whose_body_is_damaged_is_not_found_but_quarantined(room: ReadsRoom) -> None:
    place = room.put(b"hello", KEYS="k")
    room.damage(place.offset + BODY_AT, b"x")
    assert room.reads.record_at(place.offset) is None
    assert room.reads.query("orders", "k") == []
    assert [bad.offset for bad in room.quarantine] == [place.offset]


# -- by key


def test_messages_are_found_by_keys_unique_key_and_tags_the_oldest_first(room: ReadsRoom) -> None:
    for number in range(6):
        room.put(
            b"%d" % number, KEYS=f"k{number % 2} all", UNIQ_KEY=f"U{number}", TAGS=f"t{number % 3}"
        )
        room.clock.advance_ms(1000)
    asked = room.reads.query
    assert [message.body for message in asked("orders", "k1")] == [b"1", b"3", b"5"]
    assert [message.body for message in asked("orders", "all", count_max=2)] == [b"4", b"5"]
    assert [message.body for message in asked("orders", "U4")] == [b"4"]
    assert [message.body for message in asked("orders", "t1", by_tags=True)] == [b"1", b"4"]
    for key in ("t1", "k1 all", "", "k"):
        assert asked("orders", key) == []
    assert asked("other", "k1") == []
    now = room.clock.now_ms()
    assert [
        message.body for message in asked("orders", "all", begin_ms=now - 3000, end_ms=now - 2000)
    ] == [b"3", b"4"]


def test_a_query_says_up_to_where_the_index_knows(room: ReadsRoom) -> None:
    room.put(b"1", KEYS="k")
    last = room.put(b"2", KEYS="other")
    result = room.reads.query_records("orders", "k")
    assert (result.record_count, result.last_time_ms, result.last_offset) == (
        1,
        room.clock.now_ms(),
        last.offset,
    )
    assert [message.body for message in decode_all(result.records)] == [b"1"]
    assert room.reads.query_records("orders", "none") == (b"", 0, 0, 0)


def test_keys_of_the_same_hash_are_told_apart_and_searched_behind_each_other_in_three_rounds(
    room: ReadsRoom,
) -> None:
    assert index_hash("orders", "Aa") == index_hash("orders", "BB")
    room.put(b"wanted", KEYS="Aa")
    for newer in range(1, 5):
        room.clock.advance_ms(1000)
        room.put(b"not wanted", KEYS="BB")
        found = room.reads.query(
            "orders", "Aa", count_max=2
        )  # every round begins with the oldest of the one before
        assert [message.body for message in found] == ([b"wanted"] if newer < 4 else [])


def test_a_store_without_an_index_finds_nothing_by_key(room: ReadsRoom) -> None:
    room.put(KEYS="k")
    room.reads._index = None
    assert room.reads.query("orders", "k") == []


# -- by time


def test_offsets_have_times_and_times_have_offsets(room: ReadsRoom) -> None:
    begin = room.clock.now_ms()
    for body in numbered(6):
        room.put(body)
        room.put_batch([body, body])
        room.clock.advance_ms(10)
    reads = room.reads
    assert [reads.store_time_of(QUEUE, QueueOffset(offset)) for offset in (0, 5, 6, -1)] == [
        begin,
        begin + 50,
        -1,
        -1,
    ]
    assert [reads.store_time_of(BATCHES, QueueOffset(offset)) for offset in (0, 1, 2, 11, 12)] == [
        begin,
        begin,
        begin + 10,
        begin + 50,
        -1,
    ]
    assert reads.earliest_time(QUEUE) == reads.earliest_time(BATCHES) == reads.first_time() == begin
    for boundary, late, between in ((Boundary.LOWER, 6, 3), (Boundary.UPPER, 5, 2)):
        assert reads.offset_by_time(QUEUE, StoreTimeMs(begin + 20), boundary) == 2
        assert reads.offset_by_time(QUEUE, StoreTimeMs(begin + 25), boundary) == between
        assert reads.offset_by_time(QUEUE, StoreTimeMs(begin + 99), boundary) == late
        assert reads.offset_by_time(BATCHES, StoreTimeMs(begin + 20), boundary) == 4
        assert reads.offset_by_time(BATCHES, StoreTimeMs(begin + 99), boundary) == 10
    assert reads.offset_by_time(BATCHES, StoreTimeMs(begin + 25)) == 6


def test_what_is_not_there_has_no_time(room: ReadsRoom) -> None:
    nowhere = QueueKey("nowhere", 0)
    assert (
        room.reads.first_time()
        == room.reads.earliest_time(nowhere)
        == room.reads.store_time_of(nowhere, START)
        == -1
    )
    assert room.reads.offset_by_time(nowhere, StoreTimeMs(1)) == 0
    room.queues.plain.obtain(*nowhere)
    assert room.reads.earliest_time(nowhere) == -1


def test_the_earliest_time_is_that_of_the_first_message_that_is_left(tmp_path: Path) -> None:
    room = ReadsRoom(tmp_path, commit_log_file_size=1000)
    for body in numbered(12, 80):
        room.put(body)
        room.clock.advance_ms(1)
    room.log.flush()
    room.log.files.delete_oldest()
    room.queues.correct_min(room.log.min_offset)
    first = room.queues.plain.obtain(*QUEUE).min_offset
    assert (
        room.reads.earliest_time(QUEUE)
        == room.reads.first_time()
        == room.clock.now_ms() - 12 + first
    )
    room.close()
