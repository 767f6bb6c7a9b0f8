"""Background work of a client: periodic tasks on the event loop, and daemon threads that run
functions of the application.

A process never waits for these threads when it exits, because an application function may block
forever. Threads are created on demand, up to a limit, and end with `close`. Thread rule: call
`repeat`, `DaemonPool.run` and `DaemonPool.close` on the loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from orbitmq.common.errors import RemoteError

T = TypeVar("T")

log = logging.getLogger(__name__)


async def repeat(period_s: float, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` every `period_s`, first after one period, until cancelled; log failures."""
    while True:
        await asyncio.sleep(period_s)
        try:
            await work()
        except RemoteError as problem:
            log.warning("periodic_work_failed work=%s why='%s'", work.__qualname__, problem)
        except Exception:
            log.exception("periodic_work_failed work=%s", work.__qualname__)


class _Work(NamedTuple):
    """A function to call, and the future that receives its outcome."""

    call: Callable[[], Any]
    outcome: Future[Any]


class DaemonPool:
    """A pool of daemon threads that run application functions, until `close`."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._count = 0
        self._idle = threading.Semaphore(0)  # idle threads
        self._work: SimpleQueue[_Work | None] = SimpleQueue()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function in a pool thread and return its result, or raise its error.

        A call that is cancelled before it starts never runs.
        """
        work = _Work(partial(function, *arguments), Future())
        self._work.put(work)
        if not self._idle.acquire(blocking=False) and self._count < self._threads_max:
            threading.Thread(
                target=self._serve, name=f"{self._name}_{self._count}", daemon=True
            ).start()
            self._count += 1
        return await asyncio.wrap_future(work.outcome)

    def close(self) -> None:
        """Cancel the calls that have not started; do not wait for the running ones."""
        while True:
            try:
                work = self._work.get_nowait()
            except Empty:
                break
            if work is not None:
                work.outcome.cancel()
        self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            settle: Callable[[], None] | None = None
            if work.outcome.set_running_or_notify_cancel():
                try:
                    settle = partial(work.outcome.set_result, work.call())
                except BaseException as problem:
                    settle = partial(work.outcome.set_exception, problem)
            # Become idle before the caller sees the result: it may submit more work at once.
            self._idle.release()
            if settle is not None:
                settle()
            del work, settle  # an idle thread keeps no reference to the call
        self._work.put(None)  # stops the next thread
