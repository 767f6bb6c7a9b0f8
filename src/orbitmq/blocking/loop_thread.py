"""The event loop of all blocking clients of this process: in one daemon thread, from the first that starts to the last that closes.

One for all, because a loop is idle nearly always, because what several clients send then leaves in one write, and because threads of an
interpreter share one lock anyhow. Any thread may call; calls that come at the same time wake the loop once. After a fork the child has
none of the parent's threads: it gets a loop of its own, and clients of the parent say so when they are used there.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

from orbitmq.common.errors import WrongCall

P = ParamSpec("P")
T = TypeVar("T")
_GIVEN_UP: Final = "the call was given up: its client was closed meanwhile"


class Call(Generic[T]):
    """A coroutine that the loop runs for a thread. A lock and no more: a Future would cost half as much again as the whole call."""

    __slots__ = ("_ended", "_problem", "_result", "_work", "task")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.task: asyncio.Task[None] | None = None
        self._work = work
        self._ended = threading.Lock()
        self._ended.acquire()
        self._result: T | None = None
        self._problem: BaseException | None = None

    async def run(self) -> None:
        try:
            self._result = await self._work()
        except asyncio.CancelledError:
            self._problem = CancelledError(_GIVEN_UP)
        except BaseException as problem:
            self._problem = problem
        finally:
            self._ended.release()

    @property
    def is_over(self) -> bool:
        return not self._ended.locked()

    def abandon(self) -> None:
        """Let nobody wait for it: there is no loop any more that could run it."""
        if not self.is_over:
            self._problem = CancelledError(_GIVEN_UP)
            self._ended.release()

    def wait(self) -> T:
        """What it returns, or raises, as soon as it does; any number of times."""
        with self._ended:
            pass
        if self._problem is not None:
            try:
                raise self._problem
            finally:
                del self  # the exception refers to this frame, and the call to the exception
        return cast("T", self._result)


class LoopThread:
    """A loop in a thread, from `start` to `close`."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._waiting: deque[Call[Any]] = deque()
        self._begun: set[Call[Any]] = set()
        self._is_told = False  # the loop knows that something waits

    @property
    def is_of_this_process(self) -> bool:
        return self._pid == os.getpid()

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    def close(self) -> None:
        """Cancel what still runs, and end."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._is_told = False
        for call in (*self._waiting, *self._begun):
            call.abandon()

    def submit(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """Run a coroutine function on the loop."""
        if self._pid != os.getpid():
            raise WrongCall(f"this client belongs to process {self._pid}, of which this one is a fork: make a new client after the fork")
        if threading.current_thread() is self._thread:
            raise WrongCall("a blocking call on the event loop's own thread would wait for itself: coroutines use the clients of orbitmq")
        call = Call(partial(work, *args, **kwargs))
        self._waiting.append(call)
        if not self._is_told:
            self._is_told = True
            try:
                self._loop.call_soon_threadsafe(self._begin)
            except RuntimeError as closed:
                raise WrongCall("this client was closed meanwhile, and nothing was done") from closed
        return call

    def call(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function on the loop, and wait for its end; it is given up when whoever waits is interrupted."""
        call = self.submit(work, *args, **kwargs)
        try:
            return call.wait()
        except KeyboardInterrupt:
            self.give_up(call)
            raise

    def give_up(self, call: Call[Any]) -> None:
        """Cancel a call that nobody waits for any more."""
        self._loop.call_soon_threadsafe(self._cancel, call)

    def _begin(self) -> None:
        self._is_told = False  # before the first is taken: what comes later is told again, or seen here
        while self._waiting:
            call = self._waiting.popleft()
            call.task = self._loop.create_task(call.run())
            self._begun.add(call)
            call.task.add_done_callback(partial(self._over, call))

    def _over(self, call: Call[Any], _: asyncio.Task[None]) -> None:
        self._begun.discard(call)

    @staticmethod
    def _cancel(call: Call[Any]) -> None:
        if call.task is not None:
            call.task.cancel()


_lock = threading.Lock()
_shared: LoopThread | None = None
_users = 0
_parents: list[LoopThread | None] = []  # of processes that this one was forked from: nothing of them may be closed here


def acquire() -> LoopThread:
    """The loop of this process; `release` it."""
    global _shared, _users
    with _lock:
        if _shared is None:
            _shared = LoopThread("orbitmq-blocking")
            _shared.start()
        _users += 1
        return _shared


def release(loop_thread: LoopThread) -> None:
    """Need it no more; with the last one its thread ends."""
    global _shared, _users
    with _lock:
        if loop_thread is not _shared:
            return
        _users -= 1
        if _users:
            return
        _shared = None
    loop_thread.close()


def _forget() -> None:
    global _lock, _shared, _users
    _parents.append(_shared)
    _lock, _shared, _users = threading.Lock(), None, 0


os.register_at_fork(after_in_child=_forget)
