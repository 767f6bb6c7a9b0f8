"""A store whose process is killed at random moments, again and again, under load: L1 of the fault
ladder.

`ORBITMQ_CRASH_ROUNDS` is how often a process is killed in all, 200 unless told otherwise. Every
round opens what the kill left, reads all of it and compares queues and index with a second set that
is built from the log alone. One line of JSON for each campaign.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import pytest

from crash import store_load, store_writer
from crash.store_verify import Place, Report, differences, look
from orbitmq.common.clock import SystemClock
from orbitmq.store.config import FlushMode
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.message_store import MessageStore

pytestmark = pytest.mark.crash

ROUNDS = int(os.environ.get("ORBITMQ_CRASH_ROUNDS", "200"))
SEED = int(os.environ.get("ORBITMQ_CRASH_SEED", "0")) or Random().randrange(1 << 32)
ROUNDS_PER_FOLDER = 75  # a store that grows for longer only takes longer to be read
TESTS = Path(__file__).parent.parent


class Campaign:
    """Rounds of writing, killing and looking, on one folder after the other."""

    def __init__(self, name: str, mode: FlushMode, folder: Path) -> None:
        self.report = Report(name, SEED)
        self._mode = mode
        self._folder = folder
        self._random = Random(f"{SEED} {name}")
        self._root = folder
        self._first = 0
        self._known: dict[int, Place] = {}  # acknowledged, or found once
        self._seen = 0

    def new_folder(self) -> None:
        """Go on in a store that is empty."""
        shutil.rmtree(self._root, ignore_errors=True)
        self._root = self._folder / f"store-{self.report.rounds}"
        self._first, self._known, self._seen = 0, {}, 0

    def round(self) -> None:
        """Start a writer, kill it, and look at what is there."""
        report, random = self.report, self._random
        command = [
            sys.executable,
            "-m",
            "crash.store_writer",
            str(self._root),
            self._mode.value,
            str(self._first),
            str(random.randrange(1 << 32)),
        ]
        attempted = self._first
        acknowledged = 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TESTS) as writer:
            assert writer.stdout is not None
            if random.random() < 0.85:  # or it is killed while it starts, perhaps while it recovers
                assert writer.stdout.readline() == "ready\n"
            killer = threading.Timer(
                random.choice((0.002, 0.02, 0.1, 0.3)) * random.random(), writer.kill
            )
            waits = (
                random.random() < 0.5
            )  # for the first message: on a busy disk that takes longer than most lives here
            if not waits:
                killer.start()
            for line in writer.stdout:
                if waits and line.startswith("done"):
                    waits = False
                    killer.start()
                match line.split():
                    case ["try", end]:
                        attempted = int(end)
                    case ["done", number, offset]:
                        self._known[int(number)] = store_load.queue_of(int(number)), int(offset)
                        acknowledged += 1
            killer.join()
        assert writer.returncode == -9, "the writer ended by itself: see its error above"
        report.rounds += 1
        report.attempted += attempted - self._first
        report.acknowledged += acknowledged
        report.indeterminate += attempted - self._first - acknowledged
        self._first = attempted
        self._look()

    def _look(self) -> None:
        root = self._root
        if (
            self._random.random() < 0.5 and self._root.exists()
        ):  # the next writer finds what the kill left
            root = self._folder / "copy"
            shutil.copytree(self._root, root)
        store = MessageStore(
            OsFileLayer(), SystemClock(), store_writer.config(root, self._mode), store_load.HOST
        )
        began = time.perf_counter()
        store.open()
        self.report.recovery_ms.append((time.perf_counter() - began) * 1000)
        seen = look(store, self.report, self._first, self._known)
        self.report.delivered += len(seen) - self._seen
        self._seen = len(seen)
        self._known |= seen
        assert not differences(store, self._folder / "rebuilt"), (
            f"round {self.report.rounds} of seed {SEED}"
        )
        store.close()
        shutil.rmtree(self._folder / "copy", ignore_errors=True)


@pytest.mark.timeout(60 + 10 * ROUNDS)
@pytest.mark.parametrize("mode", FlushMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize(
    ("kind", "share", "rounds_per_folder"),
    [("one folder", 0.4, ROUNDS_PER_FOLDER), ("fresh folders", 0.1, 1)],
)
def test_a_killed_store_has_everything_that_was_acknowledged(
    mode: FlushMode, kind: str, share: float, rounds_per_folder: int, tmp_path: Path
) -> None:
    campaign = Campaign(f"kill -9, {mode.value}, {kind}", mode, tmp_path)
    report = campaign.report
    for number in range(max(2, round(share * ROUNDS))):
        if number % rounds_per_folder == 0:
            campaign.new_folder()
        campaign.round()
    print(report.line())
    assert report.acknowledged >= report.rounds // 4, "the writer hardly wrote"
    assert (report.lost, report.duplicated, report.reordered, report.phantom, report.gaps) == (
        0,
        0,
        0,
        0,
        0,
    ), report.line()
