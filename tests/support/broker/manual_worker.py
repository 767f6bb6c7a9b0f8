"""A loop and a worker that do nothing until they are told to, and a kill before any call to the
disk: for tables that save themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest


class Killed(BaseException):
    """Not an Exception: no handler of the code under test may tidy up after it, as none runs in a
    process that was killed.
    """


class ManualLoop:
    """What of an event loop `ConfigFile` needs."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], object]] = []
        self._later: list[Callable[[], object]] = []

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        assert delay > 0
        self._later.append(callback)

    def step(self) -> bool:
        """Run the next callback, if there is one."""
        if not self._soon:
            return False
        self._soon.pop(0)()
        return True

    def run(self) -> None:
        """Run callbacks until there are no more."""
        while self.step():
            pass

    def let_time_pass(self) -> None:
        """Run what waited for its time, and what follows from it."""
        self._soon += self._later
        self._later = []
        self.run()


class InlineWorker(Executor):
    """Does its work at once, in the thread of the caller; while `holds`, when `work` says so."""

    def __init__(self) -> None:
        self.holds = False
        self._held: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._held.append(work)
        if not self.holds:
            self.work()
        return future

    def work(self) -> bool:
        """Do the next piece of work, if there is one."""
        if not self._held:
            return False
        self._held.pop(0)()
        return True


class DiskCalls:
    """Counts the calls that change the disk, and kills before the n-th one."""

    NAMES = ("open", "fsync", "link", "replace", "rename", "unlink", "pwrite")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kill_before: int | None = None) -> None:
        self.count = 0
        self._kill_before = kill_before
        for name in self.NAMES:
            monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.count == self._kill_before:
                raise Killed
            self.count += 1
            return real(*args, **kwargs)

        return call
