"""How much work a loop does between two yields: counted in calls of functions, or measured as CPU
time of its thread.

A unit of work is a call, of Python code or of C code, as `sys.setprofile` hears of it. Compiled
kernels do their own calls unheard, so they count less than interpreted ones; what a single call of
C code does is bounded by the size of what it is given.
"""

from __future__ import annotations

import sys
import threading
import time
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Work:
    """The most work of one callback of the loop, and which callback that was."""

    def __init__(self) -> None:
        self.most = 0
        self.where = ""
        self.count = 0

    def reset(self) -> None:
        self.most, self.where = 0, ""


def _calls(work: Work) -> Callable[[], int]:
    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" or event == "c_call":
            work.count += 1

    sys.setprofile(count)
    return lambda: work.count


@contextmanager
def counted() -> Iterator[Work]:
    """Count the calls of every callback of loops of this thread."""
    work, before = Work(), sys.getprofile()
    try:
        with _watched(work, _calls(work)):
            yield work
    finally:
        sys.setprofile(before)


@contextmanager
def timed() -> Iterator[Work]:
    """Measure the nanoseconds of CPU time of every callback of loops of this thread."""
    work = Work()
    with _watched(work, time.thread_time_ns):
        yield work


@contextmanager
def _watched(work: Work, meter: Callable[[], int]) -> Iterator[None]:
    original, thread = events.Handle._run, threading.get_ident()

    def run(handle: events.Handle) -> None:
        if threading.get_ident() != thread:
            original(handle)
            return
        before = meter()
        original(handle)
        spent = meter() - before
        if spent > work.most:
            work.most, work.where = spent, repr(handle)[:300]

    events.Handle._run = run  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        events.Handle._run = original  # type: ignore[method-assign]
