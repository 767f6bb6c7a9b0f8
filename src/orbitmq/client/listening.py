"""Calls a listener: beside the loop in threads when it is a plain function, on the loop when it is a coroutine function.

Listeners that return quickly are called one after the other by one worker; only when it does not come back do more workers begin, up to
the limit. So blocking listeners run side by side, and quick ones cost no change of threads.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple, TypeVar, cast

from orbitmq.client.daemon_pool import DaemonPool
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.process_queue import ProcessQueue
from orbitmq.client.queue_reader import QueueReader
from orbitmq.common.errors import WrongCall

_PATIENCE_S: Final = 0.001  # after that long a thread is taken to be blocked
_CALLS_IN_A_ROW: Final = 256  # then the loop may do other things
_GRACE_S: Final = 1.0  # for a loop that ends to be gone

Listener = Callable[[ReceivedMessage], object] | Callable[[ReceivedMessage], Awaitable[object]]
T = TypeVar("T")


# A message that a listener gets, who read it, and where it is finished. A plain tuple: they are made by the ten thousand.
Job = tuple[QueueReader, ProcessQueue, ReceivedMessage]
# Told how a call ended, when it began and when it ended; None: the listener took the message.
Settled = Callable[[Job, BaseException | None, float, float], None]
MayGoOn = Callable[[], bool]


class InOrder(NamedTuple):
    """How far a run of messages came: so many were taken, the next one failed with `problem`, if any did."""

    taken: int
    problem: BaseException | None
    seconds: float


def _ends_us(problem: BaseException) -> bool:
    """Whether what a listener on the loop ended with is for whoever called it: it is cancelled itself, or the process is to end."""
    if isinstance(problem, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(problem, KeyboardInterrupt | GeneratorExit)


async def _outcome(awaitable: Awaitable[object]) -> BaseException | None:
    """How a call on the loop ended; None: without a problem."""
    try:
        await awaitable
    except BaseException as problem:
        if _ends_us(problem):
            raise
        return problem
    return None


class Listening(ABC):
    """Calls a listener; the two kinds of functions have one each."""

    def __init__(self, concurrency: int, settled: Settled) -> None:
        self._concurrency = concurrency
        self._settled = settled
        self._waiting: deque[Job] = deque()
        self._active = 0
        self._is_closed = False
        self.running: dict[int, tuple[Job, float]] = {}  # what each worker does now, and since when

    @property
    def is_busy(self) -> bool:
        """Whether a listener has a message now, or the end of a call is not told yet."""
        return bool(self.running)

    @abstractmethod
    def submit(self, jobs: Iterable[Job]) -> None:
        """Call the listener with these, side by side."""

    @abstractmethod
    async def call(self, message: ReceivedMessage) -> BaseException | None:
        """Call the listener with one message, now; what it raised, or None."""

    @abstractmethod
    async def in_order(self, messages: Sequence[ReceivedMessage], may_go_on: MayGoOn) -> InOrder:
        """Call the listener with one after the other, until one fails or `may_go_on` does not hold."""

    def forget(self) -> None:
        """Give up what nobody has begun."""
        self._waiting.clear()

    def close(self) -> None:
        """End; calls under way are not waited for."""
        self._is_closed = True
        self.forget()


def listening(listener: Listener, concurrency: int, settled: Settled) -> Listening:
    """What calls `listener`; WrongCall when that would do nothing with a message."""
    if not callable(listener):
        raise WrongCall(f"the listener is {listener!r}, which cannot be called: give a function, or a coroutine function, of one message")
    if inspect.isgeneratorfunction(listener) or inspect.isasyncgenfunction(listener):
        raise WrongCall(f"the listener {listener!r} yields, so that calling it does nothing: give a function that returns")
    if inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(type(listener).__call__):
        return CoroutineListening(cast("Callable[[ReceivedMessage], Awaitable[object]]", listener), concurrency, settled)
    return ThreadListening(listener, concurrency, settled)


class CoroutineListening(Listening):
    """Of coroutine functions."""

    def __init__(self, listener: Callable[[ReceivedMessage], Awaitable[object]], concurrency: int, settled: Settled) -> None:
        super().__init__(concurrency, settled)
        self._listener = listener
        self._workers: set[asyncio.Task[None]] = set()

    def submit(self, jobs: Iterable[Job]) -> None:
        self._waiting.extend(jobs)
        self._add_worker()

    def _add_worker(self) -> None:
        """One more as long as messages wait; those that are there have had their turn by the time of the next look."""
        if self._waiting and self._active < self._concurrency:
            self._active += 1
            loop = asyncio.get_running_loop()
            worker = loop.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
            loop.call_soon(self._add_worker)

    async def _work(self) -> None:
        waiting, listener, settled, running = self._waiting, self._listener, self._settled, self.running
        me, calls, clock = id(asyncio.current_task()), 0, time.monotonic
        try:
            while waiting:
                job = waiting.popleft()
                if job[0].is_dropped:
                    continue
                began_s = clock()
                running[me] = job, began_s
                problem: BaseException | None = None
                try:
                    await listener(job[2])
                except BaseException as raised:
                    if _ends_us(raised):
                        self._settle_later(job, raised, began_s)
                        raise
                    problem = raised
                del running[me]
                settled(job, problem, began_s, clock())
                calls += 1
                if calls % _CALLS_IN_A_ROW == 0:
                    await asyncio.sleep(0)
        finally:
            self._active -= 1
            running.pop(me, None)

    def _settle_later(self, job: Job, problem: BaseException, began_s: float) -> None:
        """Have a message count as failed whose worker ends with it, unless everything ends."""

        def settle() -> None:
            if not self._is_closed:
                self._settled(job, problem, began_s, time.monotonic())
                self._add_worker()

        asyncio.get_running_loop().call_later(_GRACE_S, settle)

    async def call(self, message: ReceivedMessage) -> BaseException | None:
        return await _outcome(self._listener(message))

    async def in_order(self, messages: Sequence[ReceivedMessage], may_go_on: MayGoOn) -> InOrder:
        began_s, taken = time.perf_counter(), 0
        problem: BaseException | None = None
        for message in messages:
            if not may_go_on():
                break
            problem = await _outcome(self._listener(message))
            if problem is not None:
                break
            taken += 1
        return InOrder(taken, problem, time.perf_counter() - began_s)

    def close(self) -> None:
        super().close()
        for worker in list(self._workers):
            worker.cancel()


class ThreadListening(Listening):
    """Of plain functions, which may block: heartbeats and reading go on meanwhile. What they return to be awaited, the loop awaits."""

    def __init__(self, listener: Callable[[ReceivedMessage], object], concurrency: int, settled: Settled) -> None:
        super().__init__(concurrency, settled)
        self._listener = listener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool = DaemonPool(concurrency, "listener")  # a process ends although a listener blocks
        self._workers: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()  # of `_active`: a worker ends only while nothing waits
        self._done: deque[tuple[Job, BaseException | None, float, float]] = deque()
        self._is_told = False  # the loop knows that something is done
        self._look: asyncio.TimerHandle | None = None
        self._on_the_loop: set[Future[BaseException | None]] = set()  # what the loop awaits for threads

    def submit(self, jobs: Iterable[Job]) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting.extend(jobs)
        self._add_workers(1 if self._active == 0 else 0)

    def _add_workers(self, count: int) -> None:
        with self._lock:
            count = min(count, self._concurrency - self._active)
            self._active += max(count, 0)
        for _ in range(count):
            worker = asyncio.get_running_loop().create_task(self._pool.run(self._work))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        if self._look is None and self._loop is not None:
            self._look = self._loop.call_later(_PATIENCE_S, self._look_after)

    def _look_after(self) -> None:
        """Those that are there did not get through: let more begin."""
        self._look = None
        if self._waiting:
            self._add_workers(len(self._waiting))

    def _work(self) -> None:
        me, clock = threading.get_ident(), time.monotonic
        while True:
            with self._lock:
                if not self._waiting:
                    self._active -= 1
                    return
                job = self._waiting.popleft()
            if job[0].is_dropped:
                continue
            began_s = clock()
            self.running[me] = job, began_s
            problem = self._outcome(job[2])
            self._done.append((job, problem, began_s, clock()))
            del self.running[me]
            if not self._is_told:
                self._is_told = True
                self._tell()

    def _outcome(self, message: ReceivedMessage) -> BaseException | None:
        """Call the listener; whatever it raises is its problem, and no reason for the thread to end."""
        try:
            result = self._listener(message)
            return self._awaited(result) if result is not None and inspect.isawaitable(result) else None
        except BaseException as problem:
            return problem

    def _awaited(self, awaitable: Awaitable[object]) -> BaseException | None:
        """Wait in this thread until the loop is through with it."""
        assert self._loop is not None
        on_the_loop = asyncio.run_coroutine_threadsafe(_outcome(awaitable), self._loop)
        self._on_the_loop.add(on_the_loop)
        if self._is_closed:  # which may not have seen this one
            on_the_loop.cancel()
        try:
            return on_the_loop.result()
        finally:
            self._on_the_loop.discard(on_the_loop)

    @property
    def is_busy(self) -> bool:
        return bool(self.running or self._done)

    def _tell(self) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:  # the loop is closed: nobody wants to know any more
            self.forget()

    def _settle(self) -> None:
        self._is_told = False
        if self._is_closed:
            self._done.clear()
        while self._done:
            self._settled(*self._done.popleft())

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        self._loop = asyncio.get_running_loop()
        return await self._pool.run(function, *arguments)

    async def call(self, message: ReceivedMessage) -> BaseException | None:
        return await self._in_thread(self._outcome, message)

    async def in_order(self, messages: Sequence[ReceivedMessage], may_go_on: MayGoOn) -> InOrder:
        return await self._in_thread(self._run_in_order, messages, may_go_on)

    def _run_in_order(self, messages: Sequence[ReceivedMessage], may_go_on: MayGoOn) -> InOrder:
        began_s, taken = time.perf_counter(), 0
        problem: BaseException | None = None
        for message in messages:
            if not may_go_on():
                break
            problem = self._outcome(message)
            if problem is not None:
                break
            taken += 1
        return InOrder(taken, problem, time.perf_counter() - began_s)

    def forget(self) -> None:
        with self._lock:
            self._waiting.clear()

    def close(self) -> None:
        super().close()
        if self._look is not None:
            self._look.cancel()
        self._pool.close()
        for worker in list(self._workers):
            worker.cancel()
        for awaited in list(self._on_the_loop):
            awaited.cancel()
