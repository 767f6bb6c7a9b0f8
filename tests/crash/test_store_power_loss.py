"""A store without power: every write that was not synced is there, is not there, or is torn, at
random moments: L2 of the fault ladder.

A life writes to a store on a `FaultyDisk` until chance has cut the power often enough; each cut
gives a folder as it may be found then, which is opened and read. The last of them is where the next
life goes on. A cut falls on any call to the disk, those of recovery and of the stop included. Some
dozens of seeds in every run of the tests; `ORBITMQ_CRASH_ROUNDS` times five by `make crash`.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from crash import store_load
from crash.store_verify import Place, Report, differences, look
from orbitmq.common import atomic_file
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.flush.group_commit import Outcome
from orbitmq.store.log_batch import Appended
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.faulty_disk import FaultyDisk
from orbitmq.testing.manual_clock import ManualClock
from support.store.indexes import UnsyncedLayer

CHANGES = (
    "open",
    "pwrite",
    "truncate",
    "clear",
    "fdatasync",
    "rename",
    "unlink",
    "sync_dir",
    "make_folder",
    "remove_folder",
)
LIVES = 3
CUTS = 3
STEPS = 30
ROUNDS = 5 * int(os.environ.get("ORBITMQ_CRASH_ROUNDS", "200"))


@dataclass(frozen=True, slots=True)
class Cut:
    """A folder as it is found after the power went, and what was true at that moment."""

    folder: Path
    attempted: int
    acknowledged: dict[int, Place]
    unflushed: set[int]  # acknowledged, and behind what the disk had for certain


class Life:
    """A store that is written to, from its opening to its stop, while the power is cut now and
    then.
    """

    def __init__(
        self, root: Path, mode: FlushMode, random: Random, clock: ManualClock, cut: Cut | None
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.cuts: list[Cut] = []
        self._root = root
        self._mode = mode
        self._random = random
        self._clock = clock
        self._disk = FaultyDisk(UnsyncedLayer(), root, seed=random.randrange(1 << 32))
        self._store = MessageStore(self._disk, clock, config(root, mode), store_load.HOST)
        self._attempted = 0 if cut is None else cut.attempted
        self._acknowledged = {} if cut is None else dict(cut.acknowledged)
        self._ends: dict[int, int] = {}  # where the record of each message of this life ends
        self._cutting = threading.Lock()
        self._calls_left = random.randrange(1, 60)

    def live(self) -> None:
        """Open, write and stop."""
        for kind in CHANGES:
            self._disk.stall(kind, self._called)
        store, random = self._store, self._random
        store.open()
        while len(self.cuts) < CUTS:
            for _ in range(STEPS):
                self._write(random.choice((1, 1, 3, 12)))
                self._clock.advance_ms(random.choice((0, 1, 40, 1500)))
                store.tick()
                if random.random() < 0.05:
                    store.flush()
        self._disk.heal()
        store.close()

    def _write(self, count: int) -> None:
        store = self._store
        first = self._attempted
        self._attempted += count
        batch = [
            (number, store.append(store_load.message(number)))
            for number in range(first, first + count)
        ]
        store.commit()
        self._ends.update((number, appended.end) for number, appended in batch)
        if self._mode is FlushMode.ASYNC:
            self._acknowledge(batch)
        else:
            store.when_durable(
                batch[-1][1].end,
                lambda outcome: self._acknowledge(batch) if outcome is Outcome.DONE else None,
            )

    def _acknowledge(self, batch: Iterable[tuple[int, Appended]]) -> None:
        self._acknowledged.update(
            (number, (store_load.queue_of(number), int(appended.queue_offset)))
            for number, appended in batch
        )

    def _called(self) -> None:
        """A call that changes the disk begins, and maybe the power goes: what is left is in another
        folder, this life goes on.
        """
        with self._cutting:  # the flusher calls, too
            self._calls_left -= 1
            if self._calls_left or len(self.cuts) == CUTS:
                return
            self._calls_left = self._random.choice((1, 10, 100, 300)) + self._random.randrange(60)
            acknowledged, flushed = dict(self._acknowledged), self._store.log.flushed_offset
            target = self._root.with_name(f"{self._root.name}-{len(self.cuts)}")
            self._disk.power_cut(target, self._random)
            unflushed = {number for number in acknowledged if self._ends.get(number, 0) > flushed}
            self.cuts.append(Cut(target, self._attempted, acknowledged, unflushed))


def config(root: Path, mode: FlushMode) -> StoreConfig:
    return store_load.small(root, flush_mode=mode)


def found_after(cut: Cut, mode: FlushMode, clock: ManualClock, report: Report, folder: Path) -> Cut:
    """Open what a cut left and read it; the same cut, but all that was found counts from now on: it
    is on the disk, and was seen.
    """
    store = MessageStore(UnsyncedLayer(), clock, config(cut.folder, mode), store_load.HOST)
    began, torn = time.perf_counter(), report.torn
    store.open()
    report.recovery_ms.append((time.perf_counter() - began) * 1000)
    seen = look(store, report, cut.attempted, cut.acknowledged, cut.unflushed)
    report.rounds += 1
    report.attempted += cut.attempted
    report.acknowledged += len(cut.acknowledged)
    report.indeterminate += cut.attempted - len(cut.acknowledged)
    report.delivered += len(seen)
    assert not differences(store, folder, torn=report.torn > torn), (
        f"{cut.folder} of seed {report.seed}"
    )
    store.close()
    return Cut(cut.folder, cut.attempted, seen, set())


def campaign(mode: FlushMode, seeds: Iterable[int], folder: Path) -> None:
    """Lives and cuts for every seed; one line of JSON for all of them."""
    report = Report(f"power loss, {mode.value}", 0)
    for seed in seeds:
        random, clock, cut = Random(f"{seed} {mode}"), ManualClock(), None
        report.seed = seed
        for number in range(LIVES):
            root = folder / f"{seed}-{number}" if cut is None else cut.folder
            life = Life(root, mode, random, clock, cut)
            life.live()
            untouched = folder / "untouched"
            shutil.copytree(life.cuts[-1].folder, untouched)
            for each in life.cuts:
                cut = found_after(each, mode, clock, report, folder / "rebuilt")
            if (
                random.random() < 0.5
            ):  # the next life recovers what the cut left; else, what another recovery made of it
                assert cut is not None
                shutil.rmtree(cut.folder)
                untouched.rename(cut.folder)
            shutil.rmtree(untouched, ignore_errors=True)
        for path in folder.iterdir():
            shutil.rmtree(path)
        allowed = report.lost_unflushed if mode is FlushMode.ASYNC else 0
        assert (report.lost, report.duplicated, report.reordered, report.phantom) == (
            allowed,
            0,
            0,
            0,
        ), report.line()
        assert mode is FlushMode.ASYNC or report.gaps == 0 or report.bad_bytes, report.line()
    print(report.line())


@pytest.mark.slow
@pytest.mark.parametrize("mode", FlushMode, ids=lambda mode: mode.value)
def test_a_store_that_lost_power_has_what_was_flushed_and_nothing_else(
    mode: FlushMode, tmp_path: Path
) -> None:
    campaign(mode, range(8), tmp_path)


def test_a_configuration_file_is_readable_after_every_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of `atomic_file` go through the disk that loses power, the copy of the old content
    in the place of a hard link.
    """
    (tmp_path / "real").mkdir()
    disk, random = FaultyDisk(UnsyncedLayer(), tmp_path / "real"), Random(1)
    path, written, cuts = (tmp_path / "real" / "topics.json").resolve(), [b"none"], 0

    def write_synced(target: Path, data: bytes, mode: int) -> None:
        if target.exists():
            disk.unlink(target)
        descriptor = disk.open(target, create=True)
        disk.pwrite(descriptor, data, 0)
        disk.fdatasync(descriptor)
        disk.close(descriptor)

    def cut() -> None:
        nonlocal cuts
        cuts += 1
        target = tmp_path / str(cuts)
        disk.power_cut(target, random)
        found = atomic_file.read_or_backup(target / path.name, bytes) or b"none"
        assert found in written[-2:], "the content before, or the new one"
        shutil.rmtree(target)

    monkeypatch.setattr(atomic_file, "_write_synced", write_synced)
    monkeypatch.setattr(
        atomic_file, "_keep", lambda source, to: write_synced(to, source.read_bytes(), 0)
    )
    monkeypatch.setattr(atomic_file, "_sync_directory", disk.sync_dir)
    monkeypatch.setattr(Path, "replace", lambda self, target: disk.rename(self, target))
    for kind in CHANGES:
        disk.stall(kind, cut)
    for number in range(60):
        written.append(b"%04d" % number * 300)
        atomic_file.write(path, written[-1])
        written = written[-1:]
        cut()
    assert cuts > 300


@pytest.mark.crash
@pytest.mark.timeout(60 + 2 * ROUNDS)
@pytest.mark.parametrize("mode", FlushMode, ids=lambda mode: mode.value)
def test_a_store_that_lost_power_a_thousand_times_has_what_was_flushed(
    mode: FlushMode, tmp_path: Path
) -> None:
    first = Random().randrange(1 << 32)
    campaign(mode, range(first, first + max(1, ROUNDS // (LIVES * CUTS))), tmp_path)
