"""Threads in which functions of the application run, and which no process waits for when it ends: one of them may block for ever.

Threads are made when they are first needed, up to a number, and end with `close`. Thread rule: `run` and `close` on the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _Work(NamedTuple):
    """What is to be called, and where its end is told."""

    call: Callable[[], Any]
    end: Future[Any]


class DaemonPool:
    """From its making to `close`."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._count = 0
        self._idle = threading.Semaphore(0)  # threads that wait for work
        self._work: SimpleQueue[_Work | None] = SimpleQueue()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """What a function returns or raises, called in a thread; what was not begun when nobody waits any more is not called."""
        work = _Work(partial(function, *arguments), Future())
        self._work.put(work)
        if not self._idle.acquire(blocking=False) and self._count < self._threads_max:
            threading.Thread(target=self._serve, name=f"{self._name}_{self._count}", daemon=True).start()
            self._count += 1
        return await asyncio.wrap_future(work.end)

    def close(self) -> None:
        """Begin nothing more; what runs is not waited for."""
        while True:
            try:
                work = self._work.get_nowait()
            except Empty:
                break
            if work is not None:
                work.end.cancel()
        self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            tell: Callable[[], None] | None = None
            if work.end.set_running_or_notify_cancel():
                try:
                    tell = partial(work.end.set_result, work.call())
                except BaseException as problem:
                    tell = partial(work.end.set_exception, problem)
            self._idle.release()  # before anybody hears of the end, who may have more to do
            if tell is not None:
                tell()
            del work, tell  # nothing of it is kept while the thread waits
        self._work.put(None)  # for the next thread
