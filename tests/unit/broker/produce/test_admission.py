"""When sends are refused because the broker is behind, what their senders are told, and that both
ways of a send go by one rule.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.broker.observability.watermarks import WaterMark
from orbitmq.broker.produce.admission import BEAT_MS, LAG_WINDOW_MS, Admission, Cause, Meters
from orbitmq.common.errors import WriteFailedError
from orbitmq.protocol import frame
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.store.config import FlushMode
from orbitmq.testing.faulty_disk import FaultyDisk
from orbitmq.testing.manual_clock import ManualClock
from support.broker.settings import broker_settings
from support.broker.two_paths import SEND, PathRoom, TwoRooms, request
from support.common.process_files import ProcessFiles
from support.store.stores import opened_store, order

V2 = RequestCode.SEND_MESSAGE_V2


class Loop:
    """A loop that is held for as long, and by what, the test says."""

    def __init__(self) -> None:
        self.settings = broker_settings()
        self.now_ms = self.write_ms = self.cpu_ms = 0
        self.waiting = WaterMark(0, 0)
        meters = Meters(
            slow_replica=lambda: None,
            write_ms=lambda: self.write_ms,
            cpu_ms=lambda: self.cpu_ms,
            waiting=lambda _: self.waiting,
        )
        self.admission = Admission(self.settings, meters)

    def hold(self, held_ms: int, *, write_ms: int = 0, cpu_ms: int = 0) -> None:
        self.now_ms += held_ms
        self.write_ms += write_ms
        self.cpu_ms += cpu_ms

    def beat(self) -> None:
        self.admission.beat(self.now_ms)

    def refusal(self) -> tuple[str, Cause] | None:
        """The mark of the remark and its cause."""
        busy = self.admission.refusal(self.now_ms)
        return None if busy is None else (busy.remark[1:].partition("]")[0], busy.cause)


@pytest.fixture
def loop() -> Loop:
    loop = Loop()
    loop.beat()
    return loop


def test_the_longest_lag_of_late_is_remembered_for_a_window_or_two(loop: Loop) -> None:
    loop.beat()
    loop.hold(BEAT_MS + 70)
    loop.beat()
    loop.hold(BEAT_MS + 20)
    loop.beat()
    assert loop.admission.loop_lag.max_ms(loop.now_ms) == 70
    assert loop.admission.loop_lag.max_ms(loop.now_ms + LAG_WINDOW_MS) == 70
    assert loop.admission.loop_lag.max_ms(loop.now_ms + 2 * LAG_WINDOW_MS) == 0


def test_before_the_first_beat_nothing_is_late() -> None:
    loop = Loop()
    loop.hold(60_000, write_ms=60_000)
    assert (loop.admission.lag_ms(loop.now_ms), loop.refusal()) == (0, None)


def test_the_lag_is_how_late_the_beat_is(loop: Loop) -> None:
    loop.hold(BEAT_MS)
    assert loop.admission.lag_ms(loop.now_ms) == 0
    loop.hold(7)
    assert loop.admission.lag_ms(loop.now_ms) == 7
    loop.beat()
    assert loop.admission.lag_ms(loop.now_ms) == 0


@dataclass(frozen=True, kw_only=True)
class Case:
    """A lag, that of the beat before, and what took the time."""

    before_ms: int = 0
    lag_ms: int
    write_ms: int = 0
    cpu_ms: int = 0
    expected: tuple[str, Cause] | None


PCBUSY, TIMEOUT = "PCBUSY_CLEAN_QUEUE", "TIMEOUT_CLEAN_QUEUE"
RULES = {
    "a write at the limit": Case(lag_ms=1000, write_ms=1100, expected=None),
    "a write above it": Case(lag_ms=1001, write_ms=1101, expected=(PCBUSY, Cause.DISK_WRITE)),
    "half of it a write": Case(lag_ms=1002, write_ms=501, expected=(PCBUSY, Cause.DISK_WRITE)),
    "less than half of it a write": Case(lag_ms=1002, write_ms=500, expected=None),
    "one hiccup, however long": Case(lag_ms=30_000, cpu_ms=30_000, expected=None),
    "two in a row at the limit": Case(before_ms=200, lag_ms=200, cpu_ms=300, expected=None),
    "the second not above it": Case(before_ms=900, lag_ms=200, cpu_ms=300, expected=None),
    "the first not above it": Case(before_ms=200, lag_ms=900, cpu_ms=900, expected=None),
    "two in a row by computing": Case(
        before_ms=201, lag_ms=201, cpu_ms=301, expected=(TIMEOUT, Cause.CPU)
    ),
    "two in a row by writing": Case(
        before_ms=201, lag_ms=300, write_ms=150, cpu_ms=150, expected=(TIMEOUT, Cause.DISK_WRITE)
    ),
    "two in a row by neither": Case(
        before_ms=500, lag_ms=500, write_ms=249, cpu_ms=249, expected=None
    ),
    "two in a row, and a long write": Case(
        before_ms=500, lag_ms=1500, write_ms=1500, expected=(PCBUSY, Cause.DISK_WRITE)
    ),
}


@pytest.mark.parametrize("case", RULES.values(), ids=RULES.keys())
def test_the_rules(loop: Loop, case: Case) -> None:
    loop.hold(
        BEAT_MS + case.before_ms, write_ms=50_000, cpu_ms=50_000
    )  # what was before the last beat counts for nothing now
    loop.beat()
    loop.hold(BEAT_MS + case.lag_ms, write_ms=case.write_ms, cpu_ms=case.cpu_ms)
    assert loop.refusal() == case.expected
    loop.settings.broker_fast_failure_enable = False
    assert loop.refusal() is None
    loop.settings.broker_fast_failure_enable = True
    loop.beat()
    assert loop.refusal() is None, "the beat came: whoever is read now did not wait"


def test_limits_are_those_of_the_configuration_as_it_is_now(loop: Loop) -> None:
    loop.hold(BEAT_MS + 60, write_ms=60)
    assert loop.refusal() is None
    loop.settings.os_page_cache_busy_time_out_mills = 59
    assert loop.refusal() == (PCBUSY, Cause.DISK_WRITE)
    loop.beat()
    loop.hold(BEAT_MS + 31, cpu_ms=31)
    loop.settings.wait_time_mills_in_send_queue = 30
    assert loop.refusal() == (TIMEOUT, Cause.CPU)


def test_those_that_wait_for_the_disk_are_bounded_with_fast_failure_or_without(loop: Loop) -> None:
    loop.settings.broker_fast_failure_enable = False
    loop.waiting = WaterMark(9_999, 800)
    assert loop.refusal() is None
    loop.waiting = WaterMark(10_000, 800)
    assert loop.refusal() == ("OVERLOAD", Cause.DISK_SYNC)


@pytest.mark.parametrize(
    ("before_ms", "write_ms", "cpu_ms", "waiting", "says"),
    [
        (0, 1300, 0, 5, ("period in queue: 1300ms, size of queue: 5", "1300 of the last 1400 ms", "osPageCacheBusyTimeOutMills=1000")),
        (300, 0, 1350, 0, ("period in queue: 1300ms", "computed for 1350 of the last 1400 ms", "waitTimeMillsInSendQueue=200", "batches")),
        (0, 0, 0, 12_000, ("12000 messages wait", "the first for 700 ms", "the limit is 10000 (sendThreadPoolQueueCapacity)", "storePathCommitLog")),  # noqa: E501
    ],
    ids=["disk", "cpu", "sync"],
)  # fmt: skip
def test_a_remark_names_the_wait_its_cause_and_what_to_do(
    loop: Loop, before_ms: int, write_ms: int, cpu_ms: int, waiting: int, says: tuple[str, ...]
) -> None:
    loop.hold(BEAT_MS + before_ms)
    loop.beat()
    loop.hold(1400, write_ms=write_ms, cpu_ms=cpu_ms)
    loop.waiting = WaterMark(waiting, 700)
    busy = loop.admission.refusal(loop.now_ms)
    assert busy is not None
    for part in (*says, "start flow control for a while", "retry in a moment", "If it persists"):
        assert part in busy.remark, busy.remark


# -- what the store measures


def test_the_store_knows_how_long_its_writes_of_the_log_took(tmp_path: Path) -> None:
    clock, disk = ManualClock(), FaultyDisk(ProcessFiles(), tmp_path)
    store = opened_store(tmp_path, disk, clock)

    def stall(elapsed_ms: int) -> None:
        """Let the next write take so long, and no other."""
        waits = iter([elapsed_ms])
        disk.stall("pwrite", lambda: clock.advance_ms(next(waits, 0)))

    store.put(order(1))
    assert store.log_write_ms == 0
    stall(300)
    store.put(order(2))
    assert store.log_write_ms == 300
    stall(40)
    disk.fail("pwrite", errno.EIO)
    with pytest.raises(WriteFailedError):
        store.put(order(3))
    assert store.log_write_ms == 340, "a write that failed took its time, too"
    store.close()


# -- both ways of a send


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[TwoRooms]:
    made = TwoRooms(tmp_path)
    yield made
    made.close()


def sends(count: int) -> list[bytes]:
    return [request(V2, SEND, b"%d" % number, opaque=number) for number in range(count)]


def codes(answers: list[RemotingCommand]) -> list[int]:
    return [answer.code for answer in answers]


def beat(*rooms: PathRoom) -> None:
    for room in rooms:
        room.admission.beat(room.clock.monotonic_ms())


def test_sends_behind_a_write_that_held_the_loop_are_refused_both_ways_until_the_beat(
    rooms: TwoRooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(*rooms.both)
    with monkeypatch.context() as patched:
        for room in rooms.both:
            commit, clock = room.store.log.commit, room.clock
            patched.setattr(
                room.store.log,
                "commit",
                lambda commit=commit, clock=clock: (clock.advance_ms(1500), commit()),
            )
        assert codes(rooms.sent(sends(1))) == [ResponseCode.SUCCESS], (
            "the one that was held is stored"
        )
    ends = [room.store.log.end_offset for room in rooms.both]
    refused = rooms.sent(sends(3))
    assert codes(refused) == [ResponseCode.SYSTEM_BUSY] * 3
    assert {
        answer.remark
        for answer in refused
        if answer.remark and answer.remark.startswith("[PCBUSY_CLEAN_QUEUE]")
    } == {refused[0].remark}
    assert "period in queue: 1400ms" in (refused[0].remark or "")
    assert [room.store.log.end_offset for room in rooms.both] == ends
    assert rooms.fast.totals.sums["refused", "disk_write"] == 3
    assert rooms.sent([request(V2, SEND, b"x", flag=2)]) == [], (
        "nor is one stored that nobody waits for"
    )
    beat(*rooms.both)
    general = len(rooms.fast.general)
    assert codes(rooms.sent(sends(3))) == [ResponseCode.SUCCESS] * 3
    assert len(rooms.fast.general) == general


def test_sends_are_refused_both_ways_while_the_loop_is_late_again_and_again(
    rooms: TwoRooms,
) -> None:
    beat(*rooms.both)
    told = []
    for _ in range(3):
        for room in rooms.both:
            room.clock.advance_ms(BEAT_MS + 250)
            room.cpu_ms += 250
        told += codes(rooms.sent(sends(1)))
        beat(*rooms.both)
    assert told == [ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY]
    assert codes(rooms.sent(sends(1))) == [ResponseCode.SUCCESS]


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "general"])
def test_no_more_messages_wait_for_the_disk_than_may(tmp_path: Path, fast: bool) -> None:
    disk, synced = FaultyDisk(ProcessFiles(), tmp_path), threading.Event()
    room = PathRoom(tmp_path, fast=fast, flush_mode=FlushMode.SYNC, layer=disk)
    room.settings.send_thread_pool_queue_capacity = 5
    room.turn((2, sends(1)[0]))  # which makes the file
    room.store.flushing.flush_log()
    disk.stall("fdatasync", lambda: synced.wait(60))
    room.turn((0, b"".join(sends(3))))
    room.clock.advance_ms(30)
    room.turn((0, b"".join(sends(3)[:2])))
    assert room._waiting(room.clock.monotonic_ms()) == WaterMark(5, 30)
    assert room.answers()[0][0] == []
    room.turn((1, sends(1)[0]))
    (refused,) = [frame.decode_one(data) for _, data in room.answers()[1][0]]
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert (refused.remark or "").startswith(
        "[OVERLOAD]system busy, start flow control for a while: 5 messages wait for the disk"
    )
    assert "the first for 30 ms" in (refused.remark or "")
    synced.set()
    room.store.flushing.flush_log()
    assert len(room.answers()[0][0]) == 5
    assert room._waiting(room.clock.monotonic_ms()) == WaterMark(0, 0)
    room.turn((1, sends(1)[0]))
    room.store.flushing.flush_log()
    assert len(room.answers()[1][0]) == 1
    room.close()


# -- what the store refuses


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "general"])
def test_a_disk_that_is_full_is_told_with_its_use_the_limit_and_the_remedy(
    tmp_path: Path, fast: bool
) -> None:
    disk = FaultyDisk(ProcessFiles(), tmp_path)
    room = PathRoom(tmp_path, fast=fast, layer=disk)
    (folder,) = room.store.config.log_folders()
    disk.ratios[folder] = 0.952
    room.clock.advance_ms(60_000)
    room.store.tick()
    room.turn((0, b"".join(sends(2))))
    told = [frame.decode_one(data) for _, data in room.answers()[0][0]]
    assert codes(told) == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    for part in (
        f"the disk of {folder} is 95.2% full",
        "above 90%",
        "diskSpaceWarningLevelRatio",
        "free space there",
    ):
        assert part in (told[0].remark or "")
    assert room.totals.sums["refused", "disk_full"] == 2
    disk.ratios[folder] = 0.5
    room.clock.advance_ms(60_000)
    room.store.tick()
    room.turn((0, sends(1)[0]))
    assert [frame.decode_one(data).code for _, data in room.answers()[0][0]] == [
        ResponseCode.SUCCESS
    ], "by itself"
    room.close()


def test_a_log_that_takes_nothing_more_is_counted_as_a_failure_of_the_disk(rooms: TwoRooms) -> None:
    for room in rooms.both:
        room.store.log._become_read_only(OSError("broken"))
    assert codes(rooms.sent(sends(2))) == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    assert rooms.fast.totals.sums["refused", "disk_error"] == 2
