"""Flushing of the log of a whole store: who is told what and when, on a disk that fails; and
everything at once.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from orbitmq.common.errors import StoreError, StoreReadOnlyError, WriteFailedError
from orbitmq.store.file_queue import FlushJob
from orbitmq.store.flush.fsync_thread import Flusher
from orbitmq.store.flush.group_commit import Outcome
from orbitmq.store.types import LogOffset
from support.store.flushing import FlushRoom, fail_next_sync, fill_index, syncs

DONE, TIMED_OUT, FAILED = Outcome.DONE, Outcome.TIMED_OUT, Outcome.FAILED
EIO, ENOSPC = errno.EIO, errno.ENOSPC
THOROUGH_MS = 60_000


# -- the log and those who wait for it


def test_many_who_wait_share_one_sync(sync_room: FlushRoom) -> None:
    room = sync_room
    room.wait_for(room.append())
    before = syncs(room)
    for _ in range(9):
        room.wait_for(room.append())
        room.flushing.written()
    room.hands[0].work()
    room.flushing.tick()
    assert room.outcomes == [(0, DONE)], "what came while the first was under way is in the next"
    room.hands[0].work()
    room.flushing.tick()
    assert room.outcomes == [(number, DONE) for number in range(10)]
    assert syncs(room) == before + 2
    assert room.log.flushed_offset == room.log.end_offset
    room.stop()


def test_a_record_is_handed_in_as_it_is_written_also_if_nobody_waits(sync_room: FlushRoom) -> None:
    sync_room.put()
    assert [type(job) for job in sync_room.hands[0].waiting] == [FlushJob]
    sync_room.put()
    assert len(sync_room.hands[0].waiting) == 1, "one job is under way at most"
    sync_room.hands[0].work()
    sync_room.flushing.tick()
    assert [type(job) for job in sync_room.hands[0].waiting] == [FlushJob], (
        "the second follows without being asked for"
    )
    sync_room.stop()


def test_who_asks_for_what_is_flushed_is_told_at_once(sync_room: FlushRoom) -> None:
    first = sync_room.put()
    sync_room.work()
    sync_room.wait_for(first)
    assert sync_room.outcomes == [(0, DONE)]
    sync_room.stop()


def test_who_waits_on_an_asynchronous_log_has_it_flushed(room: FlushRoom) -> None:
    stored = room.put()
    assert not room.hands[0].waiting
    room.wait_for(stored)
    room.work()
    assert room.outcomes == [(0, DONE)]
    room.stop()


def test_who_waits_too_long_is_told_and_then_left_alone(sync_room: FlushRoom) -> None:
    room = sync_room
    room.wait_for(room.put())
    room.clock.advance_ms(300)
    room.wait_for(room.put())
    for moment_ms in (500, 1000):
        room.wait_until(moment_ms)
    assert room.flushing.next_ms == 1500
    room.wait_until(4999)
    assert room.flushing.next_ms == 5000, "the deadline comes before the next interval"
    assert room.outcomes == []
    room.wait_until(5000)
    assert room.outcomes == [(0, TIMED_OUT)]
    room.hands[0].work()
    room.flushing.tick()
    assert room.outcomes == [(0, TIMED_OUT)], (
        "the first was told already, the second is in the next sync"
    )
    room.wait_until(5300)
    assert room.outcomes == [(0, TIMED_OUT), (1, TIMED_OUT)]
    room.stop()


def test_a_report_that_arrives_with_the_deadline_wins(sync_room: FlushRoom) -> None:
    sync_room.wait_for(sync_room.put())
    sync_room.hands[0].work()
    sync_room.wait_until(5000)
    assert sync_room.outcomes == [(0, DONE)]
    sync_room.stop()


def test_a_failed_sync_of_the_log_fails_everybody_and_is_never_made_good(
    sync_room: FlushRoom,
) -> None:
    room = sync_room
    room.wait_for(room.put())
    room.wait_for(room.put())
    fail_next_sync(room, FlushJob)
    assert room.outcomes == [(0, FAILED), (1, FAILED)]
    assert room.log.flushed_offset == 0
    room.wait_for(room.stored[1])
    assert room.outcomes[2:] == [(1, FAILED)], "nobody waits for what will not happen"
    with pytest.raises(StoreReadOnlyError, match="Input/output error"):
        room.put()
    for moment_ms in (500, 1000, THOROUGH_MS, 2 * THOROUGH_MS):
        room.wait_until(moment_ms)
        room.work()
    assert room.log.flushed_offset == 0
    saved = room.saved()
    assert (saved.log_time_ms, saved.queues_time_ms, saved.queues_offset) == (
        0,
        0,
        0,
    ), "queues are safe, but not what they point at"
    with pytest.raises(StoreReadOnlyError):
        room.flush()
    room.stop()
    assert room.log.read_only_reason is not None


def test_a_sync_that_comes_back_well_after_the_log_became_read_only_counts_as_failed(
    sync_room: FlushRoom,
) -> None:
    room = sync_room
    room.wait_for(room.put())
    room.disk.fail("pwrite", ENOSPC, partial_bytes=10)
    room.disk.fail(
        "fdatasync", EIO
    )  # of what clears the torn bytes; it takes the news that the flusher's sync would have had
    with pytest.raises(WriteFailedError):
        room.append()
    room.disk.heal()
    assert room.log.read_only_reason is not None
    room.work()
    assert room.outcomes == [(0, FAILED)]
    assert room.log.flushed_offset == 0
    room.stop()


def test_a_waiter_that_fails_keeps_nobody_from_being_told(
    sync_room: FlushRoom, caplog: pytest.LogCaptureFixture
) -> None:
    room = sync_room
    first = room.put()
    room.flushing.when_durable(LogOffset(first.end), lambda _outcome: [][1])
    room.wait_for(first)
    room.work()
    assert room.outcomes == [(0, DONE)]
    assert "waiter_failed outcome=done" in caplog.messages
    room.stop()


def test_a_waiter_may_put_the_next_message_when_it_is_told(sync_room: FlushRoom) -> None:
    room = sync_room
    told: list[Outcome] = []

    def again(outcome: Outcome) -> None:
        told.append(outcome)
        if len(told) < 5:
            room.flushing.when_durable(LogOffset(room.put().end), again)

    again(DONE)
    room.work()
    assert told == [DONE] * 5
    room.stop()


def test_an_asynchronous_log_is_flushed_when_there_are_four_pages_or_ten_seconds(
    room: FlushRoom,
) -> None:
    room.put()
    room.wait_until(500)
    assert not room.hands[0].waiting
    for _ in range(10):
        room.put(bytes(1900))
    room.wait_until(1000)
    room.work()
    assert room.log.flushed_offset == room.log.end_offset
    room.put()
    room.wait_until(10_000)
    room.work()
    assert room.log.flushed_offset == room.log.end_offset
    room.stop()


def test_a_flush_that_was_due_while_another_was_under_way_is_made_up_for(room: FlushRoom) -> None:
    for _ in range(10):
        room.put(bytes(1900))
    room.wait_until(500)
    last = room.put()
    for moment_ms in (10_000, 10_100):
        room.wait_until(moment_ms)
    assert len(room.hands[0].waiting) == 1
    room.hands[0].work()
    room.flushing.tick()
    room.hands[0].work()
    room.flushing.tick()
    assert room.log.flushed_offset == last.end
    room.stop()


def test_a_log_that_cannot_be_opened_is_flushed_with_the_next_tick(
    sync_room: FlushRoom, caplog: pytest.LogCaptureFixture
) -> None:
    room = sync_room
    stored = room.append()
    room.log.files.close()
    room.disk.fail("open", errno.EMFILE, times=3)
    room.wait_for(stored)
    with pytest.raises(StoreError, match="flushed to 0, not to"):
        room.flush()
    assert room.outcomes == []
    assert any(message.startswith("log_not_flushed offset=0") for message in caplog.messages)
    room.disk.heal()
    room.flushing.tick()
    room.work()
    assert room.outcomes == [(0, DONE)]
    room.stop()


# -- everything at once


def test_a_flush_brings_everything_to_disk_and_tells_who_waits(
    room: FlushRoom, tmp_path: Path
) -> None:
    for number in range(40):
        room.clock.advance_ms(1)
        room.wait_for(room.put(bytes(300), queue_id=number % 3))
    room.flush()
    assert room.outcomes == [(number, DONE) for number in range(40)]
    last = room.stored[-1]
    room.rest()
    room.disk.power_cut(tmp_path / "after")
    saved = room.saved(tmp_path / "after")
    assert (saved.log_time_ms, saved.queues_time_ms, saved.queues_offset) == (
        last.store_time_ms,
        last.store_time_ms,
        last.end,
    )
    paths = [path for path in sorted(room.folder.glob("co[mn]*/**/0*")) if path.is_file()]
    assert len(paths) > 10
    for path in paths:
        assert (
            tmp_path / "after" / path.relative_to(room.folder)
        ).read_bytes() == path.read_bytes(), path
    room.stop()


def test_a_flush_begins_its_own_round_when_one_is_under_way(room: FlushRoom) -> None:
    room.put()
    room.wait_until(THOROUGH_MS)
    last = room.put(queue_id=1)
    room.flush()
    assert room.checkpoint.queues_offset == last.end
    room.stop()


def test_stopping_saves_everything_and_closes_every_file(room: FlushRoom) -> None:
    fill_index(room)
    last = room.put()
    room.stop()
    saved = room.saved()
    assert (saved.log_time_ms, saved.queues_time_ms, saved.queues_offset) == (
        last.store_time_ms,
        last.store_time_ms,
        last.end,
    )
    assert room.flushing.derived_unsafe_reason is None
    assert room.disk.calls["open"] == room.disk.calls["close"]
    room.flushing.stop()
    room.flushing.tick()


def test_who_asks_after_the_stop_is_told_by_what_is_flushed(room: FlushRoom) -> None:
    stored = room.put()
    room.stop()
    room.wait_for(stored)
    assert room.outcomes == [(0, DONE)]
    room.flushing.when_durable(
        LogOffset(stored.end + 1), lambda outcome: room.outcomes.append((1, outcome))
    )
    assert room.outcomes[1:] == [(1, FAILED)]


def test_a_store_that_was_never_started_is_stopped_by_doing_nothing(tmp_path: Path) -> None:
    FlushRoom(tmp_path, make_flusher=Flusher).flushing.stop()
