"""Keeps garbage collection from pausing a server for long.

A full collection visits every object: a tenth of a second for a million. Objects that survive one
are frozen (`gc.freeze`), so the next visits only newer ones. Frozen objects are still freed when
their reference count drops to zero; only cycles among them wait for a collection of everything.
That one is due every hour and when the number of frozen objects has doubled. It runs while the
process is idle, so that no request waits for it; a process that is never idle does without until
the number has grown ninefold.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

IDLE_CHECK_S: Final = 1.0  # how often a server calls `collect_when_idle`
_PERIOD_S: Final = 3600.0
_IDLE_CPU_SHARE: Final = 0.1  # of the time since the last check
_OLDEST: Final = 2
_PYTHONS: Final = gc.get_threshold()
_THRESHOLD: Final = (700, 10, 2)  # a full collection after some 20,000 new objects: 5 ms
# In objects: smaller processes have no long collections, and smaller cycles do no harm.
_GROWTH_MIN: Final = 500_000
_GROWTH_MAX: Final = 8  # times: then everything is collected, idle or not


class _SetAside:
    """Counts the frozen objects."""

    def __init__(self) -> None:
        self.known = 0  # objects at the last collection of everything
        # Since the last count, which takes milliseconds for a million objects; most are freed soon.
        self.survived = 0
        self.looks_at_all = False
        self.is_due = False  # a collection of everything, at the next idle moment
        self.last_s = self.checked_s = time.monotonic()
        self.cpu_s = time.process_time()

    def full_collection(self) -> None:
        """Freeze the survivors of a full collection."""
        self.survived += len(gc.get_objects(_OLDEST))
        gc.freeze()
        if self.looks_at_all:
            self.looked_at_all()
        elif self.survived > max(self.known, _GROWTH_MIN):
            self.survived = 0
            growth, unit = gc.get_freeze_count() - self.known, max(self.known, _GROWTH_MIN)
            self.is_due |= growth > unit
            if growth > _GROWTH_MAX * unit:
                look_at_all()

    def looked_at_all(self) -> None:
        self.known, self.survived, self.looks_at_all = gc.get_freeze_count(), 0, False
        self.is_due, self.last_s = False, time.monotonic()

    def was_idle(self) -> bool:
        """Return whether the process used little CPU since the last call."""
        now_s, cpu_s = time.monotonic(), time.process_time()
        is_idle = cpu_s - self.cpu_s <= _IDLE_CPU_SHARE * (now_s - self.checked_s)
        self.checked_s, self.cpu_s = now_s, cpu_s
        return is_idle


_set_aside: Final = _SetAside()


def begin() -> None:
    """Collect the garbage of the start, and freeze the survivors of this and every later full
    collection.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLD)
    # Python collects once new objects exceed a quarter of the last survivors, which are now few.
    gc.collect()
    _set_aside.looked_at_all()
    if _collected not in gc.callbacks:
        gc.callbacks.append(_collected)


def look_at_all() -> None:
    """Make the next full collection visit every object once."""
    _set_aside.looks_at_all = True
    gc.unfreeze()


def collect_when_idle() -> None:
    """Collect everything if that is due and the process was idle since the last call."""
    is_idle = _set_aside.was_idle()
    if is_idle and (_set_aside.is_due or time.monotonic() - _set_aside.last_s > _PERIOD_S):
        look_at_all()
        gc.collect()


def end() -> None:
    """Restore Python's default collection."""
    if _collected in gc.callbacks:
        gc.callbacks.remove(_collected)
    gc.set_threshold(*_PYTHONS)
    gc.unfreeze()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable cycle collection inside the block, for work that creates many objects and no cycles.

    Each collection visits all objects, which takes half of the time when a million of them survive.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _collected(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == _OLDEST:
        _set_aside.full_collection()
