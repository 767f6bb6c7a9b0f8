"""The disk of a simulated host: real files in a folder, which a loss of power sets back.

A FORGETFUL disk loses everything that was not synced, the worst case. A TEARING disk lets the seed
decide for each unsynced write whether it is complete, lost, or torn at sectors, and can be made to
fail (`faults`). Nothing is really synced. Programs open files by `layer`, which a loss of power
replaces: read it at each start. Crash rule: when a process dies, `close_all` closes its files, as
the operating system does; what it wrote stays.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from random import Random

from orbitmq.common.clock import Clock
from orbitmq.common.errors import InvalidStateError
from orbitmq.store.file_layer import FileLayer
from orbitmq.testing.faulty_disk import FaultyDisk
from orbitmq.testing.forgetful_disk import ForgetfulDisk


class DiskKind(Enum):
    """What a loss of power does to unsynced writes."""

    FORGETFUL = "forgetful"  # all are lost
    TEARING = "tearing"  # each is complete, lost or torn


class _ProcessFiles(ForgetfulDisk):
    """A forgetful disk that can close the files of a process that died, and whose used share does
    not depend on the machine that simulates it.
    """

    __slots__ = ("_used_ratio",)

    def __init__(self, clock: Clock, limbo: Path, used_ratio: Callable[[], float]) -> None:
        super().__init__(clock, limbo)
        self._used_ratio = used_ratio

    def disk_ratio(self, folder: Path) -> float:
        return self._used_ratio()

    def close_all(self) -> None:
        for descriptor in list(self._descriptors):
            self.close(descriptor)


class SimulatedDisk:
    """The files below `root`, in a folder that nothing else uses."""

    def __init__(self, folder: Path, *, clock: Clock, random: Random, kind: DiskKind) -> None:
        self.root = folder / "disk"
        self.used_ratio = 0.0  # what programs see as the used share
        self._folder = folder
        self._clock = clock
        self._random = random
        self._kind = kind
        self.root.mkdir(parents=True, exist_ok=True)
        self._begin()

    @property
    def layer(self) -> FileLayer:
        """The file layer for programs of this host, until power is lost."""
        return self._files if self._faulty is None else self._faulty

    @property
    def faults(self) -> FaultyDisk:
        """Makes calls to a TEARING disk fail, until power is lost."""
        if self._faulty is None:
            raise InvalidStateError("a forgetful disk does not fail: use DiskKind.TEARING")
        return self._faulty

    def close_all(self) -> None:
        """Close the files of a process that died."""
        self._files.close_all()

    def lose_power(self) -> None:
        """Lose unsynced writes; no file stays open."""
        self.close_all()
        if self._faulty is None:
            self._files.forget()
            return
        survived = self._folder / "survived"
        self._faulty.power_cut(survived, self._random)
        shutil.rmtree(self.root)
        survived.rename(self.root)
        self._begin()

    def _begin(self) -> None:
        """Take what the folder holds as durable."""
        self._files = _ProcessFiles(self._clock, self._folder / "limbo", lambda: self.used_ratio)
        self._faulty = (
            FaultyDisk(self._files, self.root, seed=self._random.getrandbits(32))
            if self._kind is DiskKind.TEARING
            else None
        )
