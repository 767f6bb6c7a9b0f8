"""A disk that refuses, at each call of a fixed life of a store: L4 of the fault ladder.

Whatever call fails, the store says so with an error of its own that has the reason, keeps what it
acknowledged, makes nothing up, and works again when the disk does; but for a failed sync of the
log: then it takes nothing more until it is opened again.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from crash import store_load
from crash.store_verify import Place, Report, differences, look
from orbitmq.common.errors import OrbitError, StoreError, StoreReadOnlyError
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.flush.group_commit import Outcome
from orbitmq.store.index_file import IndexShape
from orbitmq.store.log_batch import Appended
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.faulty_disk import FaultyDisk
from orbitmq.testing.manual_clock import ManualClock
from support.store.indexes import UnsyncedLayer

BATCHES = (
    1,
    7,
    3,
    12,
    1,
    12,
    12,
    5,
)  # the log, each queue and the index begin a second file on the way
TRIES = 4


class _Ended(Exception):
    """The store must be opened again, and is not to be."""


class Scenario:
    """Open, write, flush, stop, open and write again, on a disk where one call fails; each step is
    tried again until it succeeds.
    """

    def __init__(
        self, root: Path, mode: FlushMode = FlushMode.ASYNC, *, ends_when_damaged: bool = False
    ) -> None:
        root.mkdir()
        self.disk = FaultyDisk(UnsyncedLayer(), root)
        self.refusals: list[str] = []
        self.attempted = 0
        self.acknowledged: dict[int, Place] = {}
        self.root = root
        self._mode = mode
        self._ends_when_damaged = ends_when_damaged
        self._clock = ManualClock()
        self._store = self._made()

    def run(self) -> None:
        """Live through all of it, or until the store must be opened again, if it is not to be
        then.
        """
        with suppress(_Ended):
            self._run()

    def close(self) -> None:
        """Stop the store; what cannot be done is said."""
        try:
            self._store.close()
        except OrbitError as error:
            self.refusals.append(str(error))

    def _run(self) -> None:
        self._try(self._open)
        for count in BATCHES:
            self._try(lambda count=count: self._write(count))  # type: ignore[misc]
            self._clock.advance_ms(700)
        self._try(lambda: self._store.flush())
        self._restart()
        self._try(lambda: self._write(3))
        self._try(lambda: self._store.flush())
        if not self._ends_when_damaged:
            self.close()

    def look(self, root: Path) -> Report:
        """What can be read afterwards, on a disk without faults."""
        store = MessageStore(UnsyncedLayer(), self._clock, store_load.small(root), store_load.HOST)
        store.open()
        report = Report("disk faults", 0)
        look(store, report, self.attempted, self.acknowledged)
        if root == self.root:
            assert not differences(store, root.with_name(f"{root.name}-rebuilt"))
        store.close()
        return report

    def _made(self) -> MessageStore:
        return MessageStore(
            self.disk,
            self._clock,
            store_load.small(self.root, flush_mode=self._mode),
            store_load.HOST,
        )

    def _open(self) -> None:
        self._store = self._made()
        self._store.open()

    def _restart(self) -> None:
        self.close()
        self._try(self._open)

    def _write(self, count: int) -> None:
        store = self._store
        store.tick()
        first = self.attempted
        self.attempted += count
        batch = [
            (number, store.append(store_load.message(number)))
            for number in range(first, first + count)
        ]
        store.commit()
        if self._mode is FlushMode.ASYNC:
            self._acknowledge(batch)
        else:
            store.when_durable(
                batch[-1][1].end,
                lambda outcome: self._acknowledge(batch) if outcome is Outcome.DONE else None,
            )

    def _acknowledge(self, batch: list[tuple[int, Appended]]) -> None:
        self.acknowledged.update(
            (number, (store_load.queue_of(number), int(appended.queue_offset)))
            for number, appended in batch
        )

    def _try(self, step: Callable[[], None]) -> None:
        """Do it, again and again while the store refuses; a store that says that it has to be
        opened again is.
        """
        for _ in range(TRIES):
            try:
                step()
            except OrbitError as error:
                self.refusals.append(str(error))
                if "restart the broker" in str(error) and step != self._open:
                    if self._ends_when_damaged:
                        raise _Ended from error
                    self._restart()
            else:
                return
        raise AssertionError(f"the fault is over, and still: {self.refusals[-1]}")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How often the life of a store that meets no fault makes each kind of call."""
    scenario = Scenario(tmp_path_factory.mktemp("calls") / "store")
    scenario.run()
    report = scenario.look(scenario.root)
    assert (report.lost, report.phantom, scenario.refusals) == (0, 0, [])
    assert len(scenario.acknowledged) == sum(BATCHES) + 3
    return dict(scenario.disk.calls)


