"""Ordered start and stop of the parts of a process, and its life until a signal.

Knows nothing of what the parts are. Invariant: what was started is stopped once, in reverse order; a stop that fails is logged and keeps
no other from being stopped.
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


class StopFailed(OrbitError):
    """Parts that did not stop as they should; all others did."""


class StartFailed(OrbitError):
    """A part that did not start; the ones before it were stopped again."""


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    start: Step | None
    stop: Step | None
    kill: Step | None


class Services:
    """Parts with a start and a stop each, plain or async, in the order in which they need one another."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._started: list[_Part] = []

    def add(self, name: str, *, start: Step | None = None, stop: Step | None = None, kill: Step | None = None) -> None:
        """Add a part that is started after, and stopped before, those added already; `kill` lets go of it where that is not its `stop`."""
        self._parts.append(_Part(name, start, stop, kill or stop))

    async def start(self) -> None:
        """Start every part in order; if one fails, stop those that run and raise StartFailed with its name and the cause."""
        for part in self._parts:
            try:
                await _run(part.start)
            except BaseException as error:
                with suppress(StopFailed):  # it is logged; why the start failed is what counts
                    await self.stop()
                if isinstance(error, Exception):
                    raise StartFailed(f"{part.name} did not start: {describe(error)}") from error
                raise
            self._started.append(part)
            log.debug("started part=%r", part.name)

    async def stop(self) -> None:
        """Stop what runs, last started first; every stop is tried, and StopFailed says which did not succeed."""
        if failures := await self._end(lambda part: part.stop):
            raise StopFailed("; ".join(failures))

    async def kill(self) -> None:
        """Let go of what runs, in the same order, as the end of the process would."""
        await self._end(lambda part: part.kill)

    async def _end(self, step: Callable[[_Part], Step | None]) -> list[str]:
        failures: list[str] = []
        while self._started:
            part = self._started.pop()
            try:
                await _run(step(part))
                log.debug("stopped part=%r", part.name)
            except Exception as error:
                log.error("stop_failed part=%r reason=%s", part.name, describe(error), exc_info=not isinstance(error, OrbitError))
                failures.append(f"{part.name}: {describe(error)}")
        return failures


def describe(error: Exception) -> str:
    """What an error says, and its kind when it says nothing or is not one of ours."""
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


async def run_until_signal(services: Services, *, ready: Callable[[], object] = lambda: None, with_parent: bool = False) -> None:
    """Start `services`, call `ready`, stop them when SIGTERM or SIGINT comes; a signal during the start stops what has started.

    With `with_parent` the end of the process that started this one is such a signal too. The process is the services' own, and so is its
    garbage collector (`short_collections.py`).
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
    watch = loop.create_task(_when_parent_ends(lambda: on_signal(signal.SIGTERM))) if with_parent else None
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
                await asyncio.wait_for(stopping.wait(), short_collections.LOOK_AT_ALL_S)
            short_collections.look_at_all()
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
        if os.getppid() != parent:  # its children belong to somebody else now
            log.info("parent_ended pid=%d", parent)
            then()
            return


def raise_file_limit() -> int:
    """Allow this process as many open files as the system lets it have without further rights; returns how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:  # some systems say "no limit" and have one
            log.warning("file_limit_kept limit=%d reason=%r", soft, error)
            return soft
    return hard
