"""Flushing by the real threads: a disk that stalls or hangs, the stop, and the worker that makes
files ahead.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import pytest

from orbitmq.common.errors import StoreError
from orbitmq.store.config import FlushMode
from orbitmq.store.files_worker import PREPARE_AGAIN_MS
from orbitmq.store.flush import coordinator as flushing_module
from orbitmq.store.flush.fsync_thread import Flusher
from orbitmq.store.flush.group_commit import Outcome
from orbitmq.store.types import LogOffset, StoreTimeMs
from support.store.flushing import FlushRoom, syncs

DONE, TIMED_OUT = Outcome.DONE, Outcome.TIMED_OUT
ENOSPC = errno.ENOSPC
THOROUGH_MS = 60_000
WAIT_S = 60


# -- with the real threads


class Stall:
    """Holds every sync until `end`."""

    def __init__(self, room: FlushRoom) -> None:
        self.begun, self._over = threading.Event(), threading.Event()
        self._room = room
        room.disk.stall("fdatasync", self._wait)

    def _wait(self) -> None:
        self.begun.set()
        assert self._over.wait(WAIT_S)

    def end(self) -> None:
        self._over.set()
        self._room.disk.heal()


@pytest.fixture
def threads_room(tmp_path: Path) -> tuple[FlushRoom, Callable[[], None]]:
    """A room with its own threads, and a function that waits for a report, of whatever was synced,
    and takes it.
    """
    bell: SimpleQueue[None] = SimpleQueue()
    room = FlushRoom(
        tmp_path / "store",
        FlushMode.SYNC,
        make_flusher=Flusher,
        notify=lambda: bell.put(None),
        commit_log_file_size=1 << 16,
    ).open()

    def hear() -> None:
        bell.get(timeout=WAIT_S)
        room.flushing.tick()

    return room, hear


def test_a_disk_that_stalls_for_half_a_second_delays_who_waits_and_nothing_else(
    threads_room: tuple[FlushRoom, Callable[[], None]],
) -> None:
    room, hear = threads_room
    room.put()
    hear()
    stall = Stall(room)
    room.wait_for(room.put())
    assert stall.begun.wait(WAIT_S)
    before = syncs(room)
    for moment_ms in range(10, 500, 10):
        room.wait_until(moment_ms)
        room.wait_for(room.append())
        room.flushing.written()
    assert room.outcomes == []
    stall.end()
    while len(room.outcomes) < 50:
        hear()
    assert room.outcomes == [(number, DONE) for number in range(1, 51)]
    assert syncs(room) - before <= 3, (
        "all that came meanwhile share a sync, or one for each of two files"
    )
    room.stop()


def test_a_stall_that_is_too_long_times_out_who_waits_and_the_record_is_safe_later(
    threads_room: tuple[FlushRoom, Callable[[], None]],
) -> None:
    room, hear = threads_room
    stored = room.put()
    while room.log.flushed_offset < stored.end:
        hear()
    stall = Stall(room)
    room.wait_for(room.put())
    assert stall.begun.wait(WAIT_S)
    room.wait_until(5000)
    assert room.outcomes == [(1, TIMED_OUT)]
    assert room.log.flushed_offset == stored.end
    stall.end()
    while room.log.flushed_offset < room.log.end_offset:
        hear()
    room.stop()


def test_stopping_waits_for_work_under_way_and_does_what_is_left(
    threads_room: tuple[FlushRoom, Callable[[], None]],
) -> None:
    room, _ = threads_room
    for queue_id in range(5):
        room.append(queue_id=queue_id)
    room.dispatch()
    stall = Stall(room)
    for stored in room.stored:
        room.wait_for(stored)
    assert stall.begun.wait(WAIT_S)
    last = room.append()
    end_of_stall = threading.Timer(0.05, stall.end)
    end_of_stall.start()
    room.dispatched = LogOffset(last.end), StoreTimeMs(last.store_time_ms)
    room.stop()
    end_of_stall.join()
    assert room.outcomes == [(number, DONE) for number in range(5)]
    assert room.log.flushed_offset == last.end
    assert room.saved().queues_offset == last.end


def test_stopping_ends_the_threads(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    room = FlushRoom(tmp_path / "store", make_flusher=Flusher).open()
    room.rest()
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert names == {"flusher", "flusher-derived", "files_0"}
    room.stop()
    assert set(threading.enumerate()) <= before


def test_stopping_does_not_wait_for_ever_for_a_disk_that_hangs(
    threads_room: tuple[FlushRoom, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    room, _ = threads_room
    monkeypatch.setattr(flushing_module, "_DISK_TIMEOUT_S", 0.01)
    stored = room.put()
    stall = Stall(room)
    room.wait_for(stored)
    room.flushing.written()
    room.wait_for(room.append())
    with pytest.raises(StoreError, match=r"did not finish a flush within 0\.01 s"):
        room.flushing.stop()
    assert set(room.outcomes) <= {(0, DONE), (1, TIMED_OUT), (0, TIMED_OUT)}
    assert (1, TIMED_OUT) in room.outcomes
    stall.end()


def test_the_log_does_not_wait_behind_queue_files(
    threads_room: tuple[FlushRoom, Callable[[], None]],
) -> None:
    room, hear = threads_room
    room.put()
    hear()
    held = threading.Event()
    derived = threading.Event()

    def wait() -> None:
        if threading.current_thread().name == "flusher-derived":
            derived.set()
            assert held.wait(WAIT_S)

    room.disk.stall("fdatasync", wait)
    room.wait_until(THOROUGH_MS)
    assert derived.wait(WAIT_S)
    room.wait_for(room.append())
    while not room.outcomes:
        hear()
    assert room.outcomes == [(1, DONE)]
    held.set()
    room.disk.heal()
    room.dispatch()
    room.stop()


# -- the worker


def log_files(room: FlushRoom) -> list[int]:
    return [int(path.name) for path in sorted((room.folder / "commitlog").iterdir())]


def test_the_next_file_is_there_before_it_is_needed(room: FlushRoom) -> None:
    room.put(bytes(1000))
    room.rest()
    assert log_files(room) == [0]
    room.put(bytes(1000))
    room.rest()
    assert log_files(room) == [0, 4096]
    room.put(bytes(2000))
    room.put(bytes(1000))
    room.rest()
    assert log_files(room) == [0, 4096, 8192]
    room.stop()
    assert log_files(room) == [0, 4096]


def test_a_file_that_cannot_be_made_ahead_is_told_once_and_tried_again_later(
    room: FlushRoom, caplog: pytest.LogCaptureFixture
) -> None:
    room.put(bytes(1000))
    room.disk.fail("truncate", ENOSPC, times=2)
    room.put(bytes(1200))
    for moment_ms in (
        1000,
        1000 + PREPARE_AGAIN_MS - 1,
        1000 + PREPARE_AGAIN_MS,
        2000 + PREPARE_AGAIN_MS,
    ):
        room.rest()
        room.wait_until(moment_ms)
    assert log_files(room) == [0]
    assert sum(message.startswith("next_file_not_prepared") for message in caplog.messages) == 1
    caplog.set_level("INFO")
    room.wait_until(2000 + 2 * PREPARE_AGAIN_MS)
    room.rest()
    room.flushing.tick()
    assert log_files(room) == [0, 4096]
    assert "next_file_prepared_again" in caplog.messages
    room.work()
    room.stop()


def test_the_worker_tells_what_became_of_what_it_was_given(room: FlushRoom) -> None:
    assert (
        room.flushing.run_in_worker(lambda: threading.current_thread().name)
        .result(WAIT_S)
        .startswith("files")
    )
    assert isinstance(room.flushing.run_in_worker(lambda: [][1]).exception(WAIT_S), IndexError)
    room.stop()