@pytest.mark.parametrize(
    ("kind", "error", "partial_bytes", "stride"),
    [
        ("pwrite", errno.ENOSPC, 0, 2),
        ("pwrite", errno.ENOSPC, 30, 5),
        ("pwrite", errno.EIO, 0, 7),
        ("truncate", errno.ENOSPC, 0, 1),
        ("open", errno.EIO, 0, 3),
        ("make_folder", errno.ENOSPC, 0, 1),
        ("fdatasync", errno.EIO, 0, 2),
        ("sync_dir", errno.EIO, 0, 2),
        ("clear", errno.EIO, 0, 2),
        ("unlink", errno.EIO, 0, 1),
        ("map", errno.ENOMEM, 0, 1),
        ("pread", errno.EIO, 0, 5),
        ("list", errno.EIO, 0, 2),
        ("size", errno.EIO, 0, 3),
    ],
)
def test_whatever_call_fails_nothing_acknowledged_is_lost_and_the_store_works_again(
    calls: dict[str, int], kind: str, error: int, partial_bytes: int, stride: int, tmp_path: Path
) -> None:
    assert calls[kind] > 0
    for number in range(0, calls[kind] + 2, stride):
        scenario = Scenario(tmp_path / str(number))
        scenario.disk.fail(kind, error, after=number, partial_bytes=partial_bytes)
        scenario.run()
        for refusal in scenario.refusals:
            assert os.strerror(error) in refusal or "see the log for the reason" in refusal, (
                number,
                refusal,
            )
        report = scenario.look(scenario.root)
        assert (report.lost, report.duplicated, report.reordered, report.phantom, report.gaps) == (
            0,
            0,
            0,
            0,
            0,
        ), (number, report.line())


def test_a_failed_sync_never_becomes_an_acknowledgement_not_even_if_the_power_goes_then(
    calls: dict[str, int], tmp_path: Path
) -> None:
    for number in range(0, calls["fdatasync"] + 2, 2):
        scenario = Scenario(tmp_path / str(number), FlushMode.SYNC, ends_when_damaged=True)
        scenario.disk.fail("fdatasync", errno.EIO, after=number)
        scenario.run()
        scenario.disk.power_cut(tmp_path / f"{number}-cut")
        scenario.close()
        report = scenario.look(tmp_path / f"{number}-cut")
        assert (report.lost, report.phantom) == (0, 0), (number, report.line())


def test_a_log_that_could_not_be_synced_takes_nothing_more_and_says_why_until_it_is_opened_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "store").mkdir()
    disk = FaultyDisk(UnsyncedLayer(), tmp_path / "store")
    store = MessageStore(disk, ManualClock(), store_load.small(tmp_path / "store"), store_load.HOST)
    store.open()
    store.put(store_load.message(0))
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(StoreError, match="Input/output error"):
        store.flush()
    disk.heal()
    assert store.log.read_only_reason is not None
    for _ in range(2):
        with pytest.raises(StoreReadOnlyError, match="restart the broker"):
            store.put(store_load.message(1))
    assert store.reads.get(store_load.queue_of(0), QueueOffset(0), count_max=1).record_count == 1, (
        "what is there can still be read"
    )
    store.close()
    again = MessageStore(disk, ManualClock(), store_load.small(tmp_path / "store"), store_load.HOST)
    assert not again.open().clean
    again.put(store_load.message(1))
    again.close()


def test_who_waits_for_a_disk_that_hangs_is_told_after_the_time_that_is_configured(
    tmp_path: Path,
) -> None:
    (tmp_path / "store").mkdir()
    disk, clock = FaultyDisk(UnsyncedLayer(), tmp_path / "store"), ManualClock()
    sync = StoreConfig(
        root=tmp_path / "store",
        commit_log_file_size=1 << 20,
        flush_mode=FlushMode.SYNC,
        sync_flush_timeout_ms=700,
    )
    store = MessageStore(disk, clock, sync, store_load.HOST)
    store.open()
    for number in range(20):
        store.put(store_load.message(number))  # every queue has its file
    store.flush()
    hanging, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        assert go_on.wait(30)

    disk.stall("fdatasync", hang)
    outcomes: list[Outcome] = []
    store.when_durable(store.put(store_load.message(20)).end, outcomes.append)
    assert hanging.wait(30), "the flusher is at work"
    clock.advance_ms(699)
    store.tick()
    assert outcomes == []
    clock.advance_ms(1)
    store.tick()
    assert outcomes == [Outcome.TIMED_OUT]
    go_on.set()
    disk.heal()
    store.flush()
    store.close()


def test_while_the_disk_hangs_in_a_sync_messages_are_taken_and_read_and_only_who_asked_waits(
    tmp_path: Path,
) -> None:
    (tmp_path / "store").mkdir()
    disk = FaultyDisk(UnsyncedLayer(), tmp_path / "store")
    clock = ManualClock()
    large = replace(
        StoreConfig(root=tmp_path / "store"),
        commit_log_file_size=1 << 20,
        index_shape=IndexShape(slots=31, entries=1000),
    )
    store = MessageStore(disk, clock, large, store_load.HOST)
    store.open()
    for number in range(20):
        store.put(store_load.message(number))  # every queue has its file
    store.flush()
    hanging, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        assert go_on.wait(30)

    disk.stall("fdatasync", hang)
    outcomes: list[Outcome] = []
    store.when_durable(store.put(store_load.message(20)).end, outcomes.append)
    assert hanging.wait(30), "the flusher is at work"
    for number in range(21, 40):
        store.put(store_load.message(number))
        clock.advance_ms(25)
        store.tick()
    key = QueueKey("orders", 0)
    assert store.reads.get(key, QueueOffset(0), count_max=32).record_count == sum(
        store_load.queue_of(n) == key for n in range(40)
    )
    assert outcomes == []
    go_on.set()
    disk.heal()
    store.flush()
    assert outcomes == [Outcome.DONE]
    store.close()
