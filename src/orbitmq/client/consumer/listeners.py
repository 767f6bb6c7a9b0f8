"""Calls a listener: a plain function in threads, a coroutine function on the loop.

One worker makes all calls as long as the listener returns quickly; only when a call blocks do more
workers start, up to the limit. So blocking listeners run in parallel, and quick ones need no thread
switches.
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

from orbitmq.client.background import DaemonPool
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.queue_reader import QueueReader
from orbitmq.client.messages import ReceivedMessage
from orbitmq.common.errors import InvalidStateError

_PATIENCE_S: Final = 0.001  # after which a thread counts as blocked
_CALLS_IN_A_ROW: Final = 256  # then yield to the loop
_GRACE_S: Final = 1.0  # for a closing loop to finish

Listener = Callable[[ReceivedMessage], object] | Callable[[ReceivedMessage], Awaitable[object]]
T = TypeVar("T")


# A message for the listener, its reader, and the cache in which it is finished. A plain tuple:
# tens of thousands are created.
Job = tuple[QueueReader, ProcessQueue, ReceivedMessage]
# Receives the error of a call, or None on success, and when the call began and ended.
OnSettled = Callable[[Job, BaseException | None, float, float], None]
ShouldContinue = Callable[[], bool]


class RunResult(NamedTuple):
    """Progress of a run of messages: `taken` succeeded, the next failed with `problem`, if any."""

    taken: int
    problem: BaseException | None
    seconds: float


def _is_for_caller(problem: BaseException) -> bool:
    """Return whether a listener's exception concerns its caller: cancellation or process exit."""
    if isinstance(problem, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(problem, KeyboardInterrupt | GeneratorExit)


async def _outcome(awaitable: Awaitable[object]) -> BaseException | None:
    """Await a listener call; return its error, or None."""
    try:
        await awaitable
    except BaseException as problem:
        if _is_for_caller(problem):
            raise
        return problem
    return None


class ListenerRunner(ABC):
    """Calls a listener, with one subclass per kind of function."""

    def __init__(self, concurrency: int, settled: OnSettled) -> None:
        self._concurrency = concurrency
        self._settled = settled
        self._waiting: deque[Job] = deque()
        self._active = 0
        self._is_closed = False
        self.running: dict[int, tuple[Job, float]] = {}  # the call of each worker, and its start

    @property
    def is_busy(self) -> bool:
        """Whether a call is running or its outcome is still undelivered."""
        return bool(self.running)

    @abstractmethod
    def submit(self, jobs: Iterable[Job]) -> None:
        """Call the listener with each job, concurrently."""

    @abstractmethod
    async def call(self, message: ReceivedMessage) -> BaseException | None:
        """Call the listener with one message now; return its error, or None."""

    @abstractmethod
    async def in_order(
        self, messages: Sequence[ReceivedMessage], should_continue: ShouldContinue
    ) -> RunResult:
        """Call the listener with one message at a time, until one fails or `should_continue` is
        false.
        """

    def forget(self) -> None:
        """Drop the jobs that have not started."""
        self._waiting.clear()

    def close(self) -> None:
        """Stop without waiting for running calls."""
        self._is_closed = True
        self.forget()


def listener_runner(listener: Listener, concurrency: int, settled: OnSettled) -> ListenerRunner:
    """Return a runner for `listener`; raise InvalidStateError if it cannot consume messages."""
    if not callable(listener):
        raise InvalidStateError(
            f"the listener {listener!r} is not callable: give a function or coroutine function that"
            " takes one message"
        )
    if inspect.isgeneratorfunction(listener) or inspect.isasyncgenfunction(listener):
        raise InvalidStateError(
            f"the listener {listener!r} is a generator, so calling it has no effect: give a"
            " function that returns"
        )
    if inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        type(listener).__call__
    ):
        return CoroutineListenerRunner(
            cast("Callable[[ReceivedMessage], Awaitable[object]]", listener), concurrency, settled
        )
    return ThreadListenerRunner(listener, concurrency, settled)


