"""The base of blocking clients: each wraps an async client, whose methods any thread may call.

`blocking_method` wraps a coroutine method, `blocking_iterator` an async iterator, `loop_method` a
plain method; all keep signature and docstring. Thread rule: once the client is started, each call
runs on the loop's thread, the only one that touches the async client.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from orbitmq.blocking import loop_thread
from orbitmq.blocking.loop_thread import Call, ClientLoopThread
from orbitmq.client.session.client_session import SessionUser
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import InvalidStateError

OwnCluster = str | Sequence[str] | ClientSettings
"""How a blocking client reaches a cluster: name servers or full settings."""

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
S_co = TypeVar("S_co", bound=SessionUser, covariant=True)


class BlockingFace(ABC, Generic[C_co]):
    """The blocking interface of an async object."""

    def __init__(self, wrapped: C_co) -> None:
        self._wrapped = wrapped

    @abstractmethod
    def _run(
        self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a coroutine function on the loop and wait for its result."""

    @abstractmethod
    def _run_plain(self, work: Callable[[], T]) -> T:
        """Call a plain function on the thread of the wrapped object."""


class BlockingClient(BlockingFace[S_co]):
    """A blocking client, used with `with` or from `start` to `close`."""

    def __init__(self, wrapped: S_co) -> None:
        super().__init__(wrapped)
        self._loop: ClientLoopThread | None = None
        self._closing: Call[None] | None = None
        self._is_over = False
        self._lock = threading.Lock()  # guards start and close

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._end(self._wrapped.__aexit__, *problem)

    def start(self) -> None:
        """Start the client; a failure leaves nothing behind."""
        with self._lock:
            if self._loop is not None:
                raise InvalidStateError("this client is already started: create a new one")
            self._loop = loop = loop_thread.acquire()
        try:
            loop.call(self._wrapped.start)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the client and cancel its running calls; may be called again after an interrupt."""
        self._end(self._wrapped.close)

    def _end(
        self, end: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Close the client once and wait for it; do nothing in a fork of the process that started
        it.
        """
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

    def _run(
        self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self._loop is None:
            raise InvalidStateError(
                "this client is not started: use it in `with`, or call start() first"
            )
        if self._closing is not None:
            raise InvalidStateError("this client is closed: create a new one")
        return self._loop.call(work, *args, **kwargs)

    def _run_plain(self, work: Callable[[], T]) -> T:
        return work() if self._loop is None else self._run(_as_coroutine, work)


async def _as_coroutine(work: Callable[[], T]) -> T:
    return work()


def blocking_method(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingFace[C], P], T]:
    """Return the blocking method of a coroutine method."""

    @wraps(method)
    def call(face: BlockingFace[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face._run(method, face._wrapped, *args, **kwargs)

    return call


def blocking_iterator(
    method: Callable[Concatenate[C, P], AsyncIterator[T]],
) -> Callable[Concatenate[BlockingFace[C], P], Iterator[T]]:
    """Return the blocking generator method of an async iterator method."""

    @wraps(method)
    def call(face: BlockingFace[C], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        values = face._run_plain(partial(method, face._wrapped, *args, **kwargs))
        try:
            while True:
                try:
                    value = face._run(_next_of, values)
                except StopAsyncIteration:
                    return
                yield value
        finally:
            # The client may be closed, or this may be the loop's own thread.
            with suppress(InvalidStateError):
                if isinstance(values, AsyncGenerator):
                    face._run(_end_of, values)

    return call


async def _next_of(values: AsyncIterator[T]) -> T:
    return await anext(values)


async def _end_of(values: AsyncGenerator[Any, Any]) -> None:
    await values.aclose()


def loop_method(
    method: Callable[Concatenate[C, P], T],
) -> Callable[Concatenate[BlockingFace[C], P], T]:
    """Return a method that calls a plain method on the loop's thread."""

    @wraps(method)
    def call(face: BlockingFace[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face._run_plain(partial(method, face._wrapped, *args, **kwargs))

    return call
