"""Flushing of queues and index, and what the checkpoint dares to claim, on a disk that fails at
every place.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from orbitmq.common.errors import StoreError
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.flush.derived import JOB_FILES_MAX, CheckpointJob
from orbitmq.store.index import IndexFlushJob
from orbitmq.store.open_files import FilesFlushJob
from support.common.process_files import ProcessFiles
from support.store.flushing import FlushRoom, fail_next_sync, fill_index, syncs

EIO = errno.EIO
THOROUGH_MS = 60_000


# -- queues, index, checkpoint


def test_the_checkpoint_claims_the_log_as_far_as_it_is_flushed(sync_room: FlushRoom) -> None:
    room = sync_room
    first = room.put()
    room.clock.advance_ms(400)
    room.put()
    room.hands[0].work()
    room.wait_until(1000)
    room.hands[1].work()
    assert room.saved().log_time_ms == first.store_time_ms
    room.stop()


def test_the_queues_are_claimed_when_a_thorough_round_is_back_and_no_further_than_it_began(
    room: FlushRoom,
) -> None:
    first = room.put()
    room.wait_until(THOROUGH_MS - 1000)
    room.work()
    assert (room.checkpoint.queues_offset, room.checkpoint.queues_time_ms) == (0, 0)
    room.wait_until(THOROUGH_MS)
    room.put()
    assert room.checkpoint.queues_offset == 0, "it is under way"
    room.work()
    assert (room.checkpoint.queues_offset, room.checkpoint.queues_time_ms) == (
        first.end,
        first.store_time_ms,
    )
    room.stop()


def test_the_queues_are_not_claimed_before_the_log_has_their_records(room: FlushRoom) -> None:
    stored = room.put()
    room.wait_until(THOROUGH_MS)
    room.hands[1].work()
    room.flushing.tick()
    assert room.queues.files.unsynced_count == 0
    assert room.checkpoint.queues_offset == 0
    room.hands[0].work()
    room.flushing.tick()
    assert room.checkpoint.queues_offset == stored.end
    room.stop()


def test_a_round_over_many_queues_goes_by_parts_and_claims_when_the_last_is_back(
    room: FlushRoom,
) -> None:
    count = 2 * JOB_FILES_MAX + 5
    for queue_id in range(count):
        room.put(queue_id=queue_id)
    end = room.log.end_offset
    room.wait_until(THOROUGH_MS)
    room.hands[0].work()
    sizes = []
    while any(isinstance(job, FilesFlushJob) for job in room.hands[1].waiting):
        sizes += [
            len(job.descriptors) for job in room.hands[1].waiting if isinstance(job, FilesFlushJob)
        ]
        assert room.checkpoint.queues_offset == 0
        room.put(queue_id=sizes[-1])  # one that is synced by now becomes dirty again
        room.hands[1].work()
        room.flushing.tick()
    assert sizes == [JOB_FILES_MAX, JOB_FILES_MAX, 5]
    assert room.checkpoint.queues_offset == end
    assert room.queues.files.unsynced_count > 0
    room.stop()


def test_a_round_without_pages_enough_syncs_nothing(room: FlushRoom) -> None:
    room.put()
    before = syncs(room)
    room.wait_until(1000)
    assert not any(isinstance(job, FilesFlushJob) for job in room.hands[1].waiting)
    room.hands[1].work()
    assert syncs(room) - before <= 1, "the checkpoint at most"
    room.stop()


def test_a_failed_sync_of_a_queue_freezes_what_is_claimed_and_takes_the_clean_stop(
    room: FlushRoom,
) -> None:
    safe = room.put()
    room.flush()
    room.clock.advance_ms(1000)
    room.put()
    room.wait_until(THOROUGH_MS + 1000)
    fail_next_sync(room, FilesFlushJob)
    reason = room.flushing.derived_unsafe_reason
    assert reason is not None
    assert "consume queues" in reason
    assert room.log.read_only_reason is None, "the store goes on"
    last = room.put()
    for moment_ms in range(2 * THOROUGH_MS, 5 * THOROUGH_MS, 500):
        room.wait_until(moment_ms)
        room.work()
    with pytest.raises(StoreError, match="consume queues failed"):
        room.flush()
    room.stop()
    saved = room.saved()
    assert (saved.queues_offset, saved.queues_time_ms) == (safe.end, safe.store_time_ms)
    assert saved.log_time_ms == last.store_time_ms
    assert room.flushing.derived_unsafe_reason == reason


def test_full_index_files_are_claimed_when_they_are_synced(room: FlushRoom) -> None:
    time_ms = fill_index(room)
    room.wait_until(1000)
    assert room.checkpoint.index_time_ms == 0
    room.work()
    assert room.checkpoint.index_time_ms == 0, "the log does not have their records yet"
    room.wait_until(10_000)
    room.work()
    assert room.checkpoint.index_time_ms == time_ms
    room.stop()


def test_a_full_index_file_is_not_claimed_while_the_next_may_end_in_the_same_millisecond(
    room: FlushRoom,
) -> None:
    while len(room.index.files) < 2:
        room.put()
    time_ms = room.index.files[0].header.end_time_ms
    room.flush()
    assert room.checkpoint.index_time_ms == time_ms - 1
    room.clock.advance_ms(1)
    room.put()
    room.flush()
    assert room.checkpoint.index_time_ms == time_ms
    room.stop()


def test_a_full_index_file_is_not_claimed_while_the_next_is_full_in_the_same_millisecond_and_not_synced(
    room: FlushRoom,
) -> None:
    while len(room.index.files) < 2:
        room.put()
    room.wait_until(1000)
    [job] = [job for job in room.hands[1].waiting if isinstance(job, IndexFlushJob)]
    assert job.sealed is not None
    time_ms = job.sealed.header.end_time_ms
    room.clock.set_wall_ms(time_ms)
    while not room.index.files[1].is_full:
        room.put()
    assert [file.header.end_time_ms for file in room.index.files] == [time_ms, time_ms]
    room.clock.set_wall_ms(time_ms + 1000)
    room.wait_for(room.append())  # stored, flushed and not in the index yet
    room.work()
    assert room.log.last_store_time_ms > time_ms
    assert room.log.flushed_offset == room.log.end_offset
    assert room.checkpoint.index_time_ms == time_ms - 1
    room.dispatch()
    room.flush()
    assert room.checkpoint.index_time_ms == time_ms
    room.stop()


def test_a_failed_sync_of_an_index_file_is_not_claimed_nor_any_after_it(room: FlushRoom) -> None:
    fill_index(room)
    room.wait_until(1000)
    fail_next_sync(room, IndexFlushJob)
    assert "index" in (room.flushing.derived_unsafe_reason or "")
    while len(room.index.files) < 5:
        room.put()
    room.wait_until(20_000)
    room.work()
    room.stop()
    assert room.saved().index_time_ms == 0


def test_an_index_that_cannot_be_synced_at_the_stop_takes_the_clean_stop(room: FlushRoom) -> None:
    room.put()
    room.flush()
    room.disk.fail("fdatasync", EIO)
    room.stop()
    assert "index" in (room.flushing.derived_unsafe_reason or "")


def test_queue_files_that_cannot_be_opened_count_as_unsafe(room: FlushRoom) -> None:
    room.put()
    room.queues.close()
    room.disk.fail("open", errno.EMFILE)
    room.wait_until(THOROUGH_MS)
    assert room.flushing.derived_unsafe_reason is not None
    room.stop()
    assert room.checkpoint.queues_offset == 0


@pytest.mark.parametrize("kind", ["pwrite", "fdatasync"])
def test_a_checkpoint_that_cannot_be_written_is_tried_again(
    room: FlushRoom, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored = room.put()
    room.wait_for(stored)
    room.hands[0].work()
    room.flushing.tick()
    room.disk.fail(kind, EIO)
    room.wait_until(1000)
    room.work()
    assert any(message.startswith("checkpoint_not_saved") for message in caplog.messages)
    assert room.flushing.derived_unsafe_reason is None
    assert room.log.read_only_reason is None
    room.wait_until(2000)
    room.work()
    assert room.saved().log_time_ms == stored.store_time_ms
    room.stop()


def test_a_flush_says_that_the_checkpoint_was_not_written(room: FlushRoom) -> None:
    stored = room.put()
    room.wait_for(stored)
    room.work()
    room.wait_until(THOROUGH_MS)
    room.work()
    room.clock.advance_ms(1)
    room.checkpoint.confirmed_offset = stored.end
    room.disk.fail("fdatasync", EIO)
    with pytest.raises(StoreError, match="checkpoint could not be written"):
        room.flush()
    room.flush()
    assert room.saved().confirmed_offset == stored.end
    room.stop()


def test_what_is_claimed_while_the_checkpoint_is_under_way_is_written_with_the_next(
    room: FlushRoom,
) -> None:
    room.put()
    room.flush()
    room.checkpoint.confirmed_offset = 1
    room.wait_until(1000)
    room.checkpoint.confirmed_offset = 2
    room.wait_until(2000)
    assert sum(isinstance(job, CheckpointJob) for job in room.hands[1].waiting) == 1
    room.hands[1].work()
    room.flushing.tick()
    assert room.saved().confirmed_offset == 2
    room.hands[1].work()
    room.checkpoint.confirmed_offset = 3
    room.flushing.tick()
    room.wait_until(3000)
    room.work()
    assert room.saved().confirmed_offset == 3
    room.stop()


def test_a_checkpoint_that_says_nothing_new_is_not_written_again(room: FlushRoom) -> None:
    room.put()
    room.flush()
    before = room.disk.calls.copy()
    room.wait_until(5000)
    assert not any(isinstance(job, CheckpointJob) for job in room.hands[1].waiting)
    assert (room.disk.calls - before)["pwrite"] == 0
    room.stop()


def test_what_the_checkpoint_claims_of_records_that_were_cut_off_is_taken_back(
    tmp_path: Path,
) -> None:
    before = Checkpoint(ProcessFiles(), tmp_path / "checkpoint")
    before.load()
    before.log_time_ms = before.queues_time_ms = before.index_time_ms = 10**15
    before.queues_offset, before.confirmed_offset = 10**6, 7
    before.flush()
    before.close()
    room = FlushRoom(tmp_path).open()
    saved = room.saved()
    assert (saved.log_time_ms, saved.queues_time_ms, saved.index_time_ms, saved.queues_offset) == (
        0,
        0,
        0,
        0,
    )
    assert saved.confirmed_offset == 0
    room.stop()
