"""Wait for what other tasks, threads or processes bring about.

Every wait has a deadline in real time, below the timeout of pytest, and fails with what was seen
last: the condition's last value and the variables that it looks at. A condition that raises ends
the wait.
"""

from __future__ import annotations

import asyncio
import inspect
import reprlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")

WITHIN_S: Final = 60.0
_PAUSE_S_MIN: Final = 0.001
_PAUSE_S_MAX: Final = 0.05


@overload
async def until(
    condition: Callable[[], Awaitable[T | None]], what: str = ..., *, seconds: float = ...
) -> T: ...


@overload
async def until(
    condition: Callable[[], T | None], what: str = ..., *, seconds: float = ...
) -> T: ...


async def until(
    condition: Callable[[], Any], what: str = "the condition", *, seconds: float = WITHIN_S
) -> Any:
    """Return the first true value of a condition, plain or async, while other tasks run."""
    value = None
    try:
        for pause_s in _pauses(seconds):
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(pause_s)
    except asyncio.CancelledError as ended:  # by a deadline around this one
        ended.add_note(_failure(condition, value, what))
        raise
    raise AssertionError(_failure(condition, value, f"{what} (within {seconds:g} s)"))


def wait_until(
    condition: Callable[[], T | None], what: str = "the condition", *, seconds: float = WITHIN_S
) -> T:
    """Return the first true value of a condition while threads and processes run."""
    value = None
    for pause_s in _pauses(seconds):
        value = condition()
        if value:
            return value
        time.sleep(pause_s)
    raise AssertionError(_failure(condition, value, f"{what} (within {seconds:g} s)"))


def _pauses(seconds: float) -> Iterator[float]:
    """Yield growing pauses until the deadline, and one more: the last look is behind it."""
    deadline_s = time.monotonic() + seconds
    pause_s = _PAUSE_S_MIN
    while True:
        is_over = time.monotonic() >= deadline_s
        yield pause_s
        if is_over:
            return
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)


def _failure(condition: Callable[[], object], value: object, what: str) -> str:
    seen = reprlib.Repr()
    seen.maxother = seen.maxstring = 400
    seen.maxlist = seen.maxdict = seen.maxset = seen.maxtuple = 20
    try:
        variables = inspect.getclosurevars(condition).nonlocals
    except TypeError:  # no Python function
        variables = {}
    return (
        f"{what} did not come true; last seen: {seen.repr(value)}"
        f"{''.join(f', {name} = {seen.repr(each)}' for name, each in variables.items())}"
    )
