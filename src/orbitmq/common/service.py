"""Ordered start and stop of the parts of a process, and running it until a signal.

Knows nothing about the parts. Invariant: every started part is stopped once, in reverse order; a
failing stop is logged and does not prevent the others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from orbitmq.common import short_collections
from orbitmq.common.errors import OrbitError, os_error_text

PARENT_LOOKED_AFTER_S: Final = 0.5

log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[object] | object]


class StopFailedError(OrbitError):
    """Some parts failed to stop; all others stopped."""


class StartFailedError(OrbitError):
    """A part failed to start; the parts before it were stopped again."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A named part with its start, stop and kill callables."""

    name: str
    start: Step | None
    stop: Step | None
    kill: Step | None


class Services:
    """Parts with a plain or async start and stop, in dependency order."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._started: list[_Part] = []

    def add(
        self,
        name: str,
        *,
        start: Step | None = None,
        stop: Step | None = None,
        kill: Step | None = None,
    ) -> None:
        """Add a part that is started after, and stopped before, those added already; `kill`
        releases it where that differs from `stop`.
        """
        self._parts.append(_Part(name, start, stop, kill or stop))

    async def start(self) -> None:
        """Start every part in order; if one fails, stop those that run and raise StartFailedError
        with its name and the cause.
        """
        for part in self._parts:
            try:
                await _run(part.start)
            except BaseException as error:
                with suppress(StopFailedError):  # logged already; the start failure is what matters
                    await self.stop()
                if isinstance(error, Exception):
                    raise StartFailedError(
                        f"{part.name} did not start: {describe(error)}"
                    ) from error
                raise
            self._started.append(part)
            log.debug("started part=%r", part.name)

    async def stop(self) -> None:
        """Stop the running parts, last started first; every stop is tried, and StopFailedError
        names those that failed.
        """
        if failures := await self._end(lambda part: part.stop):
            raise StopFailedError("; ".join(failures))

    async def kill(self) -> None:
        """Release the running parts, in the same order, as the end of the process would."""
        await self._end(lambda part: part.kill)

    async def _end(self, step: Callable[[_Part], Step | None]) -> list[str]:
        failures: list[str] = []
        while self._started:
            part = self._started.pop()
            try:
                await _run(step(part))
                log.debug("stopped part=%r", part.name)
            except Exception as error:
                log.error(
                    "stop_failed part=%r reason=%s",
                    part.name,
                    describe(error),
                    exc_info=not isinstance(error, OrbitError),
                )
                failures.append(f"{part.name}: {describe(error)}")
        return failures


def describe(error: Exception) -> str:
    """Return the message of an error, with its type if the message is empty or the error is not
    ours.
    """
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return os_error_text(error)
    if isinstance(error, OrbitError) or (isinstance(error, OSError) and text):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def _run(step: Step | None) -> None:
    if step is not None:
        result = step()
        if isinstance(result, Awaitable):
            await result


async def run_until_signal(
    services: Services, *, ready: Callable[[], object] = lambda: None, with_parent: bool = False
) -> None:
    """Start `services`, call `ready`, and stop them on SIGTERM or SIGINT; a signal during the start
    stops the started parts.

    With `with_parent` the exit of the parent process counts as such a signal. The services own the
    process and its garbage collector (`short_collections.py`).
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    signals = (signal.SIGTERM, signal.SIGINT)
    received: list[signal.Signals] = []
    stopping = asyncio.Event()
    starting = True

    def on_signal(number: signal.Signals) -> None:
        received.append(number)
        stopping.set()
        if starting and len(received) == 1:
            task.cancel()

    for number in signals:
        loop.add_signal_handler(number, on_signal, number)
    watch = (
        loop.create_task(_when_parent_ends(lambda: on_signal(signal.SIGTERM)))
        if with_parent
        else None
    )
    try:
        try:
            await services.start()
        except asyncio.CancelledError:
            if not received:
                raise
            task.uncancel()
            return
        finally:
            starting = False
        short_collections.begin()
        ready()
        while not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), short_collections.IDLE_CHECK_S)
            short_collections.collect_when_idle()
        log.info("stopping signal=%s", received[0].name)
        await services.stop()
    finally:
        short_collections.end()
        if watch is not None:
            watch.cancel()
        for number in signals:
            loop.remove_signal_handler(number)


async def _when_parent_ends(then: Callable[[], object]) -> None:
    parent = os.getppid()
    while True:
        await asyncio.sleep(PARENT_LOOKED_AFTER_S)
        if os.getppid() != parent:  # the parent is gone: another process adopted this one
            log.info("parent_ended pid=%d", parent)
            then()
            return


def raise_file_limit() -> int:
    """Raise the soft limit on open files as far as the system allows without privileges; return the
    new limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:  # some systems report "no limit" and have one
            log.warning("file_limit_kept limit=%d reason=%r", soft, error)
            return soft
    return hard
