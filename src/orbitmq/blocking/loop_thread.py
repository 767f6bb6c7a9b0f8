"""The event loop of all blocking clients of a process: in one daemon thread, from the first client
that starts to the last that closes.

One loop serves all, because it is idle most of the time, because concurrent requests of several
clients then leave in one write, and because threads of an interpreter share one lock anyway. Any
thread may call; concurrent calls wake the loop once. A forked child has none of the parent's
threads: it gets its own loop, and clients of the parent raise an error when used there.
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

from orbitmq.common.errors import InvalidStateError

P = ParamSpec("P")
T = TypeVar("T")
_GIVEN_UP: Final = "the call was cancelled: its client was closed meanwhile"


class Call(Generic[T]):
    """A coroutine that the loop runs for a thread.

    It uses a bare lock: a Future would add half the cost of the whole call.
    """

    __slots__ = ("_ended", "_problem", "_result", "_work", "task")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.task: asyncio.Task[None] | None = None
        self._work = work
        self._ended = threading.Lock()
        self._ended.acquire()
        self._result: T | None = None
        self._problem: BaseException | None = None

    async def run(self) -> None:
        """Run the coroutine and release the waiting thread."""
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
        """Whether the call has ended."""
        return not self._ended.locked()

    def abandon(self) -> None:
        """End the call with an error, since no loop is left to run it."""
        if not self.is_over:
            self._problem = CancelledError(_GIVEN_UP)
            self._ended.release()

    def wait(self) -> T:
        """Wait for the call and return its result or raise its error; may be called repeatedly."""
        with self._ended:
            pass
        if self._problem is not None:
            try:
                raise self._problem
            finally:
                del self  # the exception refers to this frame, and the call to the exception
        return cast("T", self._result)


class ClientLoopThread:
    """An event loop in a thread, from `start` to `close`."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._waiting: deque[Call[Any]] = deque()
        self._begun: set[Call[Any]] = set()
        self._is_woken = False  # the loop is scheduled to start the waiting calls

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process started the loop, and is not a fork."""
        return self._pid == os.getpid()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    def close(self) -> None:
        """Cancel running calls, and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._is_woken = False
        for call in (*self._waiting, *self._begun):
            call.abandon()

    def submit(
        self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Call[T]:
        """Start a coroutine function on the loop."""
        if self._pid != os.getpid():
            raise InvalidStateError(
                f"this client belongs to process {self._pid}, of which this one is a fork: create a"
                " new client after the fork"
            )
        if threading.current_thread() is self._thread:
            raise InvalidStateError(
                "a blocking call on the event loop's own thread would deadlock: use the async"
                " clients of orbitmq in coroutines"
            )
        call = Call(partial(work, *args, **kwargs))
        self._waiting.append(call)
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._begin)
            except RuntimeError as closed:
                raise InvalidStateError(
                    "this client was closed meanwhile: nothing was done"
                ) from closed
        return call

    def call(
        self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a coroutine function on the loop and wait for it; an interrupt cancels it."""
        call = self.submit(work, *args, **kwargs)
        try:
            return call.wait()
        except KeyboardInterrupt:
            self.give_up(call)
            raise

    def give_up(self, call: Call[Any]) -> None:
        """Cancel a call whose caller no longer waits for it."""
        self._loop.call_soon_threadsafe(self._cancel, call)

    def _begin(self) -> None:
        # Reset before the first call is taken: a later call wakes the loop again, or is seen here.
        self._is_woken = False
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
_shared: ClientLoopThread | None = None
_users = 0
# Loops of the processes this one was forked from, kept alive: they must not be closed here.
_parents: list[ClientLoopThread | None] = []


def acquire() -> ClientLoopThread:
    """Return the loop of this process, starting it if needed; `release` it after use."""
    global _shared, _users
    with _lock:
        if _shared is None:
            _shared = ClientLoopThread("orbitmq-blocking")
            _shared.start()
        _users += 1
        return _shared


def release(loop_thread: ClientLoopThread) -> None:
    """Release the loop; the last release ends its thread."""
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