class CoroutineListenerRunner(ListenerRunner):
    """Runs coroutine functions on the loop."""

    def __init__(
        self,
        listener: Callable[[ReceivedMessage], Awaitable[object]],
        concurrency: int,
        settled: OnSettled,
    ) -> None:
        super().__init__(concurrency, settled)
        self._listener = listener
        self._workers: set[asyncio.Task[None]] = set()

    def submit(self, jobs: Iterable[Job]) -> None:
        self._waiting.extend(jobs)
        self._add_worker()

    def _add_worker(self) -> None:
        """Add a worker if jobs are queued, and check again after the present workers have run."""
        if self._waiting and self._active < self._concurrency:
            self._active += 1
            loop = asyncio.get_running_loop()
            worker = loop.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
            loop.call_soon(self._add_worker)

    async def _work(self) -> None:
        waiting, listener, settled, running = (
            self._waiting,
            self._listener,
            self._settled,
            self.running,
        )
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
                    if _is_for_caller(raised):
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
        """Count a message as failed whose worker was cancelled, unless everything is closing."""

        def settle() -> None:
            if not self._is_closed:
                self._settled(job, problem, began_s, time.monotonic())
                self._add_worker()

        asyncio.get_running_loop().call_later(_GRACE_S, settle)

    async def call(self, message: ReceivedMessage) -> BaseException | None:
        return await _outcome(self._listener(message))

    async def in_order(
        self, messages: Sequence[ReceivedMessage], should_continue: ShouldContinue
    ) -> RunResult:
        began_s, taken = time.perf_counter(), 0
        problem: BaseException | None = None
        for message in messages:
            if not should_continue():
                break
            problem = await _outcome(self._listener(message))
            if problem is not None:
                break
            taken += 1
        return RunResult(taken, problem, time.perf_counter() - began_s)

    def close(self) -> None:
        super().close()
        for worker in list(self._workers):
            worker.cancel()


class ThreadListenerRunner(ListenerRunner):
    """Runs plain functions in threads, so that they may block without delaying heartbeats and
    pulls.

    An awaitable that they return is awaited on the loop.
    """

    def __init__(
        self, listener: Callable[[ReceivedMessage], object], concurrency: int, settled: OnSettled
    ) -> None:
        super().__init__(concurrency, settled)
        self._listener = listener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool = DaemonPool(concurrency, "listener")  # a blocked listener does not delay exit
        self._workers: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()  # guards `_active`: a worker ends only if no job is queued
        self._done: deque[tuple[Job, BaseException | None, float, float]] = deque()
        self._is_woken = False  # the loop is scheduled to settle `_done`
        self._check_timer: asyncio.TimerHandle | None = None
        # Awaitables that the loop awaits on behalf of threads.
        self._on_the_loop: set[Future[BaseException | None]] = set()

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
        if self._check_timer is None and self._loop is not None:
            self._check_timer = self._loop.call_later(_PATIENCE_S, self._check_progress)

    def _check_progress(self) -> None:
        """Add workers if the present ones did not drain the queue in time."""
        self._check_timer = None
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
            if not self._is_woken:
                self._is_woken = True
                self._wake_loop()

    def _outcome(self, message: ReceivedMessage) -> BaseException | None:
        """Call the listener; return whatever it raises, since the thread must go on."""
        try:
            result = self._listener(message)
            return (
                self._awaited(result)
                if result is not None and inspect.isawaitable(result)
                else None
            )
        except BaseException as problem:
            return problem

    def _awaited(self, awaitable: Awaitable[object]) -> BaseException | None:
        """Block this thread until the loop has awaited it."""
        assert self._loop is not None
        on_the_loop = asyncio.run_coroutine_threadsafe(_outcome(awaitable), self._loop)
        self._on_the_loop.add(on_the_loop)
        if self._is_closed:  # close() may have missed this one
            on_the_loop.cancel()
        try:
            return on_the_loop.result()
        finally:
            self._on_the_loop.discard(on_the_loop)

    @property
    def is_busy(self) -> bool:
        return bool(self.running or self._done)

    def _wake_loop(self) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:  # the loop is closed: outcomes no longer matter
            self.forget()

    def _settle(self) -> None:
        self._is_woken = False
        if self._is_closed:
            self._done.clear()
        while self._done:
            self._settled(*self._done.popleft())

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        self._loop = asyncio.get_running_loop()
        return await self._pool.run(function, *arguments)

    async def call(self, message: ReceivedMessage) -> BaseException | None:
        return await self._in_thread(self._outcome, message)

    async def in_order(
        self, messages: Sequence[ReceivedMessage], should_continue: ShouldContinue
    ) -> RunResult:
        return await self._in_thread(self._run_in_order, messages, should_continue)

    def _run_in_order(
        self, messages: Sequence[ReceivedMessage], should_continue: ShouldContinue
    ) -> RunResult:
        began_s, taken = time.perf_counter(), 0
        problem: BaseException | None = None
        for message in messages:
            if not should_continue():
                break
            problem = self._outcome(message)
            if problem is not None:
                break
            taken += 1
        return RunResult(taken, problem, time.perf_counter() - began_s)

    def forget(self) -> None:
        with self._lock:
            self._waiting.clear()

    def close(self) -> None:
        super().close()
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._pool.close()
        for worker in list(self._workers):
            worker.cancel()
        for awaited in list(self._on_the_loop):
            awaited.cancel()
