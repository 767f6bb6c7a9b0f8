"""When to flush, who waits for it, and the thread that does it."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from queue import Queue
from typing import NamedTuple

import pytest

from orbitmq.common.errors import StoreError
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.flush.fsync_thread import Flusher, FlushReport
from orbitmq.store.flush.group_commit import GroupCommit, Outcome
from orbitmq.store.flush.schedule import FlushDue, FlushSchedule, dirty_pages
from orbitmq.testing.faulty_disk import FaultyDisk
from support.common.process_files import ProcessFiles

PAGE = 4096


def schedule(mode: FlushMode = FlushMode.ASYNC) -> FlushSchedule:
    return FlushSchedule(StoreConfig(root=Path("unused"), flush_mode=mode), 1000)


def test_an_asynchronous_log_is_flushed_every_half_second_that_finds_four_pages() -> None:
    plan = schedule()
    assert not plan.due(1499, 0, 100 * PAGE).log
    assert plan.due(1500, 0, 4 * PAGE).log
    assert not plan.due(1501, 0, 100 * PAGE).log
    assert not plan.due(2000, PAGE - 1, 4 * PAGE - 1).log, "three pages"
    assert plan.due(2500, PAGE - 1, 4 * PAGE).log, "four, as the original counts them"


def test_whatever_is_dirty_is_flushed_after_ten_seconds() -> None:
    plan = schedule()
    assert not plan.due(10_999, 0, 1).log
    assert plan.due(11_499, 0, 1).log
    assert not plan.due(20_999, 1, 2).log
    assert plan.due(21_500, 1, 2).log
    assert not plan.due(40_000, 2, 2).log, "nothing is dirty"


def test_a_synchronous_log_is_flushed_whenever_it_is_dirty() -> None:
    plan = schedule(FlushMode.SYNC)
    assert plan.due(1000, 0, 1).log
    assert plan.due(1000, 0, 2).log
    assert not plan.due(1000, 2, 2).log


def test_queues_are_flushed_every_second_and_thoroughly_every_minute() -> None:
    plan = schedule()
    found = [plan.due(now_ms, 0, 0).queues_pages_min for now_ms in range(1000, 130_000, 500)]
    assert found[:6] == [None, None, 2, None, 2, None]
    assert [number * 500 + 1000 for number, pages in enumerate(found) if pages == 0] == [
        61_000,
        121_000,
    ]


def test_the_checkpoint_is_written_every_second() -> None:
    plan = schedule()
    assert [
        plan.due(now_ms, 0, 0).checkpoint for now_ms in (1999, 2000, 2001, 3000, 9000, 9999, 10_000)
    ] == [
        False,
        True,
        False,
        True,
        True,
        False,
        True,
    ]


def test_the_schedule_says_when_to_ask_again() -> None:
    plan = schedule()
    assert plan.next_ms == 1500
    assert plan.due(1500, 0, 0) == FlushDue(log=False, queues_pages_min=None, checkpoint=False)
    assert plan.next_ms == 2000
    assert plan.due(2300, 0, 0) == FlushDue(log=False, queues_pages_min=2, checkpoint=True)
    assert plan.next_ms == 2800


def test_dirty_pages_are_those_that_begin_behind_what_is_flushed() -> None:
    assert [
        dirty_pages(*span) for span in ((0, 0), (0, PAGE - 1), (1, PAGE), (PAGE - 1, 2 * PAGE))
    ] == [0, 0, 1, 2]


def test_a_ticket_for_what_is_safe_already_does_not_wait() -> None:
    tickets: GroupCommit[str] = GroupCommit(100)
    assert tickets.ticket(100, 0, "a") is Outcome.DONE
    assert tickets.ticket(101, 0, "b") is None
    assert (len(tickets), tickets.next_deadline_ms) == (1, 0)
    assert tickets.fail() == ["b"]
    assert tickets.ticket(101, 0, "c") is Outcome.FAILED
    assert tickets.ticket(100, 0, "d") is Outcome.DONE
    assert len(tickets) == 0


class Job(NamedTuple):
    descriptors: tuple[int, ...]
    name: str = ""


class Desk:
    """A flusher whose reports are kept."""

    def __init__(self, folder: Path) -> None:
        self.disk = FaultyDisk(ProcessFiles(), folder)
        self.reports: Queue[list[FlushReport[Job]]] = Queue()
        self.flusher: Flusher[Job] = Flusher(self.disk, self.reports.put)
        self.descriptors = [
            self.disk.open(folder / str(number), create=True) for number in range(3)
        ]
        self.begun, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def hold(self) -> None:
        """Let each sync wait until it is let go."""

        def wait() -> None:
            self.begun.release()
            assert self.go_on.acquire(timeout=60)

        self.disk.stall("fdatasync", wait)

    def report(self) -> list[tuple[str, Exception | None]]:
        return [(each.job.name, each.error) for each in self.reports.get(timeout=60)]


def test_a_job_is_reported_when_its_descriptors_are_synced(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.flusher.start()
    desk.flusher.submit(Job(tuple(desk.descriptors), "all"))
    assert desk.report() == [("all", None)]
    assert desk.disk.calls["fdatasync"] == 3
    desk.flusher.stop()


def test_jobs_that_arrive_meanwhile_share_one_sync(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    a, b, _ = desk.descriptors
    desk.hold()
    desk.flusher.start()
    desk.flusher.submit(Job((a,), "first"))
    assert desk.begun.acquire(timeout=60)
    for number in range(20):
        desk.flusher.submit(Job((a, b), str(number)))
    desk.go_on.release(3)
    assert desk.report() == [("first", None)]
    assert desk.report() == [(str(number), None) for number in range(20)]
    assert desk.disk.calls["fdatasync"] == 3
    desk.flusher.stop()


def test_an_error_is_reported_to_the_jobs_that_it_spoils_and_the_thread_goes_on(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    a, b, c = desk.descriptors
    desk.disk.fail("fdatasync", errno.EIO, after=1)
    for job in (Job((a,), "a"), Job((b, c), "bc"), Job((a, c), "ac"), Job((b,), "b")):
        desk.flusher.submit(job)
    desk.flusher.start()
    errors = dict(desk.report())
    assert {name: isinstance(error, OSError) for name, error in errors.items()} == {
        "a": False,
        "bc": True,
        "ac": False,
        "b": True,
    }
    desk.flusher.submit(Job((b,), "again"))
    assert desk.report() == [("again", None)]
    desk.flusher.stop()


def test_a_descriptor_that_is_none_is_a_report_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.flusher.start()
    desk.flusher.submit(Job((12345,), "bad"))
    [(name, error)] = desk.report()
    assert (name, type(error)) == ("bad", KeyError)
    desk.flusher.stop()


def test_a_listener_that_fails_does_not_end_the_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard: Queue[str] = Queue()

    def listen(reports: list[FlushReport[Job]]) -> None:
        heard.put(reports[0].job.name)
        raise RuntimeError("the loop is closed")

    flusher: Flusher[Job] = Flusher(ProcessFiles(), listen)
    flusher.start()
    for name in ("one", "two"):
        flusher.submit(Job((), name))
        assert heard.get(timeout=60) == name
    flusher.stop()
    assert [record.message for record in caplog.records] == ["flush_report_lost jobs=1"] * 2


def test_stopping_finishes_what_was_handed_in(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for number in range(5):
        desk.flusher.submit(Job((desk.descriptors[number % 3],), str(number)))
    desk.flusher.start()
    desk.flusher.stop()
    desk.flusher.stop()
    reported = [name for _ in range(desk.reports.qsize()) for name, _ in desk.report()]
    assert reported == ["0", "1", "2", "3", "4"]
    with pytest.raises(StoreError, match="was stopped"):
        desk.flusher.submit(Job(()))


def test_stopping_does_not_wait_for_ever_for_a_disk_that_hangs(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.hold()
    desk.flusher.start()
    desk.flusher.submit(Job((desk.descriptors[0],)))
    assert desk.begun.acquire(timeout=60)
    with pytest.raises(StoreError, match=r"did not finish a flush within 0\.01 s"):
        desk.flusher.stop(0.01)
    desk.go_on.release()
    desk.flusher.stop()
