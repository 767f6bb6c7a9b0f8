"""What every blocking client is: one of the async clients, whose methods any thread may call and wait for.

`waits` makes a blocking method of a coroutine method, `iterates` of an async iterator, `acts` of a plain method; all keep its signature and
what it says of itself. Once the client is started, each runs on the loop's thread, which alone touches the async client.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from orbitmq.blocking import loop_thread
from orbitmq.blocking.loop_thread import Call, LoopThread
from orbitmq.client.session import SessionUser
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import WrongCall

OwnCluster = str | Sequence[str] | ClientSettings
"""What a client is told of a cluster: its name servers, or all settings."""

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
S_co = TypeVar("S_co", bound=SessionUser, covariant=True)


class Blocking(ABC, Generic[C_co]):
    """The blocking face of an async object."""

    def __init__(self, behind: C_co) -> None:
        self._behind = behind

    @abstractmethod
    def _wait(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function on the loop, and wait for its end."""

    @abstractmethod
    def _act(self, work: Callable[[], T]) -> T:
        """Call a plain function where the object lives."""


class BlockingClient(Blocking[S_co]):
    """`with … as client`, or from `start` to `close`."""

    def __init__(self, behind: S_co) -> None:
        super().__init__(behind)
        self._loop: LoopThread | None = None
        self._closing: Call[None] | None = None
        self._is_over = False
        self._lock = threading.Lock()  # of start and close

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._end(self._behind.__aexit__, *problem)

    def start(self) -> None:
        """Begin; nothing stays when that fails."""
        with self._lock:
            if self._loop is not None:
                raise WrongCall("this client was started before; make a new one")
            self._loop = loop = loop_thread.acquire()
        try:
            loop.call(self._behind.start)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End, and give up the calls that are under way. Whoever was interrupted here may call it again."""
        self._end(self._behind.close)

    def _end(self, end: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Close the client once, and wait for that. In a fork of the process that started it there is nothing to close."""
        loop = self._loop
        if loop is None or not loop.is_of_this_process:
            return
        with self._lock:
            if self._closing is None:
                self._closing = loop.submit(end, *args, **kwargs)
            closing = self._closing
        try:
            closing.wait()
        finally:
            with self._lock:
                is_last, self._is_over = closing.is_over and not self._is_over, closing.is_over
            if is_last:
                loop_thread.release(loop)

    def _wait(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._loop is None:
            raise WrongCall("this client is not started: use it in `with`, or call start() first")
        if self._closing is not None:
            raise WrongCall("this client is closed; make a new one")
        return self._loop.call(work, *args, **kwargs)

    def _act(self, work: Callable[[], T]) -> T:
        return work() if self._loop is None else self._wait(_as_coroutine, work)


async def _as_coroutine(work: Callable[[], T]) -> T:
    return work()


def waits(method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Blocking[C], P], T]:
    """The blocking method of a coroutine method."""

    @wraps(method)
    def call(face: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face._wait(method, face._behind, *args, **kwargs)

    return call


def iterates(method: Callable[Concatenate[C, P], AsyncIterator[T]]) -> Callable[Concatenate[Blocking[C], P], Iterator[T]]:
    """The blocking method of a method that gives one value after the other."""

    @wraps(method)
    def call(face: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        values = face._act(partial(method, face._behind, *args, **kwargs))
        try:
            while True:
                try:
                    value = face._wait(_next_of, values)
                except StopAsyncIteration:
                    return
                yield value
        finally:
            with suppress(WrongCall):  # the client was closed before, or nobody is left who could wait
                if isinstance(values, AsyncGenerator):
                    face._wait(_end_of, values)

    return call


async def _next_of(values: AsyncIterator[T]) -> T:
    return await anext(values)


async def _end_of(values: AsyncGenerator[Any, Any]) -> None:
    await values.aclose()


def acts(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[Blocking[C], P], T]:
    """The method, as any thread may call it."""

    @wraps(method)
    def call(face: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face._act(partial(method, face._behind, *args, **kwargs))

    return call
